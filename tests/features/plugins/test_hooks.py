"""Hooks of plug-ins: what their commands are told, and what their answers mean."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.core.hooks import GO_ON, AfterTool, BeforeTool, HookMessage, HookPayload, RunStart, Verdict
from perdure.core.ids import AgentId, ConversationId
from perdure.features.plugins.hooks import plugin_hooks
from perdure.settings import Settings
from perdure.toolbox.hook_commands import CommandFailed
from tests.features.plugins.files import write

IDS: dict[str, Any] = {"agent_id": AgentId("agent-1"), "conversation_id": ConversationId("conv-1")}


def before(tool: str, **arguments: object) -> BeforeTool:
    """A tool that is about to be run."""
    return BeforeTool(**IDS, call_id="1", tool=tool, kind="function", arguments=arguments)


async def answer(home: Path, hook: Mapping[str, object], payload: HookPayload) -> Verdict:
    """The verdict of a hook of an installed plug-in."""
    write(home / "plugins" / "x" / "README.md", "x")
    write(home / "plugins" / "plugins.json", json.dumps({"x": {"hooks": [hook]}}))
    (one,) = plugin_hooks(Settings(home=str(home)))
    return await one(payload)


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("true", GO_ON),
        ("echo not json", GO_ON),
        ("echo why >&2; exit 2", Verdict(block="why")),
        ("exit 2", Verdict(block="it gives no reason")),
        ('echo \'{"decision": "block", "reason": "no"}\'', Verdict(block="no")),
        ('echo \'{"decision": "approve"}\'', GO_ON),
        ('echo \'{"continue": false, "stopReason": "end"}\'', Verdict(block="end")),
        (
            'echo \'{"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}}\'',
            Verdict(block="no"),
        ),
        ('echo \'{"hookSpecificOutput": {"permissionDecision": "ask"}}\'', Verdict(block="it gives no reason")),
        ('echo \'{"hookSpecificOutput": {"permissionDecision": "allow"}}\'', GO_ON),
        ('echo \'{"hookSpecificOutput": {"additionalContext": "know"}}\'', Verdict(context="know")),
    ],
)
async def test_an_answer_means_what_it_means_in_claude_code(tmp_path: Path, command: str, verdict: Verdict) -> None:
    """By its exit code, or by the object that it prints. What asks a person there blocks here."""
    assert await answer(tmp_path, {"event": "PreToolUse", "command": command}, before("x")) == verdict


@pytest.mark.parametrize("command", ["exit 1", "echo '{'", 'echo \'{"reason": 1, "decision": "block"}\'', "kill -9 $$"])
async def test_a_command_that_fails_has_no_verdict(tmp_path: Path, command: str) -> None:
    """The engine goes on, and says so in its log."""
    with pytest.raises(CommandFailed):
        await answer(tmp_path, {"event": "PreToolUse", "command": command}, before("x"))


async def test_a_command_is_told_the_event_as_claude_code_tells_it(tmp_path: Path) -> None:
    """With the names of tools that it has there, and with few variables."""
    show = {"command": 'cat > event.json; env > env.txt; test -f "$CLAUDE_PLUGIN_ROOT/README.md" && exit 2'}
    folder, home = tmp_path / "home" / "plugins" / "x", tmp_path / "home"
    call: dict[str, Any] = {**IDS, "call_id": "1", "kind": "function", "arguments": {"code": "1"}}
    done = AfterTool(**call, tool="run_code", status="error", result="no")
    assert (await answer(home, {"event": "PostToolUse", **show}, done)).block
    event = json.loads((folder / "event.json").read_text())
    assert event["hook_event_name"] == "PostToolUse" and event["tool_name"] == "Bash" and event["tool"] == "run_code"
    assert event["tool_input"] == {"code": "1"} and event["tool_response"] == {"success": False, "output": "no"}
    assert event["session_id"] == "conv-1" and event["cwd"] == str(folder)

    start = RunStart(**IDS, messages=(HookMessage("user", "hi"), HookMessage("system", "x")), background=False)
    await answer(home, {"event": "UserPromptSubmit", **show}, start)
    assert json.loads((folder / "event.json").read_text())["prompt"] == "hi"
    assert "PYTEST_CURRENT_TEST" not in (folder / "env.txt").read_text()


async def test_what_is_printed_before_a_run_is_context(tmp_path: Path) -> None:
    """As in Claude Code; after a tool it is not."""
    start = RunStart(**IDS, messages=(), background=False)

    assert await answer(tmp_path, {"event": "UserPromptSubmit", "command": "echo hi"}, start) == Verdict(context="hi")


@pytest.mark.parametrize(
    ("matcher", "tool", "called"),
    [
        ("", "x", True),
        ("*", "x", True),
        ("Bash", "run_code", True),
        ("run_code", "run_code", True),
        ("Bash|Write", "Write", True),
        ("Bash", "run_code_with_tools", False),
        ("mcp__shop__.*", "shop__buy", True),
        ("mcp__mem__.*", "x-mem__add", True),
        ("mcp__plugin_x_mem__add", "x-mem__add", True),
        ("mcp__.*", "memory_insert", False),
        (".*", "x", True),
    ],
)
async def test_a_matcher_chooses_tools(tmp_path: Path, matcher: str, tool: str, called: bool) -> None:
    """By their names here or in Claude Code, whole."""
    verdict = await answer(tmp_path, {"event": "PreToolUse", "matcher": matcher, "command": "exit 2"}, before(tool))

    assert (verdict.block is not None) == called


async def test_a_matcher_that_takes_for_ever_matches(tmp_path: Path) -> None:
    """It is given up after a moment, since the hook may be there to forbid something."""
    hook = {"event": "PreToolUse", "matcher": "(a|aa)+c", "command": "exit 2"}
    start = time.process_time()
    verdict = await answer(tmp_path, hook, before("a" * 60))

    assert verdict.block is not None and time.process_time() - start < 1


async def test_a_hook_blocks_where_it_can_not_be_told_whether_it_holds(tmp_path: Path) -> None:
    """A guard does not go away because a file is broken."""
    write(tmp_path / "plugins" / "x" / "README.md", "x")
    hook = {"event": "PreToolUse", "matcher": "", "command": "exit 2"}
    write(tmp_path / "plugins" / "plugins.json", json.dumps({"x": {"hooks": [hook]}}))
    (one,) = plugin_hooks(Settings(home=str(tmp_path)))
    write(tmp_path / "plugins" / "plugins.json", "{")

    verdict = await one(before("pay", amount=5))

    assert verdict.block and "plugins.json" in verdict.block
