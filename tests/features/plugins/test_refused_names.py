"""A name that a policy has is the policy's: also where its file is broken, and in whatever form others write it."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

from perdure.core.errors import InvalidInput
from perdure.features.plugins.definitions import KINDS, DefinitionKind
from perdure.features.plugins.layers import find_definitions
from perdure.settings import Settings
from tests.features.plugins.files import define, write
from tests.features.plugins.test_layers import Layered

BROKEN = {
    "a field of another type": "---\nname: review\ndescription: x\nmax_turns: many\n---\n",
    "a frontmatter without an end": "---\nname: review\ndescription: x\n",
    "no YAML": "---\nname: review\ndescription: x\ntools: [\n---\n",
    "an anchor": '---\n"name": "review"\ndescription: &x y\n---\n',
    "a NUL character": "---\nname: review\ndescription: x\n---\n\0",
    "a file that is too large": "---\nname: review\ndescription: x\n---\n" + "x" * 1_000_001,
    "a frontmatter that is too large": "---\nname: review\ndescription: x\n" + f"note: {'x' * 70_000}\n---\n",
}


@pytest.fixture
def layered(tmp_path: Path) -> Layered:
    """Folders without definitions."""
    return Layered(tmp_path)


def write_as(layered: Layered, kind: DefinitionKind, stem: str, text: str) -> Path:
    """Write the file of a definition into the policy's folder."""
    return write(layered.policy / kind / (f"{stem}/SKILL.md" if kind == "skills" else f"{stem}.md"), text)


@pytest.mark.parametrize("kind", ["agents", "skills"])
@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_keeps_the_name_that_it_says(layered: Layered, kind: DefinitionKind, text: str) -> None:
    """Not only that of its path; the reason names the file."""
    for layer in ("built-in", "user", "project"):
        layered.define(layer, kind, "review")
        layered.define(layer, kind, "other")
    file = write_as(layered, kind, "ours", text)
    found = layered.find(kind)

    assert [*found.by_name] == ["other"]
    assert str(file) in found.why_refused("review") and found.why_refused("ours") and not found.why_refused("other")
    assert [found.is_free(one) for one in ("review", "Review", "other", "new")] == [False, False, False, True]


def test_a_helper_in_a_folder_of_the_policy_keeps_its_name(layered: Layered) -> None:
    """Folders are no part of its name; they are of a command's."""
    for kind in ("agents", "commands"):
        layered.define("user", kind, "review")
        write_as(layered, kind, "team/review", "---\nmax_turns: 0\n---\n")

    assert not layered.find("agents").by_name and [*layered.find("commands").by_name] == ["review"]


def test_one_that_can_be_read_wins_over_one_that_can_not(layered: Layered) -> None:
    """Both are the policy's."""
    layered.define("user", "agents", "review")
    layered.define("policy", "agents", "review")
    write_as(layered, "agents", "again", BROKEN["no YAML"])

    assert {name: one.body for name, one in layered.find("agents").by_name.items()} == {"review": "policy"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_the_policy_that_can_not_be_followed_allows_nothing(
    layered: Layered, kind: DefinitionKind, tmp_path: Path
) -> None:
    """For which names it has is not known."""
    layered.define("user", kind, "review")
    define(tmp_path / "else", kind, "review")
    (layered.policy / kind).mkdir()
    (layered.policy / kind / "team").symlink_to(tmp_path / "else" / kind)
    if kind == "skills":  # the folder of a skill has its name
        assert layered.find(kind).why_refused("team") and [*layered.find(kind).by_name] == ["review"]
    else:
        with pytest.raises(InvalidInput, match="team"):
            layered.find(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_is_the_same_in_any_form(layered: Layered, kind: DefinitionKind) -> None:
    """In either case, and with its marks apart, as macOS writes them. The later layer's way of writing counts."""
    apart = unicodedata.normalize("NFD", "prüfung")
    layered.define("user", kind, apart)
    layered.define("project", kind, "Prüfung")
    layered.define("user", kind, "Deploy")
    layered.define("policy", kind, "deploy")

    found = layered.find(kind)
    assert {name: one.layer for name, one in found.by_name.items()} == {"Prüfung": "project", "deploy": "policy"}
    assert sorted(one.name for one in found.shadowed) == ["Deploy", "prüfung"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_denied_name_is_denied_in_any_form(layered: Layered, kind: DefinitionKind) -> None:
    """So is a plug-in."""
    word = "helpers" if kind == "agents" else kind
    write(layered.policy / "policy.toml", f'denied_{word} = ["Prüf*", "deploy"]\ndenied_plugins = ["Tidy"]\n')
    for name in (unicodedata.normalize("NFD", "prüfung"), "DEPLOY", "fine"):
        layered.define("project", kind, name)
    layered.define("plug-in", kind, "rev")

    found = layered.find(kind)
    assert [*found.by_name] == ["fine"] and found.why_refused("prüfung") == "the policy forbids it"


def test_a_helper_of_the_environment_has_the_same_rule() -> None:
    """Its name is stored in one form."""
    helpers = json.dumps({unicodedata.normalize("NFD", "prüfung"): {"description": "x"}})
    found = find_definitions("agents", Settings(helpers=helpers, home="/missing"), None, features=[])

    assert [*found.by_name] == ["prüfung"]


@pytest.mark.parametrize("place", ["policy.toml", *KINDS])
def test_a_link_that_leads_nowhere_allows_nothing(layered: Layered, place: str) -> None:
    """The policy may be there to forbid something."""
    (layered.policy / place).symlink_to(layered.policy / "gone")
    for kind in KINDS if place == "policy.toml" else [place]:
        with pytest.raises(InvalidInput, match="leads nowhere"):
            layered.find(kind)  # type: ignore[arg-type]


def test_control_characters_in_the_environment_are_refused() -> None:
    """JSON can hide what a file may not have."""
    for text in ("a\0b", "a\x1b[2J", "\ud800"):
        helpers = json.dumps({"x": {"description": text}})
        found = find_definitions("agents", Settings(helpers=helpers, home="/missing"), None, features=[])
        assert not found.by_name and "control character" in found.problems[0].why
