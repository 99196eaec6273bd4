"""An uploaded file to a document: the one way in."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perdure.converters.caged import read_caged
from perdure.converters.child import read_document
from perdure.converters.kinds import HEAD_BYTES, kind_of
from perdure.converters.limits import Limits, Refused
from perdure.converters.names import safe_path
from perdure.converters.supervise import Child
from perdure.core.documents import Document, FileKind
from perdure.core.errors import ConversionFailed, FileTooLarge, SandboxUnavailable
from perdure.core.tools.sandbox import Sandbox

__all__ = ["Progress", "convert", "convert_file"]

Progress = Callable[[int, int], None]
"""(pages or worksheets done, all of them); a file without pages is one."""

_IN_PARTS = frozenset({"pdf", "xlsx"})
_IN_PROCESS = frozenset({"text", "markdown", "code", "csv", "json"})
_IN_PROCESS_BYTES = 1_000_000  # larger tables and JSON would hold up the threads of a server for seconds


def convert(
    name: str, file: bytes | Path, *, limits: Limits | None = None, progress: Progress | None = None
) -> Document:
    """The text of a file, by its name, its first bytes and its content. Blocks; a server awaits `convert_file`.

    Text, Markdown, source code, and small CSV and JSON are read here; all else in a child process that is limited in
    time and memory, sees no environment and writes no files. `convert_file` has the sandbox for that.

    Args:
        name: what it is called, also with folders, as `safe_path` takes it.
        file: its bytes, or where it lies.
        progress: called in this thread with what is done; first with 0 done, last with all.

    Raises: FileNameInvalid, FileTooLarge, FileTypeUnsupported: it is not looked into; ConversionFailed: this file gives
        no text, for `reason`; ExtraMissing: its kind needs the extra `files`; OSError: the path can't be read.
    """
    return _convert(name, file, limits or Limits(), progress or _unheard, Child())


async def convert_file(
    name: str,
    file: bytes | Path,
    *,
    limits: Limits | None = None,
    progress: Progress | None = None,
    sandbox: Sandbox | None = None,
) -> Document:
    """As `convert`, without holding up the event loop, in which `progress` is called. Cancelled, it ends what reads.

    Args:
        sandbox: where files are read that the child process would read; where it can't hold code back that one does.
    Raises: as `convert`.
    """
    loop, child = asyncio.get_running_loop(), Child()
    told, limits = progress or _unheard, limits or Limits()

    def tell(done: int, total: int) -> None:
        loop.call_soon_threadsafe(told, done, total)

    if sandbox is not None and isinstance(file, Path):
        name, kind, size = await asyncio.to_thread(_looked_at, name, file, limits)
        if not _is_plain(kind, size):
            with suppress(SandboxUnavailable):
                return await _caged(sandbox, name, kind, file, limits, told)
    try:
        return await asyncio.to_thread(_convert, name, file, limits, tell, child)
    finally:
        child.stop()


async def _caged(
    sandbox: Sandbox, name: str, kind: FileKind, file: Path, limits: Limits, progress: Progress
) -> Document:
    """Raises: SandboxUnavailable, ConversionFailed, ExtraMissing."""
    if kind not in _IN_PARTS:
        progress(0, 1)
    try:
        document = await read_caged(sandbox, name, kind, file, limits, progress)
    except Refused as error:
        raise ConversionFailed(name, str(error)) from error
    if kind not in _IN_PARTS:
        progress(1, 1)
    return document


def _looked_at(name: str, file: bytes | Path, limits: Limits) -> tuple[str, FileKind, int]:
    """Its safe name, its kind, and its size in bytes."""
    name = safe_path(name)
    size = len(file) if isinstance(file, bytes) else file.stat().st_size
    if size > limits.file_bytes:
        raise FileTooLarge(name, size=size, limit=limits.file_bytes)
    with io.BytesIO(file) if isinstance(file, bytes) else file.open("rb") as opened:
        try:
            return name, kind_of(name, opened.read(HEAD_BYTES)), size
        except Refused as error:
            raise ConversionFailed(name, str(error)) from error


def _is_plain(kind: FileKind, size: int) -> bool:
    """Whether it is read in this process."""
    return kind in _IN_PROCESS and (size <= _IN_PROCESS_BYTES or kind not in {"csv", "json"})


def _convert(name: str, file: bytes | Path, limits: Limits, progress: Progress, child: Child) -> Document:
    name, kind, size = _looked_at(name, file, limits)
    # Pages and worksheets are told one by one; of all else there is one part.
    if kind not in _IN_PARTS:
        progress(0, 1)
    with io.BytesIO(file) if isinstance(file, bytes) else file.open("rb") as opened:
        try:
            if _is_plain(kind, size):
                document = read_document(name, kind, opened, limits, progress)
            elif isinstance(file, bytes):
                with tempfile.TemporaryFile() as held:  # the child's stdin, where it can seek
                    held.write(file)
                    held.seek(0)
                    document = child.read(name, kind, held, limits, progress)
            else:
                document = child.read(name, kind, opened, limits, progress)
        except Refused as error:
            raise ConversionFailed(name, str(error)) from error
    if kind not in _IN_PARTS:
        progress(1, 1)
    return document


def _unheard(done: int, total: int) -> None:
    pass
