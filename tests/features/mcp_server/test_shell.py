"""Shell commands that `index_output` runs: only where the server was started for it, and with an end."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import InvalidInput
from perdure.features.mcp_server import outputs as shell
from perdure.features.mcp_server.outputs import run_shell
from perdure.testing import InlineStore
from tests.features.mcp_server.clients import connected, opened, over_stdio, refused, said


async def test_commands_are_run_only_where_the_server_was_started_for_it(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        error = await refused(client, "index_output", command="echo hi")
        (tool,) = [one for one in (await client.list_tools()).tools if one.name == "index_output"]
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        with pytest.raises(InvalidInput, match="project's folder"):
            async with opened(perdure, None, runs_commands=True):
                pass

    assert "unknown 'command'" in error and "command" not in tool.input_schema["properties"]
    assert tool.annotations is not None and not tool.annotations.destructive_hint


async def test_a_command_runs_in_the_projects_folder_and_is_asked_of_later(tmp_path: Path) -> None:
    async with connected(tmp_path, runs_commands=True) as client:
        told = await said(client, "index_output", command="pwd; seq 5000; echo bad >&2; exit 3")
        found = await said(client, "search_output", output="output:1", grep="^(4321|bad)$")
        silent = await said(client, "index_output", command="true")
        killed = await said(client, "index_output", command="echo x; kill -9 $$")
        both = await refused(client, "index_output", command="true", text="x")
        odd = await refused(client, "index_output", command="echo \x00")
        tools = {one.name: one for one in (await client.list_tools()).tools}

    assert told.startswith("It ended with exit code 3.") and str(tmp_path / "project") in told
    assert "4321" in found and "bad" in found
    assert silent == "It ended with exit code 0. It printed nothing, so nothing is stored."
    assert killed.startswith("It was ended by signal 9.") and "give one of" in both and "can't be started" in odd
    annotations = tools["index_output"].annotations
    assert annotations is not None and annotations.destructive_hint and len(tools) == 12


async def test_other_tools_answer_while_a_command_runs(tmp_path: Path) -> None:
    async with connected(tmp_path, runs_commands=True) as client:
        slow = asyncio.create_task(
            said(client, "index_output", command="until [ -e go ]; do sleep 0.05; done; echo done")
        )
        await asyncio.sleep(0.1)
        await said(client, "memory_remember", text="meanwhile")
        (tmp_path / "project" / "go").touch()

        assert "done" in await slow


def is_running(file: Path) -> bool:
    """Whether the process whose number is in a file runs."""
    try:
        os.kill(int(file.read_text()), 0)
    except ProcessLookupError:
        return False
    return True


async def wait_for(condition: Callable[[], bool], seconds: float = 30) -> bool:
    """Wait until a condition holds, for so many seconds; return whether it does."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            return True
        await asyncio.sleep(0.02)
    return condition()


async def is_started(file: Path) -> bool:
    """Whether a process soon writes its number into a file."""
    return await wait_for(lambda: file.exists() and file.read_text().endswith("\n"))


async def ended(file: Path) -> bool:
    """Whether the process whose number is in a file ends soon."""
    return await wait_for(lambda: not is_running(file), 10)


LINE = "echo begun; sleep 300 & echo $! > pid; wait"


async def test_at_the_limit_of_time_all_that_was_started_ends(tmp_path: Path) -> None:
    done = await run_shell(LINE, tmp_path, limit_s=1)

    assert done.output == "begun\n" and done.end.startswith("It was stopped after 1 s")
    assert await ended(tmp_path / "pid")


async def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    done = await run_shell("sleep 300 > /dev/null 2>&1 & echo $! > pid", tmp_path)

    assert done.end == "It ended with exit code 0." and await ended(tmp_path / "pid")


async def test_a_line_has_ended_when_its_shell_has(tmp_path: Path) -> None:
    """Though something in the background holds its output open; what was printed is all there."""
    begin = time.monotonic()
    done = await run_shell("sleep 300 & echo $! > pid; seq 100000", tmp_path)

    assert done.end == "It ended with exit code 0." and done.output.endswith("99999\n100000\n")
    assert time.monotonic() - begin < 30 and await ended(tmp_path / "pid")


async def test_a_line_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    done = await run_shell("echo begun; exec >&- 2>&-; sleep 0.3; exit 3", tmp_path)

    assert (done.output, done.end) == ("begun\n", "It ended with exit code 3.")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("end", ["true", "sleep 300"])
async def test_what_left_the_group_of_a_command_ends_with_it(tmp_path: Path, end: str) -> None:
    """In a session of its own, with a parent that has ended."""
    line = (
        "(setsid sh -c 'echo $$ > pid; sleep 300 & wait' > /dev/null 2>&1 &); until [ -s pid ]; do sleep 0.01; done; "
    )
    await run_shell(line + end, tmp_path, limit_s=5)

    assert await ended(tmp_path / "pid")


async def test_a_call_that_is_cancelled_ends_its_command(tmp_path: Path) -> None:
    running = asyncio.create_task(run_shell(LINE, tmp_path))
    assert await is_started(tmp_path / "pid")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert await ended(tmp_path / "pid")


async def test_more_than_the_limit_is_read_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "OUTPUT_BYTES", 1_000)
    done = await run_shell("seq 100000; echo end > file", tmp_path)

    assert len(done.output) == 1_000 and "588,895 bytes, of which the first 1,000 are kept" in done.end
    assert (tmp_path / "file").exists()


async def test_a_client_that_leaves_ends_its_command(tmp_path: Path) -> None:
    """Over stdio, as started with `--allow-run`."""
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    async with over_stdio(home, "--project", str(project), "--allow-run") as client:
        call = asyncio.create_task(client.call_tool("index_output", {"command": LINE}))
        assert await is_started(project / "pid")
        assert is_running(project / "pid")
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

        assert await ended(project / "pid")
        answer = await said(client, "index_output", command="echo again")
    async with over_stdio(home, "--project", str(project), "--allow-run") as client:
        (project / "pid").unlink()
        call = asyncio.create_task(client.call_tool("index_output", {"command": LINE}))
        assert await is_started(project / "pid")
        call.cancel()

    assert "again" in answer and await ended(project / "pid")
