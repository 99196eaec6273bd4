"""An upload: a file's bytes are stored part by part, then the file is added with the last part."""

from __future__ import annotations

import asyncio
import hashlib
import io
import mimetypes
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from perdure.app import App, check_file
from perdure.core.errors import AlreadyExists, FileNameInvalid, FileTooLarge, InvalidInput, NotFound
from perdure.core.files import File, IfExists
from perdure.core.ids import FileId, FolderId
from perdure.domain.files.folders import add_file, place_file
from perdure.engine.workers.files import UPLOAD_PART_BYTES, key_of
from perdure.library.checks import check_choice, check_text
from perdure.storage.tx import Tx

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
) -> File:
    """The stored file, whose text is still to be made; where `if_exists` says so, one that was there.

    Raises: NotFound, AlreadyExists, FileNameInvalid, FileTypeUnsupported, FileTooLarge; InvalidInput: there is nothing
        to read at this path.
    """
    check_choice("if_exists", if_exists, IF_EXISTS)
    if name is not None:
        check_text("name", name)
    stream, own_name = await asyncio.to_thread(_open_source, source)
    try:
        wanted = name if name is not None else own_name
        if not wanted:
            raise FileNameInvalid("", "bytes have no name of their own: give them one")
        return await _store_parts(
            app, folder_id, stream, wanted, original_name or own_name or wanted, if_exists, media_type
        )
    finally:
        if not hasattr(source, "read"):
            stream.close()


async def _store_parts(
    app: App,
    folder_id: FolderId,
    stream: BinaryIO,
    wanted_name: str,
    original_name: str,
    if_exists: IfExists,
    media_type: str,
) -> File:
    """Store the bytes part by part, then the file. Raises: as `upload`."""
    store, ids, clock = app.store, app.ports.ids, app.ports.clock
    size, digest, head = await asyncio.to_thread(_measure, stream, app.settings.file_limit_bytes, wanted_name)
    name = check_file(wanted_name, head)
    found = await store.read(place_file, folder_id, name, digest, if_exists)
    if isinstance(found, File):
        return found
    now = clock.now()
    file = File(
        id=FileId(ids.new("file")),
        org_id=await store.read(lambda tx: tx.org_id),
        folder_id=folder_id,
        name=name,
        original_name=original_name,
        media_type=media_type or mimetypes.guess_type(name)[0] or "application/octet-stream",
        size_bytes=size,
        digest=digest,
        created_at=now,
        updated_at=now,
    )
    if (contents := app.ports.contents) is not None:
        file = replace(file, object_key=key_of(file.org_id, file.id))
        await asyncio.to_thread(stream.seek, 0)
        await contents.put(file.object_key, stream)
        try:
            added = await store.write(lambda tx: add_file(tx, file, if_exists))
        except (NotFound, AlreadyExists):
            await contents.delete([file.object_key])
            raise
        if added.id != file.id:  # one that was there stands for it
            await contents.delete([file.object_key])
        app.files.wake()
        return added
    parts = range(0, size, UPLOAD_PART_BYTES)
    *first, last = parts or (0,)
    for offset in first:
        data = await asyncio.to_thread(_read_part, stream, offset)
        await store.write(
            lambda tx, offset=offset, data=data: tx.files.put_bytes(  # type: ignore[misc]
                file.id, offset // UPLOAD_PART_BYTES, data, at=now
            )
        )
    data = await asyncio.to_thread(_read_part, stream, last)

    # Until this is committed, the stored bytes belong to no file; they are removed later if it never is.
    def add(tx: Tx) -> File:
        tx.files.put_bytes(file.id, last // UPLOAD_PART_BYTES, data, at=now)
        return add_file(tx, file, if_exists)

    added = await store.write(add)
    app.files.wake()
    return added


def _open_source(source: Source) -> tuple[BinaryIO, str]:
    """A stream of the bytes, and the source's own name, empty where it has none."""
    if isinstance(source, bytes | bytearray | memoryview):
        return io.BytesIO(source), ""
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        if path.is_dir():
            raise InvalidInput(
                f"{str(path)!r:.200} is a folder: upload its files one by one, or `perdure file upload` it"
            )
        try:
            return path.open("rb"), path.name
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidInput(f"{str(path)!r:.200} can't be read: {reason}") from error
    if hasattr(source, "read") and hasattr(source, "seek"):
        name = getattr(source, "name", "")
        return source, Path(name).name if isinstance(name, str) else ""
    raise InvalidInput(f"source is {source!r:.80}: give a path, bytes, or an open file")


def _measure(stream: BinaryIO, limit: int, name: str) -> tuple[int, str, bytes]:
    """Size, digest and first bytes. Raises: FileTooLarge."""
    size = stream.seek(0, io.SEEK_END)
    if size > limit:
        raise FileTooLarge(name, size=size, limit=limit)
    stream.seek(0)
    digest, head = hashlib.sha256(), b""
    while data := stream.read(UPLOAD_PART_BYTES):
        head = head or data[:HEAD_BYTES]
        digest.update(data)
    return size, digest.hexdigest(), head


def _read_part(stream: BinaryIO, offset: int) -> bytes:
    stream.seek(offset)
    return stream.read(UPLOAD_PART_BYTES)
