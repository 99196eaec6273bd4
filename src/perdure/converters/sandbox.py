"""Read one file in the sandbox: no network, a user of its own, no file of this machine except libraries."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from perdure.converters.child import document_of
from perdure.converters.limits import Limits, Refusal
from perdure.core.documents import Document, FileKind
from perdure.core.errors import SandboxUnavailable
from perdure.core.tools.sandbox import Sandbox, SandboxJob, SandboxLimits, SandboxResult

SOURCE = """
def read(name, kind, limits):
    from perdure.converters.child import answer_to
    return answer_to(name, kind, limits)
"""

IMPORT = "import perdure.converters.child"

LINE_CHARS = 40
"""The length of a line of progress."""

log = logging.getLogger(__name__)


async def read_in_sandbox(
    sandbox: Sandbox, name: str, kind: FileKind, file: Path, limits: Limits, progress: Callable[[int, int], None]
) -> Document:
    """The document of a file. A cancellation ends the process.

    Raises: SandboxUnavailable: this machine can't hold code back, or our own code can't be read in there; Refusal:
        it was refused, or the process crashed, hung or said what it should not; ExtraMissing; OSError.
    """
    job = SandboxJob(
        source=SOURCE,
        function="read",
        arguments={"name": name, "kind": kind, "limits": asdict(limits)},
        input=file,
        owner=str(file),  # each file has its own share, so a slow one delays no other
        limits=SandboxLimits(
            wall_s=limits.wall_s,
            cpu_s=limits.cpu_s,
            memory_mb=limits.memory_bytes >> 20,
            result_bytes=limits.answer_bytes,
            output_chars=LINE_CHARS * (limits.pages + 10),
        ),
    )

    def read_progress(line: str) -> None:
        with suppress(ValueError, TypeError):  # output of libraries is ignored
            match json.loads(line[:LINE_CHARS]):
                case [int(done), int(total)]:
                    progress(done, total)

    result = await sandbox.run(job, lines=read_progress)
    # Only a job without the file is believed: a reader that the file has taken over must not have it read outside.
    if _lacks_our_code(result) and _lacks_our_code(await sandbox.run(SandboxJob(source=IMPORT, owner=job.owner))):
        log.warning("Perdure's own code can't be read in the sandbox: %s", result.error)
        raise SandboxUnavailable("Perdure's own code can't be read in there")
    if result.status != "success":
        raise _failure(result, limits)
    return await asyncio.to_thread(document_of, result.value, name, kind, limits)  # it may be long


def _lacks_our_code(result: SandboxResult) -> bool:
    """Whether Perdure is installed so that only its owner can read it, as far as the result says."""
    return result.status == "error" and result.error.startswith("ModuleNotFoundError: No module named 'perdure")


def _failure(result: SandboxResult, limits: Limits) -> Exception:
    """The error of a failed job."""
    match result.status:
        case "timeout":
            return Refusal(f"it took more than {limits.cpu_s:g} seconds of computing, or {limits.wall_s:g} in all")
        case "memory":
            return Refusal(f"it needs more than {limits.memory_bytes:,} bytes of memory, the limit")
        case "crash":
            return Refusal(f"reading it crashed the converter: {result.error}")
        case _:
            return Refusal(f"reading it failed in the converter: {result.error}")
