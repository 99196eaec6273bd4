"""Reads one file in the sandbox: no network, a user of its own, no file of this machine but libraries."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from perdure.converters.answers import document_of
from perdure.converters.limits import Limits, Refused
from perdure.core.documents import Document, FileKind
from perdure.core.errors import SandboxUnavailable
from perdure.core.tools.sandbox import Sandbox, SandboxJob, SandboxLimits, SandboxResult

__all__ = ["read_caged"]

SOURCE = """
def read(name, kind, limits):
    from perdure.converters.child import answer_to
    return answer_to(name, kind, limits)
"""

IMPORT = "import perdure.converters.child"

BYTES_OF_A_CHARACTER = 4
BESIDES_BYTES = 1 << 20
LINE_CHARS = 40
"""Of a line that tells progress."""

log = logging.getLogger(__name__)


async def read_caged(
    sandbox: Sandbox, name: str, kind: FileKind, file: Path, limits: Limits, progress: Callable[[int, int], None]
) -> Document:
    """The document of a file. Cancelled, it ends the process.

    Raises: SandboxUnavailable: this machine can't hold code back, or our own code can't be read in there; Refused:
        it was refused, or the process crashed, hung or said what it should not; ExtraMissing; OSError.
    """
    job = SandboxJob(
        source=SOURCE,
        function="read",
        arguments={"name": name, "kind": kind, "limits": asdict(limits)},
        input=file,
        owner=str(file),  # one that is slow keeps no other waiting
        limits=SandboxLimits(
            wall_s=limits.wall_s,
            cpu_s=limits.cpu_s,
            memory_mb=limits.memory_bytes >> 20,
            result_bytes=BYTES_OF_A_CHARACTER * limits.text_chars + BESIDES_BYTES,
            output_chars=LINE_CHARS * (limits.pages + 10),
        ),
    )

    def heard(line: str) -> None:
        with suppress(ValueError, TypeError):  # what a library prints is of no interest
            match json.loads(line[:LINE_CHARS]):
                case [int(done), int(total)]:
                    progress(done, total)

    result = await sandbox.run(job, lines=heard)
    # Only a job without the file is believed: a reader that the file has taken over must not have it read outside.
    if _lacks_our_code(result) and _lacks_our_code(await sandbox.run(SandboxJob(source=IMPORT, owner=job.owner))):
        log.warning("Perdure's own code can't be read in the sandbox: %s", result.error)
        raise SandboxUnavailable("Perdure's own code can't be read in there")
    if result.status != "success":
        raise _failure(result, limits)
    return document_of(result.value, name, kind, limits)


def _lacks_our_code(result: SandboxResult) -> bool:
    """Whether Perdure is installed so that only its owner can read it, as far as the result says."""
    return result.status == "error" and result.error.startswith("ModuleNotFoundError: No module named 'perdure")


def _failure(result: SandboxResult, limits: Limits) -> Exception:
    """Why there is no answer."""
    match result.status:
        case "timeout":
            return Refused(f"it took more than {limits.cpu_s:g} seconds of computing, or {limits.wall_s:g} in all")
        case "memory":
            return Refused(f"it needs more than {limits.memory_bytes:,} bytes of memory, the limit")
        case "crash":
            return Refused(f"reading it crashed the converter: {result.error}")
        case _:
            return Refused(f"reading it failed in the converter: {result.error}")
