"""An uploaded file to a document: the one way in."""

from __future__ import annotations

import asyncio
import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from perdure.converters.child import read_document
from perdure.converters.kinds import HEAD_BYTES, kind_of
from perdure.converters.limits import Limits, Refused
from perdure.converters.names import safe_path
from perdure.converters.supervise import Child
from perdure.core.documents import Document
from perdure.core.errors import ConversionFailed, FileTooLarge

__all__ = ["Progress", "convert", "convert_file"]

Progress = Callable[[int, int], None]
"""(pages or worksheets done, all of them); a file without pages is one."""

_IN_PROCESS = frozenset({"text", "markdown", "code", "csv", "json"})
_IN_PROCESS_BYTES = 1_000_000  # larger tables and JSON would hold up the threads of a server for seconds


def convert(
    name: str, file: bytes | Path, *, limits: Limits | None = None, progress: Progress | None = None
) -> Document:
    """The text of a file, by its name, its first bytes and its content. Blocks; a server awaits `convert_file`.

    Text, Markdown, source code, and small CSV and JSON are read here; all else in a child process that is limited in
    time and memory, sees no environment and writes no files.

    Args:
        name: what it is called, also with folders, as `safe_path` takes it.
        file: its bytes, or where it lies.
        progress: called in this thread with what is done; first with 0 done, last with all.

    Raises: FileNameInvalid, FileTooLarge, FileTypeUnsupported: it is not looked into; ConversionFailed: this file gives
        no text, for `reason`; ExtraMissing: its kind needs the extra `files`; OSError: the path can't be read.
    """
    return _convert(name, file, limits or Limits(), progress or _unheard, Child())


async def convert_file(
    name: str, file: bytes | Path, *, limits: Limits | None = None, progress: Progress | None = None
) -> Document:
    """As `convert`, in a thread; `progress` is called in the event loop. Cancelled, it ends the child process.

    Raises: as `convert`.
    """
    loop, child = asyncio.get_running_loop(), Child()
    told = progress or _unheard

    def tell(done: int, total: int) -> None:
        loop.call_soon_threadsafe(told, done, total)

    try:
        return await asyncio.to_thread(_convert, name, file, limits or Limits(), tell, child)
    finally:
        child.stop()


def _convert(name: str, file: bytes | Path, limits: Limits, progress: Progress, child: Child) -> Document:
    name = safe_path(name)
    size = len(file) if isinstance(file, bytes) else file.stat().st_size
    if size > limits.file_bytes:
        raise FileTooLarge(name, size=size, limit=limits.file_bytes)
    with io.BytesIO(file) if isinstance(file, bytes) else file.open("rb") as opened:
        try:
            kind = kind_of(name, opened.read(HEAD_BYTES))
            opened.seek(0)
            # Pages and worksheets are told one by one; of all else there is one part.
            if kind not in {"pdf", "xlsx"}:
                progress(0, 1)
            if kind in _IN_PROCESS and (size <= _IN_PROCESS_BYTES or kind not in {"csv", "json"}):
                document = read_document(name, kind, opened, limits, progress)
            elif isinstance(file, bytes):
                with tempfile.TemporaryFile() as held:  # the child's stdin, where it can seek
                    held.write(file)
                    held.seek(0)
                    document = child.read(name, kind, held, limits, progress)
            else:
                os.lseek(opened.fileno(), 0, os.SEEK_SET)  # the child begins where the descriptor stands
                document = child.read(name, kind, opened, limits, progress)
        except Refused as error:
            raise ConversionFailed(name, str(error)) from error
    if kind not in {"pdf", "xlsx"}:
        progress(1, 1)
    return document


def _unheard(done: int, total: int) -> None:
    pass
