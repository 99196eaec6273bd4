"""Convert an uploaded file to a document: the entry point of this package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perdure.converters.child import read_document
from perdure.converters.kinds import HEAD_BYTES, kind_of, safe_path
from perdure.converters.limits import Limits, Refusal
from perdure.converters.sandbox import read_in_child, read_in_sandbox
from perdure.core.documents import Document, FileKind
from perdure.core.errors import ConversionFailed, FileTooLarge, SandboxUnavailable
from perdure.core.tools.sandbox import Sandbox

Progress = Callable[[int, int], None]
"""(pages or worksheets done, all of them); a file without pages is one."""

_PAGED = frozenset({"pdf", "xlsx"})
_IN_PROCESS = frozenset({"text", "markdown", "code", "csv", "json"})
_IN_PROCESS_BYTES = 1_000_000  # larger tables and JSON would block a thread of the server for seconds


async def convert_file(
    name: str,
    file: Path,
    *,
    limits: Limits | None = None,
    progress: Progress | None = None,
    sandbox: Sandbox | None = None,
) -> Document:
    """The text of a file, by its name, its first bytes and its content. A cancellation ends the reader.

    Text, Markdown, source code, and small CSV and JSON are read in a thread; all else in the sandbox, or in a child
    process with limits on time and memory, without environment and without writing files.

    Args:
        name: of the file, also with folders, as `safe_path` accepts it.
        progress: called in the event loop; first with 0 parts done, last with all.
        sandbox: used in place of the child process, where it works on this machine.
    Raises: FileNameInvalid, FileTooLarge, FileTypeUnsupported; ConversionFailed: the file has no text, for `reason`;
        ExtraMissing: its kind needs the extra `files`; OSError: the file can't be read.
    """
    name, limits, report = safe_path(name), limits or Limits(), progress or _ignore
    try:
        kind, size = await asyncio.to_thread(_inspect, name, file, limits)
        if kind in _PAGED:  # their readers report pages and worksheets; every other file is one part
            return await _read(name, kind, size, file, limits, report, sandbox)
        report(0, 1)
        document = await _read(name, kind, size, file, limits, report, sandbox)
    except Refusal as error:
        raise ConversionFailed(name, str(error)) from error
    report(1, 1)
    return document


def _inspect(name: str, file: Path, limits: Limits) -> tuple[FileKind, int]:
    """The kind and the size in bytes of a file."""
    size = file.stat().st_size
    if size > limits.file_bytes:
        raise FileTooLarge(name, size=size, limit=limits.file_bytes)
    with file.open("rb") as stream:
        return kind_of(name, stream.read(HEAD_BYTES)), size


async def _read(
    name: str, kind: FileKind, size: int, file: Path, limits: Limits, progress: Progress, sandbox: Sandbox | None
) -> Document:
    """The document of a file, read where its kind and size belong."""
    if kind in _IN_PROCESS and (size <= _IN_PROCESS_BYTES or kind not in {"csv", "json"}):
        with file.open("rb") as stream:
            return await asyncio.to_thread(read_document, name, kind, stream, limits, _ignore)
    if sandbox is not None:
        with suppress(SandboxUnavailable):
            return await read_in_sandbox(sandbox, name, kind, file, limits, progress)
    return await read_in_child(name, kind, file, limits, progress)


def _ignore(done: int, total: int) -> None:
    """Report to nobody."""
