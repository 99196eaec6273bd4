"""Shell lines that a client has run, where the person who started the server allows it."""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from perdure.core.errors import ToolError
from perdure.features.mcp_server.outputs import OUTPUT_BYTES
from perdure.toolbox.processes import end_group, end_marked, start_group

SHELL_S, OUTPUT_S, POLL_S = 600.0, 0.5, 0.05
"""The most time of a line, and what it leaves to read when its shell has ended; how often its end is looked for."""
MARK = "PERDURE_COMMAND"


@dataclass(frozen=True, slots=True)
class ShellRun:
    """A shell line with what it printed, and a sentence that says how it ended."""

    line: str
    output: str
    end: str


async def run_shell(line: str, folder: Path, *, limit_s: float = SHELL_S) -> ShellRun:
    """Run a line with `/bin/sh` in a folder. It has ended when the shell has; what it left in the background ends with
    it, as at the limit of time, and when the caller is cancelled: its process group, and on Linux what left that and
    still has the variable `PERDURE_COMMAND` from its start. Raises: ToolError: it can't be started."""
    # In a task of its own: the SDK cancels a call again at each wait, and ending the processes needs some.
    running = asyncio.ensure_future(_run(line, folder, limit_s))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.cancel()
        raise


async def _run(line: str, folder: Path, limit_s: float) -> ShellRun:
    pipe, merged, empty = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT, asyncio.subprocess.DEVNULL
    mark = secrets.token_hex()
    ours = {**os.environ, MARK: mark}
    try:
        process = await start_group(
            "/bin/sh", "-c", line, cwd=folder, env=ours, stdin=empty, stdout=pipe, stderr=merged
        )
    except (OSError, ValueError) as error:
        raise ToolError(f"the command can't be started ({error})") from error
    assert process.stdout is not None
    printed = _Printed(bytearray())
    reading = asyncio.ensure_future(printed.read(process.stdout))
    try:
        async with asyncio.timeout(limit_s):
            while process.returncode is None:  # `wait` also waits for all that still hold the pipe
                await asyncio.wait((reading,), timeout=POLL_S)
                await asyncio.sleep(POLL_S if reading.done() and process.returncode is None else 0)
            await asyncio.wait((reading,), timeout=OUTPUT_S)
        code = process.returncode
        end = f"It ended with exit code {code}." if code >= 0 else f"It was ended by signal {-code}."
    except TimeoutError:
        end = f"It was stopped after {limit_s:g} s; this is what it printed until then."
    finally:
        reading.cancel()
        await end_group(process)
        await asyncio.to_thread(end_marked, f"{MARK}={mark}")
    if printed.size > OUTPUT_BYTES:
        end += f" It printed {printed.size:,} bytes, of which the first {OUTPUT_BYTES:,} are kept."
    return ShellRun(line, printed.kept.decode("utf-8", "replace"), end)


@dataclass(slots=True)
class _Printed:
    """What a line prints: the bytes that are kept, and how many there were."""

    kept: bytearray
    size: int = 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read to the end; what is too much is thrown away, so that the command goes on."""
        while piece := await stream.read(65_536):
            self.size += len(piece)
            self.kept += piece[: OUTPUT_BYTES - len(self.kept)]
