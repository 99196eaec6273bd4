"""Convert an uploaded file to a document: the entry point of this package."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perdure.converters.child import read_document
from perdure.converters.kinds import HEAD_BYTES, kind_of
from perdure.converters.limits import Limits, Refusal
from perdure.converters.names import safe_path
from perdure.converters.sandbox import read_in_sandbox
from perdure.converters.supervise import Child
from perdure.core.documents import Document, FileKind
from perdure.core.errors import ConversionFailed, FileTooLarge, SandboxUnavailable
from perdure.core.tools.sandbox import Sandbox

Progress = Callable[[int, int], None]
"""(pages or worksheets done, all of them); a file without pages is one."""

_PAGED = frozenset({"pdf", "xlsx"})
_IN_PROCESS = frozenset({"text", "markdown", "code", "csv", "json"})
_IN_PROCESS_BYTES = 1_000_000  # larger tables and JSON would block a thread of the server for seconds


def convert(
    name: str, file: bytes | Path, *, limits: Limits | None = None, progress: Progress | None = None
) -> Document:
    """The text of a file, by its name, its first bytes and its content. Blocks; a server awaits `convert_file`.

    Text, Markdown, source code, and small CSV and JSON are read in this process; all else in a child process with
    limits on time and memory, without environment and without writing files. `convert_file` can use the
    sandbox for that.

    Args:
        name: of the file, also with folders, as `safe_path` accepts it.
        file: its bytes or its path.
        progress: called in this thread; first with 0 parts done, last with all.

    Raises: FileNameInvalid, FileTooLarge, FileTypeUnsupported; ConversionFailed: the file has no text, for `reason`;
        ExtraMissing: its kind needs the extra `files`; OSError: the path can't be read.
    """
    return _convert(name, file, limits or Limits(), progress or _ignore, Child())


async def convert_file(
    name: str,
    file: bytes | Path,
    *,
    limits: Limits | None = None,
    progress: Progress | None = None,
    sandbox: Sandbox | None = None,
) -> Document:
    """As `convert`, without blocking the event loop, in which `progress` is called. A cancellation ends the reader.

    Args:
        sandbox: used in place of the child process, where it works on this machine.
    Raises: as `convert`.
    """
    loop, child = asyncio.get_running_loop(), Child()
    report, limits = progress or _ignore, limits or Limits()

    def report_later(done: int, total: int) -> None:
        loop.call_soon_threadsafe(report, done, total)

    if sandbox is not None and isinstance(file, Path):
        name, kind, size = await asyncio.to_thread(_inspect, name, file, limits)
        if not _is_plain(kind, size):
            with suppress(SandboxUnavailable):
                return await _convert_in_sandbox(sandbox, name, kind, file, limits, report)
    try:
        return await asyncio.to_thread(_convert, name, file, limits, report_later, child)
    finally:
        child.stop()


async def _convert_in_sandbox(
    sandbox: Sandbox, name: str, kind: FileKind, file: Path, limits: Limits, progress: Progress
) -> Document:
    """Raises: SandboxUnavailable, ConversionFailed, ExtraMissing."""
    if kind not in _PAGED:
        progress(0, 1)
    try:
        document = await read_in_sandbox(sandbox, name, kind, file, limits, progress)
    except Refusal as error:
        raise ConversionFailed(name, str(error)) from error
    if kind not in _PAGED:
        progress(1, 1)
    return document


def _inspect(name: str, file: bytes | Path, limits: Limits) -> tuple[str, FileKind, int]:
    """The safe name, the kind and the size in bytes of a file."""
    name = safe_path(name)
    size = len(file) if isinstance(file, bytes) else file.stat().st_size
    if size > limits.file_bytes:
        raise FileTooLarge(name, size=size, limit=limits.file_bytes)
    with io.BytesIO(file) if isinstance(file, bytes) else file.open("rb") as stream:
        try:
            return name, kind_of(name, stream.read(HEAD_BYTES)), size
        except Refusal as error:
            raise ConversionFailed(name, str(error)) from error


def _is_plain(kind: FileKind, size: int) -> bool:
    """Whether a file is read in this process."""
    return kind in _IN_PROCESS and (size <= _IN_PROCESS_BYTES or kind not in {"csv", "json"})


def _convert(name: str, file: bytes | Path, limits: Limits, progress: Progress, child: Child) -> Document:
    name, kind, size = _inspect(name, file, limits)
    # Readers report pages and worksheets; every other file is one part.
    if kind not in _PAGED:
        progress(0, 1)
    with io.BytesIO(file) if isinstance(file, bytes) else file.open("rb") as stream:
        try:
            if _is_plain(kind, size):
                document = read_document(name, kind, stream, limits, progress)
            elif isinstance(file, bytes):
                with tempfile.TemporaryFile() as copy:  # the child's stdin, where it can seek
                    copy.write(file)
                    copy.seek(0)
                    document = child.read(name, kind, copy, limits, progress)
            else:
                document = child.read(name, kind, stream, limits, progress)
        except Refusal as error:
            raise ConversionFailed(name, str(error)) from error
    if kind not in _PAGED:
        progress(1, 1)
    return document


def _ignore(done: int, total: int) -> None:
    pass
