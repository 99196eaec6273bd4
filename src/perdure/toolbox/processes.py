"""Programs that are started for a while: their start and their end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Any


async def start_group(*command: str, **options: Any) -> asyncio.subprocess.Process:
    """Start a program as the leader of a process group; `options` are those of `asyncio.create_subprocess_exec`.

    A start that is cancelled is waited for, and the program ended: asyncio may have started it already, and nobody
    else could end its group.
    Raises: OSError.
    """
    start = asyncio.ensure_future(asyncio.create_subprocess_exec(*command, start_new_session=True, **options))
    try:
        return await asyncio.shield(start)
    except asyncio.CancelledError:
        await asyncio.wait((start,))
        if start.exception() is None:
            await end_group(start.result())
        raise


async def end_group(process: asyncio.subprocess.Process) -> None:
    """Kill a program that leads a process group, and all that is left of the group; wait for the program alone.

    `Process.wait` waits for the end of the pipes too. That may never come: a process that has left the group can hold
    one, and one of which a lot was not read is not read to its end any more.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    transport = process._transport  # type: ignore[attr-defined]  # nothing public leads to the pipes of its output
    stdin = transport.get_pipe_transport(0)
    if stdin is not None and (stdin.get_write_buffer_size() or not stdin.is_closing()):
        stdin.abort()  # closed, it would wait for somebody to read what is left
    for fd in (1, 2):
        if (pipe := transport.get_pipe_transport(fd)) is not None:
            pipe.close()
    await process.wait()
    transport.close()  # uvloop's stays open until its pipes have ended
