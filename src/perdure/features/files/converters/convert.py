"""Convert an uploaded file to a document: the entry point of this package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from perdure.core.documents import Document, FileKind
from perdure.core.errors import ConversionFailed, FileEncodingInvalid, FileTooLarge, SandboxUnavailable
from perdure.core.tools.sandbox import Sandbox
from perdure.features.files.converters.child import read_document
from perdure.features.files.converters.kinds import HEAD_BYTES, SUFFIXES, kind_of, safe_path
from perdure.features.files.converters.limits import FileUnreadable, ReadLimits
from perdure.features.files.converters.sandbox import read_in_child, read_in_sandbox
from perdure.settings import Settings

Progress = Callable[[int, int], None]
"""(pages or worksheets done, all of them); a file without pages is one."""

_PAGED = frozenset({"pdf", "xlsx"})
_IN_PROCESS = frozenset({"text", "markdown", "code", "csv", "json"})
_IN_PROCESS_BYTES = 1_000_000  # larger tables and JSON would block a thread of the server for seconds


async def convert_file(
    name: str,
    file: Path,
    *,
    limits: ReadLimits | None = None,
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
    name, limits, report = safe_path(name), limits or ReadLimits(), progress or _ignore
    try:
        kind, size = await asyncio.to_thread(_inspect, name, file, limits)
        if kind in _PAGED:  # their readers report pages and worksheets; every other file is one part
            return await _read(name, kind, size, file, limits, report, sandbox)
        report(0, 1)
        document = await _read(name, kind, size, file, limits, report, sandbox)
    except FileUnreadable as error:
        raise ConversionFailed(name, str(error)) from error
    report(1, 1)
    return document


def _inspect(name: str, file: Path, limits: ReadLimits) -> tuple[FileKind, int]:
    """The kind and the size in bytes of a file. Raises: FileTooLarge, FileTypeUnsupported, FileUnreadable."""
    size = file.stat().st_size
    if size > limits.file_bytes:
        raise FileTooLarge(name, size=size, limit=limits.file_bytes)
    with file.open("rb") as stream:
        return kind_of(name, stream.read(HEAD_BYTES)), size


async def _read(
    name: str, kind: FileKind, size: int, file: Path, limits: ReadLimits, progress: Progress, sandbox: Sandbox | None
) -> Document:
    """Read a file: a plain text here, anything else in the sandbox, or in a child process if that does not work."""
    if kind in _IN_PROCESS and (size <= _IN_PROCESS_BYTES or kind not in {"csv", "json"}):
        with file.open("rb") as stream:
            return await asyncio.to_thread(read_document, name, kind, stream, limits, _ignore)
    if sandbox is not None:
        with suppress(SandboxUnavailable):
            return await read_in_sandbox(sandbox, name, kind, file, limits, progress)
    return await read_in_child(name, kind, file, limits, progress)


def _ignore(done: int, total: int) -> None:
    """Take a report of progress, and do nothing with it."""


async def convert(settings: Settings, sandbox: Sandbox, name: str, file: Path, progress: Progress) -> Document:
    """Convert a file to a document within the settings' limits, see `convert_file`."""
    limits = ReadLimits(file_bytes=settings.file_limit_bytes)
    return await convert_file(name, file, limits=limits, progress=progress, sandbox=sandbox)


def check_file(name: str, head: bytes) -> str:
    """Check the name and first bytes of a file, and return its safe name: a path below its folder.

    Raises: FileNameInvalid; FileTypeUnsupported: such files can't be converted to text.
    """
    safe = safe_path(name)
    with suppress(FileUnreadable):  # a damaged file gets its error when it is read
        kind_of(safe, head)
    return safe


def copy_as_utf8(name: str, stream: BinaryIO, target: BinaryIO, encoding: str) -> None:
    """Write the text of a file that is in this encoding to `target` as UTF-8. Raises: FileEncodingInvalid."""
    from perdure.features.files.converters.charset import write_as_utf8

    if name.lower().endswith((*SUFFIXES["pdf"], *SUFFIXES["docx"], *SUFFIXES["xlsx"])):
        raise FileEncodingInvalid(encoding, f"{name[:80]!r} is not a text file, and says itself how it is read")
    write_as_utf8(stream, target, encoding)


def name_text(name: str) -> str:
    """Return the name for the text of a file: its own if it is plain text, else with `.md` added."""
    suffixes = (*SUFFIXES["text"], *SUFFIXES["markdown"], *SUFFIXES["code"])
    return name if name.lower().endswith(suffixes) else f"{name}.md"
