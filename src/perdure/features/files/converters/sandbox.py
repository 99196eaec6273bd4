"""Read one file in a process of its own: in the sandbox, or where there is none in a child process with limits."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from perdure.core.documents import Document, FileKind
from perdure.core.errors import SandboxUnavailable
from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.core.tools.sandbox import Sandbox, SandboxJob, SandboxLimits, SandboxResult
from perdure.features.files.converters.child import MALFORMED, document_of
from perdure.features.files.converters.limits import FileUnreadable, ReadLimits

SOURCE = """
def read(name, kind, limits):
    from perdure.features.files.converters.child import answer_to
    return answer_to(name, kind, limits)
"""

IMPORT = "import perdure.features.files.converters.child"

LINE_CHARS = 40
"""The length of a line of progress."""

log = logging.getLogger(__name__)


async def read_in_sandbox(
    sandbox: Sandbox, name: str, kind: FileKind, file: Path, limits: ReadLimits, progress: Callable[[int, int], None]
) -> Document:
    """The document of a file. A cancellation ends the process.

    Raises: SandboxUnavailable: this machine can't hold code back, or our own code can't be read in there;
    FileUnreadable:
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


def _failure(result: SandboxResult, limits: ReadLimits) -> Exception:
    """The error that says why a job without success failed."""
    match result.status:
        case "timeout":
            return FileUnreadable(
                f"it took more than {limits.cpu_s:g} seconds of computing, or {limits.wall_s:g} in all"
            )
        case "memory":
            return FileUnreadable(f"it needs more than {limits.memory_bytes:,} bytes of memory, the limit")
        case "crash":
            return FileUnreadable(f"reading it crashed the converter: {result.error}")
        case _:
            return FileUnreadable(f"reading it failed in the converter: {result.error}")


async def read_in_child(
    name: str, kind: FileKind, file: Path, limits: ReadLimits, progress: Callable[[int, int], None]
) -> Document:
    """The document of a file. A cancellation ends the process.

    Raises: FileUnreadable: it was refused, or the process crashed, hung or said too much; ExtraMissing; OSError.
    """
    process = _start(name, kind, file, limits)
    try:
        # asyncio's own subprocesses wait for the end of the pipe too, which a process that the child leaves can hold.
        async with asyncio.timeout(limits.wall_s):
            return await _read_answer(process, name, kind, limits, progress)
    except TimeoutError as error:
        raise FileUnreadable(f"it took longer than {limits.wall_s:g} seconds, the limit") from error
    finally:
        process.kill()
        process.wait()


def _start(name: str, kind: FileKind, file: Path, limits: ReadLimits) -> subprocess.Popen[bytes]:
    """Start the process with the file as its stdin."""
    request = json.dumps({"name": name, "kind": kind, "limits": asdict(limits)})
    with file.open("rb") as stdin:
        return subprocess.Popen(
            [sys.executable, "-P", "-s", "-m", "perdure.features.files.converters.child", request],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            cwd="/",
            start_new_session=True,
        )


async def _read_answer(
    child: subprocess.Popen[bytes], name: str, kind: FileKind, limits: ReadLimits, progress: Callable[[int, int], None]
) -> Document:
    """Read the process's output, report progress, return the document. Raises: FileUnreadable, ExtraMissing."""
    assert child.stdout is not None
    lines = asyncio.StreamReader(limit=limits.answer_bytes)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), child.stdout
    )
    try:
        async for line in lines:
            # In a thread: the text of a large file would block the event loop.
            value = await asyncio.to_thread(_parse_line, line, name, kind, limits)
            if isinstance(value, Document):
                return value
            progress(*value)
    except ValueError as error:  # it is no JSON, or too much
        raise FileUnreadable(MALFORMED) from error
    finally:
        transport.close()
    child.kill()  # a process that has closed its output only is not waited for
    raise FileUnreadable(_ending(child.wait(), limits))


def _parse_line(line: bytes, name: str, kind: FileKind, limits: ReadLimits) -> Document | tuple[int, int]:
    """The document, or (pages done, pages in all). Raises: FileUnreadable, ExtraMissing; ValueError: no JSON."""
    match parse_json(line, JsonLimits(size_bytes=limits.answer_bytes)):
        case [int(done), int(total)]:
            return done, total
        case answer:
            return document_of(answer, name, kind, limits)


def _ending(code: int, limits: ReadLimits) -> str:
    """Why a process that gave no answer ended, by its exit code; below 0 it is the number of a signal."""
    if code in {-signal.SIGXCPU, -signal.SIGKILL}:
        return f"it took more than {limits.cpu_s:g} seconds of computing, the limit, or was killed for want of memory"
    if code < 0:
        name = str(-code)
        with suppress(ValueError):
            name = signal.Signals(-code).name
        return f"reading it crashed the converter ({name})"
    return f"reading it failed in the converter (exit code {code})"


def _environment() -> dict[str, str]:
    """Return the child's variables: only what Python needs for its modules and text encoding, no secrets."""
    path = [str(Path(entry).absolute()) for entry in sys.path if entry]
    return {"PYTHONPATH": os.pathsep.join(path), "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}
