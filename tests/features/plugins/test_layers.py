"""The six layers of definitions, and what a policy forbids."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import get_args

import pytest

from perdure.core.errors import InvalidInput
from perdure.core.features import Feature
from perdure.features.plugins.definitions import KINDS, DefinitionKind, Definitions, Layer
from perdure.features.plugins.layers import find_definitions
from perdure.features.plugins.policy import load_policy
from perdure.settings import Settings
from tests.features.plugins.files import define, write

LAYERS: tuple[Layer, ...] = get_args(Layer)
SETS = [one for size in range(len(LAYERS) + 1) for one in itertools.combinations(LAYERS, size)]


class Layered:
    """A data folder, a project and a policy, in which definitions are made layer by layer."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project, self.policy, self.more = (folder / one for one in ("home", "app", "policy", "more"))
        for one in (self.home, self.project, self.policy, self.more):
            one.mkdir()
        self.flags = folder / "flags"
        self.built_in = folder / "features" / "one"
        self.helpers: dict[str, object] = {}

    @property
    def settings(self) -> Settings:
        """Those that know all of the folders."""
        return Settings(
            home=str(self.home),
            definitions=str(self.more),
            definitions_flags=f" {self.flags} {os.pathsep}/missing",
            helpers=json.dumps(self.helpers) if self.helpers else "",
            policy=str(self.policy),
        )

    def find(self, kind: DefinitionKind) -> Definitions:
        """The definitions of a kind."""
        feature = Feature(name=str(self.built_in))
        return find_definitions(kind, self.settings, self.project, features=[feature])

    def define(self, layer: Layer, kind: DefinitionKind, name: str) -> None:
        """Define something in a layer; its body is the layer."""
        if layer == "flags" and kind == "agents":
            self.helpers[name] = {"description": "For it", "prompt": layer}
            return
        if layer == "plug-in":
            write(self.home / "plugins" / "plugins.json", json.dumps({"tidy": {"version": "1"}}))
        folders = {
            "built-in": self.built_in / "builtin",
            "plug-in": self.home / "plugins" / "tidy",
            "user": self.home,
            "project": self.project / ".claude",
            "flags": self.flags,
            "policy": self.policy,
        }
        define(folders[layer], kind, name, layer)


@pytest.fixture
def layered(tmp_path: Path) -> Layered:
    """Folders without definitions."""
    return Layered(tmp_path)


@pytest.mark.parametrize("present", SETS, ids=lambda one: "+".join(one) or "none")
@pytest.mark.parametrize("kind", KINDS)
def test_a_later_layer_overrides_an_earlier_one(
    layered: Layered, kind: DefinitionKind, present: tuple[Layer, ...]
) -> None:
    """For all 64 sets of layers that define a name. A plug-in's has the plug-in's name too."""
    for layer in present:
        layered.define(layer, kind, "review")

    found = layered.find(kind)
    order = [one for one in present if one != "plug-in"]
    assert not found.problems and not found.denied
    assert {name: one.body for name, one in found.by_name.items()} == {
        **({"review": order[-1]} if order else {}),
        **({"tidy:review": "plug-in"} if "plug-in" in present else {}),
    }
    assert [one.layer for one in found.shadowed] == order[:-1]
    assert all(one.layer == one.body for one in found.by_name.values())


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_policy_denies_is_in_no_layer(layered: Layered, kind: DefinitionKind) -> None:
    """A deny list wins over the allow list and over the policy's own definitions."""
    word = "helpers" if kind == "agents" else kind
    write(
        layered.policy / "policy.toml", f'allowed_{word} = ["re*", "tidy:*"]\ndenied_{word} = ["review", "*:rename"]\n'
    )
    for layer in LAYERS:
        for name in ("review", "rewrite", "rename", "plan"):
            layered.define(layer, kind, name)

    found = layered.find(kind)
    assert [*found.by_name] == ["rename", "rewrite", "tidy:plan", "tidy:review", "tidy:rewrite"]
    assert {one.name for one in found.denied} == {"review", "plan", "tidy:rename"}


def test_a_denied_tool_or_model_is_denied_by_its_pattern(layered: Layered) -> None:
    """As the policy's file says it."""
    text = 'allowed_models = ["anthropic/*"]\ndenied_models = ["*/claude-opus-*"]\ndenied_tools = ["run_*", "mcp__x"]\n'
    write(layered.policy / "policy.toml", text)
    policy = load_policy(layered.settings)

    assert [policy.allows_model(one) for one in ("anthropic/claude-opus-4", "anthropic/x", "openai/x")] == [0, 1, 0]
    assert [policy.allows_tool(one) for one in ("run_code", "mcp__x", "mcp__x__y")] == [False, False, False]
    assert policy.allows_tool("mcp__xy__z")


@pytest.mark.parametrize(
    "text",
    ["denied_helper = ['x']", "denied_tools = 'x'", "denied_tools = [1]", "denied_tools = [", "allowed_plugins = ['']"],
)
def test_a_policy_with_a_mistake_allows_nothing(layered: Layered, text: str) -> None:
    """Since it may be there to forbid something. So does one whose folder is missing."""
    file = write(layered.policy / "policy.toml", text)
    with pytest.raises(InvalidInput, match=str(file)):
        layered.find("agents")
    with pytest.raises(InvalidInput, match="no such folder"):
        find_definitions("agents", Settings(policy=str(layered.policy / "missing")), None)


def test_a_byte_order_mark_is_no_mistake(layered: Layered) -> None:
    """With which some editors begin a file."""
    write(layered.policy / "policy.toml", '\ufeffdenied_helpers = ["x"]')

    assert not load_policy(layered.settings).allows("agents", "x")


def test_a_broken_file_of_a_policy_keeps_its_name_from_others(layered: Layered) -> None:
    """What it was to replace is not used in its place."""
    layered.define("user", "agents", "review")
    layered.define("user", "skills", "review")
    write(layered.policy / "agents" / "review.md", "---\nmax_turns: many\n---\n")
    write(layered.policy / "skills" / "review" / "SKILL.md", "---\n")

    for kind in ("agents", "skills"):
        found = layered.find(kind)
        assert not found.by_name and len(found.problems) == 1 and len(found.shadowed) == 1


def test_a_broken_file_does_not_take_others_with_it(layered: Layered) -> None:
    """It is listed with its line; so is a helper without a description, or with a name that can't be used."""
    define(layered.home, "agents", "good", permission_mode="plan")
    for name, text in {
        "broken": "---\ndescription: x\nmax_turns: many\n---\n",
        "nameless": "---\ndescription: x\nname: a:b\n---\n",
        "path": "---\nname: ../../x\ndescription: x\n---\n",
        "silent": "Text.",
        "binary": "---\ndescription: x\n---\n\0",
    }.items():
        write(layered.home / "agents" / f"{name}.md", text)
    (layered.home / "agents" / "latin.md").write_bytes(b"---\ndescription: caf\xe9\n---\n")
    write(layered.home / "agents" / "large.md", "x" * 1_000_001)
    os.mkfifo(layered.home / "agents" / "pipe.md")

    found = layered.find("agents")
    assert [*found.by_name] == ["good"] and found.by_name["good"].notes == [
        "line 3: 'permission_mode' is not known here, and has no effect"
    ]
    assert {(one.path.stem, one.line) for one in found.problems} == {
        *{("broken", 3), ("nameless", 3), ("path", 2), ("silent", 1), ("binary", 4), ("latin", 2)},
        *{("large", 0), ("pipe", 0)},
    }


def test_a_link_out_of_the_folder_is_not_followed(layered: Layered, tmp_path: Path) -> None:
    """Whether it is a file, a folder, or that of the project; a link within it is."""
    secret = define(tmp_path / "other", "agents", "secret")
    real = define(layered.project / ".claude", "agents", "real")
    (real.parent / "link.md").symlink_to(secret)
    (real.parent / "folder").symlink_to(secret.parent)
    (real.parent / "inner.md").symlink_to(real)

    (layered.project / ".perdure").symlink_to(tmp_path / "other")
    found = layered.find("agents")
    assert [*found.by_name] == ["inner", "real"]
    assert sorted(one.path.name for one in found.problems) == ["agents", "folder", "link.md"]
    assert all("outside" in one.why for one in found.problems)


def test_a_change_is_seen_and_nothing_else_is_read_again(layered: Layered) -> None:
    """Also one that keeps the file's size."""
    for number in range(30):
        define(layered.home, "agents", f"helper-{number}")
    file = define(layered.home, "agents", "changing", "one")
    before = layered.find("agents").by_name
    assert before["changing"].body == "one"

    file.write_text(file.read_text().replace("one", "two"))
    after = layered.find("agents").by_name
    assert after["changing"].body == "two"
    assert [name for name in after if after[name] is not before[name]] == ["changing"]


def test_commands_in_folders_have_the_folder_in_their_names(layered: Layered) -> None:
    """So do helpers and commands of a plug-in; other helpers are named by their field `name`, and skills by folder."""
    write(layered.home / "plugins" / "plugins.json", json.dumps({"tidy": {}}))
    tidy = layered.home / "plugins" / "tidy"
    for folder in (layered.home, tidy):
        define(folder, "commands", "git/push")
        define(folder, "agents", "code/file", name="reviewer")
        define(folder, "skills", "pdf")

    found = [name for kind in KINDS for name in layered.find(kind).by_name]
    assert found == ["reviewer", "tidy:code:reviewer", "git:push", "tidy:git:push", "pdf", "tidy:pdf"]


def test_a_plug_in_without_a_record_is_not_used(layered: Layered) -> None:
    """Neither is one that is disabled, or that the policy forbids."""
    for name in ("unknown", "off", "denied", "on"):
        define(layered.home / "plugins" / name, "agents", "x")
    records = {"off": {"is_enabled": False}, "denied": {}, "on": {}, "../../x": {}}
    write(layered.home / "plugins" / "plugins.json", json.dumps(records))
    write(layered.policy / "policy.toml", 'denied_plugins = ["denied"]')

    assert [*layered.find("agents").by_name] == ["on:x"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", "not JSON"),
        ("[]", "not an object"),
        ('{"a b": {"description": "x"}}', "'a b'"),
        ('{"a": 1}', "a: give an object"),
        ('{"a": {"prompt": "x"}}', "`description` is missing"),
        ('{"a": {"description": "x", "maxTurns": "y"}}', "max_turns"),
    ],
)
def test_helpers_in_the_environment_that_are_wrong_are_listed(text: str, why: str) -> None:
    """Under the name of the variable."""
    found = find_definitions("agents", Settings(helpers=text, home="/missing"), None, features=[])

    assert not found.by_name and why in str(found.problems[0]) and found.problems[0].path.name == "PERDURE_HELPERS"
