"""Programs that lead a process group: however early their start is cancelled, nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from pathlib import Path

import pytest

from perdure.toolbox.processes import start_group
from tests.support.loops import new_loop


def _runs(word: str) -> bool:
    """Whether a program with this word in its command line runs."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes():
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("cancels", [1, 2])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_start_that_is_cancelled_leaves_no_program(tmp_path: Path, loop: str, cancels: int) -> None:
    """The program and its children are gone, and its transport is closed, before the caller goes on."""
    word = f"{tmp_path.name}-{loop}-{cancels}"

    async def cancel_early(steps: int) -> bool:
        pipe = asyncio.subprocess.PIPE
        start = asyncio.create_task(
            start_group("/bin/sh", "-c", f"sleep 60 & sleep 60 # {word}", stdin=pipe, stdout=pipe, stderr=pipe)
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        for _ in range(cancels):
            start.cancel()
            await asyncio.sleep(0)
        with contextlib.suppress(asyncio.CancelledError):
            await start
        return start.cancelled()

    with asyncio.Runner(loop_factory=lambda: new_loop(loop)) as runner:
        cancelled = [runner.run(cancel_early(steps)) for steps in (1, 2, 3, 5)]
    gc.collect()

    assert all(cancelled)
    assert not _runs(word)
