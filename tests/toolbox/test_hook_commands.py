"""Commands as hooks: what they are given, what they may answer, and that none of them hurts more than itself."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.app import configured_hooks
from perdure.cli.commands.doctor import hooks_check
from perdure.core.errors import InvalidInput
from perdure.core.hooks import BeforeTool, RunEnd, Verdict
from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.engine.hooks import HookOutcome, Hooks
from perdure.settings import Settings
from perdure.toolbox.hook_commands import command_hooks
from tests.support.loops import new_loop

PAYLOAD = BeforeTool(
    agent_id=AgentId("agent-1"),
    conversation_id=ConversationId("conv-1"),
    run_id=RunId("run-1"),
    call_id="call-1",
    tool="pay",
    kind="function",
    arguments={"amount": 5, "to": "Ünal"},
)


def configured(folder: Path, command: str | Sequence[str], **more: Any) -> Hooks:
    """The hooks of a file that names one command."""
    lines = [
        f"{name} = {json.dumps(value)}" for name, value in {"on": ["before_tool"], "command": command, **more}.items()
    ]
    (folder / "hooks.toml").write_text("[[hook]]\n" + "\n".join(lines) + "\n")
    return Hooks(command_hooks(folder / "hooks.toml"))


async def fire(folder: Path, command: str | Sequence[str], **more: Any) -> HookOutcome:
    return await configured(folder, command, **more).fire(PAYLOAD)


async def test_a_command_gets_json_in_its_own_folder(tmp_path: Path) -> None:
    """All of the payload on stdin, the point as a variable, and of the environment only what it needs or names."""
    os.environ["PERDURE_TEST_KEY"], os.environ["PERDURE_TEST_TOKEN"] = "secret", "given"
    try:
        await fire(tmp_path, "cat > told.json; env > env.txt", environment=["PERDURE_TEST_TOKEN"], name="note")
    finally:
        del os.environ["PERDURE_TEST_KEY"], os.environ["PERDURE_TEST_TOKEN"]
    variables = dict(line.split("=", 1) for line in (tmp_path / "env.txt").read_text().splitlines() if "=" in line)

    assert json.loads((tmp_path / "told.json").read_text()) == {
        "point": "before_tool",
        "agent_id": "agent-1",
        "conversation_id": "conv-1",
        "run_id": "run-1",
        "call_id": "call-1",
        "tool": "pay",
        "kind": "function",
        "arguments": {"amount": 5, "to": "Ünal"},
    }
    assert variables["PERDURE_HOOK"] == "note" and variables["PERDURE_HOOK_POINT"] == "before_tool"
    assert variables["PERDURE_TEST_TOKEN"] == "given" and "PERDURE_TEST_KEY" not in variables and "PATH" in variables


@pytest.mark.parametrize(
    ("command", "block", "context"),
    [
        ("exit 0", None, None),
        ("echo all is well", None, None),
        ("echo too dear >&2; exit 2", "too dear", None),
        ("exit 2", "it gives no reason", None),
        ("""echo '{"decision": "block", "reason": "not now"}'""", "not now", None),
        ("""echo '{"context": "be careful"}'""", None, "be careful"),
        ("""echo '{"decision": "go_on", "reason": "fine"}'""", None, None),
        (["/bin/sh", "-c", "exec 1>&-; exit 2"], "it gives no reason", None),
    ],
)
async def test_what_a_command_may_answer(tmp_path: Path, command: Any, block: str | None, context: str | None) -> None:
    """By its exit code, or by JSON on stdout; what is not JSON is chatter."""
    (hook,) = command_hooks(_write_hooks(tmp_path, command))

    assert await hook(PAYLOAD) == Verdict(block=block, context=context)


def _write_hooks(folder: Path, command: Any) -> Path:
    configured(folder, command)
    return folder / "hooks.toml"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo oh no >&2; exit 1", "it ended with exit code 1: oh no"),
        ("kill -9 $$", "it ended with signal 9"),
        ("echo '{\"decision\": '", "its answer is not JSON"),
        ("""echo '{"decision": "maybe"}'""", "its answer is not"),
        ("""echo '{"context": ["a"]}'""", "its answer is not"),
        (["/no/such/program"], "FileNotFoundError"),
    ],
)
async def test_what_a_command_may_not_answer_is_a_failure(tmp_path: Path, command: Any, why: str) -> None:
    """Open by default, closed where that was set; told either way."""
    passed, failed = await fire(tmp_path, command), await fire(tmp_path, command, if_it_fails="block")

    assert passed.blocked is None and why in passed.events[0].text
    assert failed.blocked is not None and why in failed.blocked.reason


async def test_a_command_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    """Its whole process group, so that nothing goes on behind its back."""
    command = "(sleep 600; touch late) & echo $! > child; sleep 600"
    outcome = await fire(tmp_path, command, timeout_s=0.5)

    assert "it took more than 0.5 s" in outcome.events[0].text
    assert await _is_gone(int((tmp_path / "child").read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("command", ["yes & yes", "setsid sh -c 'echo $$ >> away; exec sleep 600' & sleep 600"])
def test_a_command_that_hangs_is_not_waited_for_through_its_pipes(tmp_path: Path, command: str, loop: str) -> None:
    """Neither when more was written than is ever read, nor when a process that got away holds them."""

    async def three_times() -> list[str]:
        return [(await fire(tmp_path, command, timeout_s=0.1)).events[0].text for _ in range(3)]

    try:
        with asyncio.Runner(loop_factory=lambda: new_loop(loop)) as runner:
            texts = runner.run(three_times())
    finally:
        for written in tmp_path.glob("away"):
            for pid in written.read_text().split():
                os.kill(int(pid), signal.SIGKILL)

    assert all("it took more than 0.1 s" in text for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_command_need_not_read_its_input(tmp_path: Path, loop: str) -> None:
    """One that ends at once has not failed, on either loop."""

    async def many_times() -> list[str]:
        hooks = configured(tmp_path, "echo done")
        return [event.text for _ in range(20) for event in (await hooks.fire(PAYLOAD)).events]

    with asyncio.Runner(loop_factory=lambda: new_loop(loop)) as runner:
        texts = runner.run(many_times())

    assert not [text for text in texts if "failed" in text or "unable" in text]


async def test_what_a_command_leaves_behind_is_ended_too(tmp_path: Path) -> None:
    """One that answers and leaves a child in the background has not gained a daemon."""
    outcome = await fire(tmp_path, "sleep 60 >/dev/null 2>&1 & echo $! > child")

    assert outcome == HookOutcome()
    assert await _is_gone(int((tmp_path / "child").read_text()))


def _stat(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text()


async def _is_gone(pid: int) -> bool:
    for _ in range(200):
        try:
            state = _stat(pid).rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in ("Z", "X"):
            return True
        await asyncio.sleep(0.02)
    return False


async def test_much_output_is_cut_and_stops_nobody(tmp_path: Path) -> None:
    """More than a pipe holds, on both, and stdin unread."""
    flood = shlex.quote("import sys; sys.stdout.write('x' * 3_000_000); sys.stderr.write('y' * 3_000_000); sys.exit(2)")
    outcome = await fire(tmp_path, f"{shlex.quote(sys.executable)} -c {flood}", timeout_s=30)

    assert outcome.blocked is not None and len(outcome.blocked.reason) == 2_000


async def test_an_answer_that_nests_too_deeply_is_not_parsed(tmp_path: Path) -> None:
    """It fails as one that is not JSON does, whatever the parser could bear."""
    deep = shlex.quote("print('{\"a\":' * 500 + '1' + '}' * 500)")
    outcome = await fire(tmp_path, f"{shlex.quote(sys.executable)} -c {deep}", if_it_fails="block", timeout_s=30)

    assert outcome.blocked is not None and outcome.events[0].outcome == "failed"


async def test_a_hook_for_some_tools_is_not_called_for_others(tmp_path: Path) -> None:
    """By patterns of their names; points without a tool are not touched by them."""
    hooks = configured(tmp_path, "echo no >&2; exit 2", tools=["read_*"], on=["before_tool", "run_end"])
    end = RunEnd(
        agent_id=PAYLOAD.agent_id, conversation_id=PAYLOAD.conversation_id, stop_reason="x", text="", error=None
    )

    assert (await hooks.fire(PAYLOAD)) == HookOutcome()
    assert (await hooks.fire(end)).events[0].outcome == "failed"  # called, but nothing is blocked there


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[hook]\n", "is not TOML"),
        ("[other]\n", "only [[hook]] tables are known there, not other"),
        ("[[hook]]\non = ['run_end']\n", "command is a text for the shell"),
        ("[[hook]]\ncommand = 'x'\n", "a hook needs a point"),
        ("[[hook]]\ncommand = 'x'\non = ['lunch']\n", "'lunch' is not a point"),
        ("[[hook]]\ncommand = 'x'\non = 'run_end'\nspeed = 1\n", "'speed' is not known"),
        ("[[hook]]\ncommand = 'x'\non = 'run_end'\ntimeout_s = 'long'\n", "timeout_s is a number"),
        ("[[hook]]\ncommand = [1]\non = 'run_end'\n", "command is a list of texts"),
        ("[[hook]]\ncommand = 'x'\non = 'run_end'\nif_it_fails = 'cry'\n", "'go_on' or 'block'"),
    ],
)
def test_a_file_that_can_not_be_meant_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """When the store is opened: a hook that forbids must not be left out silently."""
    (tmp_path / "hooks.toml").write_text(text)

    with pytest.raises(InvalidInput) as refused:
        command_hooks(tmp_path / "hooks.toml")

    assert why in str(refused.value) and str(tmp_path / "hooks.toml") in str(refused.value)


def test_a_file_that_anybody_may_change_is_refused(tmp_path: Path) -> None:
    """It runs commands as the server's user."""
    configured(tmp_path, "true")
    (tmp_path / "hooks.toml").chmod(0o666)

    with pytest.raises(InvalidInput, match="chmod o-w"):
        command_hooks(tmp_path / "hooks.toml")


def test_which_file_counts(tmp_path: Path) -> None:
    """The data folder's, for the store there; the one that is set; or none at all."""
    configured(tmp_path, "true", name="mine")
    home = Settings(home=str(tmp_path))

    assert [hook.info.name for hook in configured_hooks(home)] == ["mine"]
    file = tmp_path / "hooks.toml"
    file.write_text(f"\ufeff{file.read_text()}")  # as some editors begin a file
    assert [hook.info.name for hook in configured_hooks(home)] == ["mine"]
    assert configured_hooks(home, at_home=False) == []
    assert configured_hooks(Settings(home=str(tmp_path), hooks="none")) == []
    assert [hook.info.name for hook in configured_hooks(Settings(hooks=str(tmp_path / "hooks.toml")), at_home=False)]
    with pytest.raises(InvalidInput, match="there is no such file"):
        configured_hooks(Settings(hooks=str(tmp_path / "other.toml")))


def test_two_hooks_of_one_name_are_refused(tmp_path: Path) -> None:
    """Naming both places; hooks without a name may be alike."""
    file = tmp_path / "hooks.toml"
    table = '[[hook]]\non = "run_end"\ncommand = "true"\n'
    file.write_text(table + table)
    assert len(command_hooks(file)) == 2
    file.write_text(table + table + 'name = "note"\n' + table + 'name = "note"\n')

    with pytest.raises(InvalidInput, match="hooks 2 and 3 are both called 'note'"):
        command_hooks(file)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["no-such-program", "x"], False),
        (["/no/such/program"], False),
        ("/no/such/program x", False),
        ("./absent.sh", False),
        (["./there.sh"], True),
        (["sh", "-c", "exit 0"], True),
        ("no-such-program || true", True),
        ("/bin/sh -c 'exit 0'", True),
    ],
)
def test_a_command_that_is_not_there_is_noticed(tmp_path: Path, command: str | list[str], expected: bool) -> None:
    """As far as that can be seen without running it: what a shell makes of a text is its own business."""
    (tmp_path / "there.sh").write_text("#!/bin/sh\n")
    (tmp_path / "there.sh").chmod(0o755)
    file = tmp_path / "hooks.toml"
    file.write_text(f'[[hook]]\non = "run_end"\ncommand = {json.dumps(command)}\n')
    (hook,) = command_hooks(file)

    assert (hook.problem == "") is expected
    assert ("broken" in str(hooks_check(Settings(home=str(tmp_path))))) is not expected
