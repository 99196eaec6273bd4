"""An upload: from a file or bytes to rows that survive a crash, before anybody is told that it was taken."""

from __future__ import annotations

import asyncio
import hashlib
import io
import mimetypes
from pathlib import Path
from typing import BinaryIO

from perdure.app import App, check_file
from perdure.core.errors import FileNameInvalid, FileTooLarge, InvalidInput
from perdure.core.files import File, IfExists
from perdure.core.ids import FileId, FolderId
from perdure.domain.files.folders import add_file, placed
from perdure.engine.workers.files import UPLOAD_PART_BYTES
from perdure.library.checks import check_choice, check_text
from perdure.storage.tx import Tx

__all__ = ["IF_EXISTS", "Source", "upload"]

Source = bytes | str | Path | BinaryIO
"""The bytes themselves, the path of a file, or an open file that can seek."""

IF_EXISTS: tuple[IfExists, ...] = ("skip", "error", "suffix", "replace")
HEAD_BYTES = 4_096


async def upload(
    app: App,
    folder_id: FolderId,
    source: Source,
    *,
    name: str | None,
    if_exists: IfExists,
    media_type: str = "",
    original_name: str = "",
) -> tuple[File, bool]:
    """The file as it is taken, its text still to be made, and whether it is new.

    Raises: NotFound, AlreadyExists, FileNameInvalid, FileTypeUnsupported, FileTooLarge; InvalidInput: there is nothing
        to read at this path.
    """
    check_choice("if_exists", if_exists, IF_EXISTS)
    if name is not None:
        check_text("name", name)
    opened, given = await asyncio.to_thread(_opened, source)
    try:
        called = name if name is not None else given
        if not called:
            raise FileNameInvalid("", "bytes have no name of their own: give them one")
        return await _taken(app, folder_id, opened, called, original_name or given or called, if_exists, media_type)
    finally:
        if not hasattr(source, "read"):
            opened.close()


async def _taken(
    app: App, folder_id: FolderId, opened: BinaryIO, called: str, given: str, if_exists: IfExists, media_type: str
) -> tuple[File, bool]:
    store, ids, clock = app.store, app.ports.ids, app.ports.clock
    size, digest, head = await asyncio.to_thread(_measured, opened, app.settings.file_limit_bytes, called)
    name = check_file(called, head)
    found = await store.read(placed, folder_id, name, digest, if_exists)
    if isinstance(found, File):
        return found, False
    now = clock.now()
    file = File(
        id=FileId(ids.new("file")),
        org_id=await store.read(lambda tx: tx.org_id),
        folder_id=folder_id,
        name=name,
        original_name=given,
        media_type=media_type or mimetypes.guess_type(name)[0] or "application/octet-stream",
        size_bytes=size,
        digest=digest,
        created_at=now,
        updated_at=now,
    )
    parts = range(0, size, UPLOAD_PART_BYTES)
    *first, last = parts or (0,)
    for offset in first:
        data = await asyncio.to_thread(_part, opened, offset)
        await store.write(
            lambda tx, offset=offset, data=data: tx.files.put_bytes(  # type: ignore[misc]
                file.id, offset // UPLOAD_PART_BYTES, data, at=now
            )
        )
    data = await asyncio.to_thread(_part, opened, last)

    # What is there of the bytes belongs to nobody until this is committed, and is thrown away if it never is.
    def take(tx: Tx) -> tuple[File, bool]:
        tx.files.put_bytes(file.id, last // UPLOAD_PART_BYTES, data, at=now)
        return add_file(tx, file, if_exists)

    taken = await store.write(take)
    app.files.wake()
    return taken


def _opened(source: Source) -> tuple[BinaryIO, str]:
    """Something to read from, and the name that it has of its own."""
    if isinstance(source, bytes | bytearray | memoryview):
        return io.BytesIO(source), ""
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        if path.is_dir():
            raise InvalidInput(f"{str(path)!r:.200} is a folder: upload its files one by one, or `perdure upload` it")
        try:
            return path.open("rb"), path.name
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise InvalidInput(f"{str(path)!r:.200} can't be read: {why}") from error
    if hasattr(source, "read") and hasattr(source, "seek"):
        name = getattr(source, "name", "")
        return source, Path(name).name if isinstance(name, str) else ""
    raise InvalidInput(f"source is {source!r:.80}: give a path, bytes, or an open file")


def _measured(opened: BinaryIO, limit: int, name: str) -> tuple[int, str, bytes]:
    """Size, digest and first bytes. Raises: FileTooLarge."""
    size = opened.seek(0, io.SEEK_END)
    if size > limit:
        raise FileTooLarge(name, size=size, limit=limit)
    opened.seek(0)
    digest, head = hashlib.sha256(), b""
    while data := opened.read(UPLOAD_PART_BYTES):
        head = head or data[:HEAD_BYTES]
        digest.update(data)
    return size, digest.hexdigest(), head


def _part(opened: BinaryIO, offset: int) -> bytes:
    opened.seek(offset)
    return opened.read(UPLOAD_PART_BYTES)
