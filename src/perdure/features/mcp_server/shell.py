"""Shell lines that a client has run, where the person who started the server allows it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from perdure.core.errors import ToolError
from perdure.features.mcp_server.outputs import OUTPUT_BYTES
from perdure.toolbox.processes import end_group, start_group

SHELL_S = 600.0


@dataclass(frozen=True, slots=True)
class ShellRun:
    """A shell line with what it printed, and a sentence that says how it ended."""

    line: str
    output: str
    end: str


async def run_shell(line: str, folder: Path, *, limit_s: float = SHELL_S) -> ShellRun:
    """Run a line with `/bin/sh` in a folder. All that it started ends with it: at its end, at the limit of time, and
    when the caller is cancelled. Raises: ToolError: it can't be started."""
    # In a task of its own: the SDK cancels a call again at each wait, and ending the processes needs some.
    running = asyncio.ensure_future(_run(line, folder, limit_s))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.cancel()
        raise


async def _run(line: str, folder: Path, limit_s: float) -> ShellRun:
    pipe, merged, empty = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT, asyncio.subprocess.DEVNULL
    try:
        process = await start_group("/bin/sh", "-c", line, cwd=folder, stdin=empty, stdout=pipe, stderr=merged)
    except (OSError, ValueError) as error:
        raise ToolError(f"the command can't be started ({error})") from error
    assert process.stdout is not None
    output, size = bytearray(), 0
    try:
        async with asyncio.timeout(limit_s):
            while piece := await process.stdout.read(65_536):
                size += len(piece)  # what is too much is read and thrown away, so that the command goes on
                output += piece[: OUTPUT_BYTES - len(output)]
            code = await process.wait()
        end = f"It ended with exit code {code}." if code >= 0 else f"It was ended by signal {-code}."
    except TimeoutError:
        end = f"It was stopped after {limit_s:g} s; this is what it printed until then."
    finally:
        await end_group(process)
    if size > OUTPUT_BYTES:
        end += f" It printed {size:,} bytes, of which the first {OUTPUT_BYTES:,} are kept."
    return ShellRun(line, output.decode("utf-8", "replace"), end)
