"""The page of skills says what `admission.toml` says, and names the skills that ship."""

from __future__ import annotations

from perdure.features.plugins.layers import find_definitions
from perdure.features.skills.admission import layers, rules
from perdure.features.skills.catalog import INDEX_LINES
from perdure.features.skills.values import UNUSED_FOR
from perdure.settings import Settings
from tests.docs.markdown import ROOT

PAGE = (ROOT / "docs" / "skills.md").read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_rules() -> None:
    for key, layer in layers().items():
        assert f"| {key} | {layer.name} | {layer.holds} | {layer.written_by} |" in PAGE
    for rule in rules():
        people = "yes" if rule.people else "no"
        assert f"| `{rule.name}` | {', '.join(rule.layers)} | {people} | {rule.says} |" in PAGE


def test_the_skills_that_ship_are_named() -> None:
    shipped = [one for one in find_definitions("skills", Settings(), None).by_name.values() if one.layer == "built-in"]

    assert len(shipped) == 3
    for one in shipped:
        assert f"| `{one.name}` | {one.description} |" in PAGE


def test_the_limits_are_those_of_the_code() -> None:
    sizes = [f"{layers()[key].limit_chars:,}" for key in ("L2", "L3")]

    assert f"| {', '.join(sizes)} characters |" in PAGE
    assert f"up to {INDEX_LINES} lines" in PAGE and f"for {UNUSED_FOR.days} days" in PAGE
