"""The bytes of uploaded files in the object store: put before the file's row, removed after it.

So a row never names an object that is not there; an object that no row names is removed by `drop_orphans`.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import datetime
from typing import BinaryIO

from perdure.core.errors import StoreDamaged, StoreUnavailable
from perdure.core.files import File
from perdure.core.ids import FileId, OrgId
from perdure.core.ports import FileContents
from perdure.engine.ports import Ports


def folder_of(org_id: OrgId) -> str:
    """What the keys of an organisation's files begin with."""
    return f"{org_id}/"


def key_of(org_id: OrgId, file_id: FileId) -> str:
    """The key of a new file's bytes."""
    return f"{folder_of(org_id)}{file_id}"


async def write_contents(contents: FileContents | None, file: File, target: BinaryIO) -> None:
    """Write the bytes of a file whose row has an object key to an open file.

    Raises: StoreUnavailable; StoreDamaged: they are gone, or not those that were uploaded.
    """
    if contents is None:
        raise StoreUnavailable(f"the bytes of {file.name!r} are in an object store: set PERDURE_FILES as it was before")
    digest, size = hashlib.sha256(), 0
    async for piece in contents.get(file.object_key):
        digest.update(piece)
        size += len(piece)
        await asyncio.to_thread(target.write, piece)
    if (size, digest.hexdigest()) != (file.size_bytes, file.digest):
        raise StoreDamaged(
            f"{file.object_key} in {contents.place} has {size:,} bytes that are not those of {file.name!r}"
            f" ({file.size_bytes:,} bytes): put it back from a copy of the bucket, or upload the file again"
        )


async def drop_orphans(ports: Ports, *, before: datetime) -> int:
    """Remove the objects of this organisation that were put before this time and that no row names; return how many.

    Raises: StoreError.
    """
    contents = ports.contents
    if contents is None:
        return 0
    org_id, count = await ports.store.read(lambda tx: tx.org_id), 0
    async for keys in contents.list(folder_of(org_id), before=before):
        named = await ports.store.read(lambda tx, keys=keys: tx.files.named_keys(keys))  # type: ignore[misc]
        if orphans := [key for key in keys if key not in named]:
            await contents.delete(orphans)
            count += len(orphans)
    return count
