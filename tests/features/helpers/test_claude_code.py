"""Definitions of Claude Code with all fields that it documents: each is honoured, or a note says what holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure import AsyncAgent
from perdure.features.helpers.claude_code import preload_skills
from perdure.features.helpers.wire import HelperShape
from perdure.features.plugins.definitions import Definition
from perdure.testing import ScriptedModel, calls, says
from tests.features.helpers.helper_office import define, lead
from tests.features.plugins.files import define as define_kind
from tests.features.plugins.files import write
from tests.support.office import ended_runs

FIELDS = {
    "allowed-tools": ("Read", "the field `tools` names the tools of a helper"),
    "permissionMode": ("plan", "what needs approval for the agent that calls needs it for its helpers"),
    "background": ("true", "a call waits for its result"),
    "effort": ("high", "thinks as much as that"),
    "isolation": ("worktree", "a helper has no work tree of its own"),
    "initialPrompt": ("Begin", "it begins with the prompt of the call"),
    "hooks": ("{}", "the hooks of settings and plug-ins are called for helpers, too"),
}


async def shape_of(agent: AsyncAgent, name: str) -> HelperShape:
    return HelperShape.make(await agent.helpers.get(name))


@pytest.mark.parametrize("scope", ["user", "project", "local"])
async def test_the_memory_scopes_of_claude_code_are_a_memory_of_its_own(tmp_path: Path, scope: str) -> None:
    """The helper can be called, and a note says what it is."""
    define(tmp_path, "reviewer", memory=scope)
    model = ScriptedModel(calls("run_helper", name="reviewer", prompt="Go"), says("Found."), says("Done."))
    async with lead(tmp_path, {"lead": model}) as (perdure, agent):
        shape = await shape_of(agent, "reviewer")
        reply = await agent.send("Go")
        helper = await perdure.agent("Lead - reviewer")
        labels = [block.label for block in await helper.blocks.list()]

    assert (shape["memory"], shape["problem"], reply.text, labels) == ("own", "", "Done.", ["notes"])
    assert shape["notes"] == [
        f"memory: {scope}: it is a memory of the helper's own here, one for each agent that calls"
    ]


async def test_fields_without_effect_are_noted_with_what_holds_instead(tmp_path: Path) -> None:
    """In files and in the setting `PERDURE_HELPERS`."""
    define(tmp_path, "file", **{key: value for key, (value, _) in FIELDS.items()})
    fields = {"description": "x", "prompt": "y", "unheard": 1, **{key: value for key, (value, _) in FIELDS.items()}}
    async with lead(tmp_path, {"lead": ScriptedModel()}, helpers=json.dumps({"flag": fields})) as (_, agent):
        by_file, by_flag = [(await shape_of(agent, name))["notes"] for name in ("file", "flag")]

    for notes in (by_file, by_flag[1:]):
        assert len(notes) == len(FIELDS)
        for note, (key, (_, why)) in zip(notes, FIELDS.items(), strict=True):
            assert (
                key.replace("-", "").lower() in note.replace("_", "").replace("-", "").lower()
                and " has no effect here: " in note
                and why in note
            )
    assert by_file[0].startswith("line 4: ")
    assert by_flag[0] == "'unheard' is not known here, and has no effect"


@pytest.mark.parametrize(
    ("tools", "disallowed", "found", "missing", "notes"),
    [
        (None, "Bash(rm:*)", [], [], ["disallowed_tools: Bash(rm:*): a limit of arguments can't be enforced here"]),
        ("Bash, WebSearch", "Bash(rm:*), Bash(git push:*)", ["web_search"], [], ["Bash(rm:*)", "Bash(git push:*)"]),
        ("Bash, WebSearch", "Bsah", ["run_code", "web_search"], ["Bsah"], []),
        ("Bash, WebSearch", "Write(*), mcp__none", ["run_code", "web_search"], ["Write(*)", "mcp__none"], ["Write(*)"]),
        ("Bash(git add:*), WebSearch", None, ["web_search"], ["Bash(git add:*)"], ["so it gives no tool"]),
        ("Agent(worker), WebSearch", None, ["web_search"], ["Agent(worker)"], ["tools: Agent(worker)"]),
    ],
)
async def test_tools_that_are_taken_away_are_taken_whole_and_mistakes_are_listed(
    tmp_path: Path,
    tools: str | None,
    disallowed: str | None,
    found: Sequence[str],
    missing: Sequence[str],
    notes: Sequence[str],
) -> None:
    """A limit of arguments can't be half honoured."""
    fields = {"tools": tools, "disallowedTools": disallowed}
    define(tmp_path, "one", **{key: value for key, value in fields.items() if value})
    async with lead(tmp_path, {"lead": ScriptedModel()}, tools=("run_code", "web_search")) as (_, agent):
        shape = await shape_of(agent, "one")

    assert [name for name in shape["tools"] if name in ("run_code", "web_search")] == found or (
        tools is None and "run_code" not in shape["tools"] and "web_search" in shape["tools"]
    )
    assert (shape["missing"], shape["problem"]) == (missing, "")
    assert len(shape["notes"]) == len(notes) and all(map(str.__contains__, shape["notes"], notes))


@pytest.mark.parametrize("memory", ["own", "agent"])
async def test_the_skills_of_a_definition_are_read_at_once(tmp_path: Path, memory: str) -> None:
    """Those of its plug-in by their short names; notes tell which are not read, and a change is seen."""
    skills = "house, long, missing, quiet"
    define(tmp_path, "coder", "You write code.", skills=skills, memory=memory)
    define_kind(tmp_path, "skills", "house", "Use tabs.")
    define_kind(tmp_path, "skills", "long", "x" * 30_000)
    define_kind(tmp_path, "skills", "quiet", "Hush.", **{"disable-model-invocation": "true"})
    call = calls("run_helper", name="coder", prompt="Go")
    model = ScriptedModel(call, says("ok"), says("."), call, says("ok"), says("Done."))
    async with lead(tmp_path, {"lead": model}) as (_, agent):
        shape = await shape_of(agent, "coder")
        await agent.send("Go")
        write(tmp_path / "skills" / "house" / "SKILL.md", "---\ndescription: x\n---\nUse four blanks.")
        await agent.send("Go")

    first, second = (f"{model.requests[place].system}\n{model.requests[place].messages[0].text}" for place in (1, 4))
    assert "You write code.\n\nSkill house:\n\nUse tabs." in first and "xxx" not in first and "Hush" not in first
    assert "Use four blanks." in second and "Use tabs." not in second
    assert shape["prompt"] == "You write code.\n\nSkill house:\n\nUse tabs."
    assert [note.partition(": ")[2] for note in shape["notes"]] == [
        "long: it is too long to be read at once; `read_skill` reads it",
        "missing: there is no file of this skill",
        "quiet: only people may use it",
    ]


def test_a_helper_of_a_plugin_names_the_skills_of_its_plugin() -> None:
    """By their short names or whole ones; one that is the user's own comes first."""
    names = ("guard:rules", "rules", "guard:tone", "café")
    known = {
        name: Definition(kind="skills", name=name, layer="user", path=None, body=f"I am {name}.") for name in names
    }
    for skills, texts in {
        ("tone", "guard:rules"): ["guard:tone", "guard:rules"],
        ("rules",): ["rules"],
        ("cafe\u0301", "tone", "tone"): ["café", "guard:tone"],
    }.items():
        helper = Definition(
            kind="agents", name="guard:x", layer="plug-in", path=None, plugin="guard", fields={"skills": skills}
        )
        assert preload_skills(helper, known) == ([f"Skill {name}:\n\nI am {name}." for name in texts], [])


async def test_a_full_name_of_a_model_that_is_not_here_runs_and_tells_why(tmp_path: Path) -> None:
    """On the family at hand, or on the model of the agent that calls; stored with the run, and shown by `why`."""
    define(tmp_path, "one", model="claude-haiku-4-5-20251001")
    define(tmp_path, "two", model="opus[1m]")
    both = [calls("run_helper", name=name, prompt="Go") for name in ("one", "two")]
    models = {"lead": ScriptedModel(both[0], both[1], says("ok"), says("Done.")), "claude-haiku-5": ScriptedModel()}
    async with lead(tmp_path, models) as (perdure, agent):
        await agent.send("Go")
        routes = {route.name: route for route in await agent.helpers.routes()}
        runs = {run.options.helper: run for run in await ended_runs(perdure)}
        origin = await perdure.agent_of(None).why(runs["one"].id)

    reason = "the definition says claude-haiku-4-5-20251001, which is not here: the newest of the family haiku at test"
    assert (routes["one"].model, routes["one"].reason) == ("test/claude-haiku-5", reason)
    assert (runs["one"].options.model, runs["one"].options.model_reason) == ("test/claude-haiku-5", reason)
    assert origin.model_reason == reason  # type: ignore[union-attr]
    assert runs["two"].options.model == "test/lead"
    assert runs["two"].options.model_reason.startswith("the definition says opus[1m], and none of it is known")
