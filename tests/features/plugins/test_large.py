"""Many plug-ins, definitions and conditions, made to take long: they are bounded, and looked at once."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from perdure.features.plugins.installed import active_plugins
from perdure.features.plugins.layers import find_definitions
from perdure.features.plugins.manifest import read_manifest
from perdure.features.plugins.places import FileInvalid
from perdure.features.plugins.tool_names import resolve_tools
from perdure.settings import Settings
from tests.features.plugins.files import define, write


def install(home: Path, records: dict[str, object]) -> Settings:
    """Write the records of installed plug-ins into a data folder; return its settings."""
    write(home / "plugins" / "plugins.json", json.dumps(records))
    return Settings(home=str(home))


def test_plug_ins_that_need_all_others_are_checked_once(tmp_path: Path) -> None:
    """One path after the other would take hours with 40 of them; a chain of 2,000 has no limit of depth."""
    names = [f"p{number:04}" for number in range(2_000)]
    for count, width in ((40, 40), (2_000, 1)):
        records: dict[str, object] = {
            name: {"dependencies": dict.fromkeys(names[place + 1 : min(count, place + 1 + width)], "*")}
            for place, name in enumerate(names[:count])
        }
        settings = install(tmp_path, records)
        start = time.process_time()
        assert len(active_plugins(settings)) == count
        assert time.process_time() - start < 5
        records[names[count - 1]] = {"is_enabled": False}
        assert active_plugins(install(tmp_path, records)) == []


def test_roots_that_lie_in_each_other_are_read_once(tmp_path: Path) -> None:
    """A file is one definition."""
    roots = ["agents", "agents/x", "agents/x/y", "agents/x/y/a.md", "more"]
    settings = install(tmp_path, {"tidy": {"roots": {"agents": roots}}})
    for place in ("x/y/a", "b"):
        define(tmp_path / "plugins" / "tidy", "agents", place, name=Path(place).name)

    found = find_definitions("agents", settings, None, features=[])
    assert [*found.by_name] == ["tidy:b", "tidy:x:y:a"] and not found.shadowed


@pytest.mark.slow
def test_thousands_of_definitions_are_read_once(tmp_path: Path) -> None:
    """A smaller memory would lose each before it is asked for again."""
    settings = install(tmp_path, {f"p{number}": {} for number in range(3)})
    for number in range(2_700):
        define(tmp_path / "plugins" / f"p{number % 3}", "agents", f"a{number}")
    first, second = (find_definitions("agents", settings, None, features=[]).by_name for _ in range(2))

    assert len(first) == 2_700
    assert all(second[name] is definition for name, definition in first.items())


def test_a_matcher_without_end_is_refused(tmp_path: Path) -> None:
    """As one that is not a pattern."""
    hooks = {"PreToolUse": [{"matcher": "(" * 3_000 + ")" * 3_000, "hooks": [{"command": "true"}]}]}
    write(tmp_path / "hooks" / "hooks.json", json.dumps(hooks))
    with pytest.raises(FileInvalid, match=r"hooks\.json:1: PreToolUse\.0\.matcher: the matcher"):
        read_manifest(tmp_path, name="x")


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("*", ["abc", "abcabc", "b"]),
        ("a*c", ["abc", "abcabc"]),
        ("*b*", ["abc", "abcabc", "b"]),
        ("ab*bc", ["abcabc"]),
        ("a*b*b*c", ["abcabc"]),
        ("**b", ["b"]),
        ("[ab]*", []),
        ("a?c", []),
    ],
)
def test_only_the_star_is_a_pattern(pattern: str, fits: list[str]) -> None:
    """Any text stands for it, also none."""
    assert resolve_tools([pattern], ["abc", "abcabc", "b"]).found == fits


@pytest.mark.slow
def test_thousands_of_patterns_take_no_time() -> None:
    """As a hostile definition has them, the first time too."""
    tools = [f"tool_{number}" for number in range(50)]
    start = time.process_time()
    for number in range(100):
        resolve_tools([f"x{number}*{one}*" for one in range(200)], tools)

    assert time.process_time() - start < 10
