"""Start child programs as process groups, and end them with all that they started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from perdure.core.tasks import to_the_end

_ROUNDS, _ROUND_WAIT_S = 100, 0.01


async def start_group(*command: str, **options: Any) -> asyncio.subprocess.Process:
    """Start a program as the leader of a process group; `options` are those of `asyncio.create_subprocess_exec`.

    If the start is cancelled, the program is still waited for and ended: asyncio may have started it already.
    Raises: OSError.
    """
    start = asyncio.ensure_future(asyncio.create_subprocess_exec(*command, start_new_session=True, **options))
    try:
        return await to_the_end(start)
    except asyncio.CancelledError:
        if start.exception() is None:
            await to_the_end(end_group(start.result()))
        raise


async def end_group(process: asyncio.subprocess.Process) -> None:
    """Kill a program and the rest of its process group, and wait for the program.

    `Process.wait` also waits for the end of the pipes. That may never come: a process that left the group can hold one
    open, and a pipe with much unread output is not read to its end. So the pipes are closed first.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    transport = process._transport  # type: ignore[attr-defined]  # the pipes of its output are not public
    stdin = transport.get_pipe_transport(0)
    if stdin is not None and (stdin.get_write_buffer_size() or not stdin.is_closing()):
        stdin.abort()  # closing would wait until the rest is read
    for fd in (1, 2):
        if (pipe := transport.get_pipe_transport(fd)) is not None:
            pipe.close()
    await process.wait()
    transport.close()  # uvloop's stays open until its pipes have ended


def end_marked(variable: str) -> None:
    """Kill all processes that were started with an environment variable, `NAME=value`, and so all that inherited it,
    whatever group or session they made for themselves. It needs Linux; elsewhere nothing happens.
    """
    if not hasattr(os, "pidfd_open"):
        return
    for _ in range(_ROUNDS):  # what starts others meanwhile leaves those to the next round
        alive = False
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                process = os.pidfd_open(int(folder.name))
                try:
                    if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                        alive = True
                finally:
                    os.close(process)
        if not alive:
            return
        time.sleep(_ROUND_WAIT_S)
