"""A folder of Claude Code with three agents, two commands, a skill and a plug-in with hooks works unchanged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Perdure
from perdure.core.errors import HookBlocked
from perdure.features.plugins.definitions import KINDS
from perdure.features.plugins.layers import find_definitions
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says

FOLDER = Path(__file__).parent / "claude_code"


def Write(text: str) -> str:
    """Write a text."""
    return f"wrote {text}"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A data folder of its own, and the folder of Claude Code beside it."""
    return Settings(home=str(tmp_path / "a home"), definitions=str(FOLDER / ".claude"), model="test/scripted")


@pytest.fixture
def guarded(settings: Settings) -> Iterator[Settings]:
    """The same with the plug-in, installed."""
    with Perdure(settings=settings) as store:
        contents = store.plugins.look(str(FOLDER / "guard"))
        store.plugins.install(str(FOLDER / "guard"), expected=contents.digest)
    yield settings


def test_its_definitions_are_read_as_they_are(settings: Settings) -> None:
    """With all of their fields; what has no effect here is noted, nothing is refused."""
    found = {kind: find_definitions(kind, settings, None, features=[]) for kind in KINDS}
    agents, commands, skills = (found[kind].by_name for kind in KINDS)

    assert not [problem for one in found.values() for problem in one.problems]
    assert [*agents] == ["code-reviewer", "debugger", "researcher"]
    assert [*commands] == ["fix-issue", "git:commit"] and [*skills] == ["pdf-forms"]
    reviewer, debugger = agents["code-reviewer"], agents["debugger"]
    assert reviewer.description.startswith("Expert code review specialist. Use this agent when: a change")
    assert reviewer.fields["tools"] == ("Read", "Grep", "Glob", "Bash") and reviewer.fields["model"] == "sonnet"
    assert reviewer.body.startswith("You are a senior code reviewer.\n\nWhen invoked:")
    assert debugger.fields["disallowed_tools"] == ("Bash",) and debugger.fields["max_turns"] == 12
    assert debugger.notes == ["line 13: 'permission_mode' is not known here, and has no effect"]
    assert commands["fix-issue"].fields["argument_hint"] == "[issue-number] [priority]"
    assert commands["fix-issue"].fields["disable_model_invocation"] is True
    assert commands["git:commit"].fields == {} and commands["git:commit"].body.endswith("$ARGUMENTS")
    folder = skills["pdf-forms"].folder
    assert folder is not None and (folder / "scripts" / "fields.py").is_file()


def test_as_a_project_it_works_the_same() -> None:
    """The same files in the layer of the project."""
    found = find_definitions("agents", Settings(home="/missing"), FOLDER, features=[])

    assert {one.layer for one in found.by_name.values()} == {"project"} and len(found.by_name) == 3


def test_its_plug_in_is_shown_and_then_used(guarded: Settings) -> None:
    """Helpers and commands have its name in front; what it would run is there word by word."""
    with Perdure(settings=guarded) as store:
        guard = store.plugins.get("guard")

    assert (guard.record.version, guard.unused, guard.problems) == ("2.1.0", "", [])
    assert [(hook.event, hook.matcher, hook.command, hook.timeout_s) for hook in guard.record.hooks] == [
        ("PreToolUse", "Bash|Write|mcp__.*", "${CLAUDE_PLUGIN_ROOT}/scripts/check.sh", 10),
        ("SessionStart", "", "echo Never print a key.", 60),
        ("UserPromptSubmit", "", "sh ${CLAUDE_PLUGIN_ROOT}/scripts/prompt.sh", 60),
    ]
    assert "guard:audit" in find_definitions("commands", guarded, None).by_name
    assert "guard:auditor" in find_definitions("agents", guarded, None).by_name


def test_its_hooks_block_and_add_context(guarded: Settings) -> None:
    """At the points that stand for their events; a matcher knows our tools by Claude Code's names. The data folder's
    path has a space, which commands that do not quote it survive."""
    script = [calls("run_code", code="print('hunter2')"), calls("Write", text="a poem"), says("Done.")]
    model = ScriptedModel(*script)
    with Perdure(settings=guarded, models={"test/scripted": model}, tools=[Write]) as store:
        agent = store.create_agent("ann", tools=["run_code", "Write"])
        reply = agent.send("go")
        results = [result.text for message in reply.messages for result in message.results]
        seen = "".join(message.text for message in model.requests[0].messages)
        with pytest.raises(HookBlocked, match="not today"):
            agent.send("stop")

    assert "the arguments hold a password" in results[0] and results[1] == "wrote a poem"
    assert "Never print a key." in seen


def test_a_disabled_plug_in_is_gone_at_once(guarded: Settings) -> None:
    """Also its hooks in a process that began before; removed, it leaves nothing in the data folder."""
    model = ScriptedModel(calls("Write", text="hunter2"), says("Done."), says("Yes."))
    with Perdure(settings=guarded, models={"test/scripted": model}, tools=[Write]) as store:
        agent = store.create_agent("ann", tools=["run_code", "Write"])
        store.plugins.disable("guard")
        reply = agent.send("stop")

        assert [result.text for message in reply.messages for result in message.results] == ["wrote hunter2"]
        assert find_definitions("agents", guarded, None).by_name.keys().isdisjoint({"guard:auditor"})
        store.plugins.remove("guard")
        assert not (guarded.folder / "plugins").exists()


def test_the_original_may_be_gone(guarded: Settings, tmp_path: Path) -> None:
    """A plug-in is a copy."""
    shutil.copytree(FOLDER / "guard", tmp_path / "other")
    with Perdure(settings=guarded) as store:
        contents = store.plugins.look(str(tmp_path / "other"))
        assert contents.installed == "2.1.0"
        store.plugins.install(str(tmp_path / "other"), expected=contents.digest)
        shutil.rmtree(tmp_path / "other")

        assert store.plugins.get("guard").definitions["agents"][0].body == "You look for secrets."
        assert sum(one.is_dir() for one in (guarded.folder / "plugins").iterdir()) == 1
