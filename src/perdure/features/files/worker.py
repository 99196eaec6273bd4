"""Uploaded files become text that agents read and search, in the background and durably.

A file is claimed under a lease as runs are: a process that dies leaves its files to the next, which begins them anew.
A file is stored in small transactions, so that nobody waits behind a large one; what an interrupted try has stored is
removed first.

Bytes are put into the object store before the file's row, and removed after it: so a row never names an object that is
not there; an object that no row names is removed by `drop_orphans`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import PurePosixPath
from typing import BinaryIO

from perdure.app import App, converter_of
from perdure.core.documents import Chunk, Document, FileKind
from perdure.core.errors import (
    ExtraMissing,
    InvalidInput,
    LeaseLost,
    PerdureError,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
)
from perdure.core.ids import FileId, Ids, OrgId
from perdure.core.ports import FileContents, folder_of
from perdure.core.store_errors import disk_error
from perdure.engine.ports import Ports
from perdure.engine.records.leases import is_dead
from perdure.engine.workers.worker import Worker
from perdure.features.files.file_tables import Files
from perdure.features.files.folder_tables import Folders
from perdure.features.files.units import add_chunks, drop_chunks
from perdure.features.files.values import File, FilePart
from perdure.features.files.views import limits_of, open_if_room, parts_of
from perdure.scratch import scratch_folder
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

UPLOAD_PART_BYTES = 1_000_000
"""The bytes of an upload are kept in parts of this size."""

FILES_AT_ONCE = 2  # each may have a child process that takes a core
TRIES = 3  # a file that kills the whole process must not do so for ever
UPLOAD_MAX_AGE = timedelta(days=1)
"""An upload that was not complete by then is removed: its client is gone."""
CLEANUP_EVERY = timedelta(hours=1)
SWEEP_EVERY = timedelta(days=1)
"""How often the object store is listed: a list of a million objects is a thousand requests."""

PARTS_A_STEP, CHUNKS_A_STEP = 8, 64  # of one transaction
STEPS = 1_000  # of a file's progress
CONVERSION_STEPS = 600  # how many of them are the conversion


class FileWorker(Worker):
    """Reads and removes the files of a store; `progress_s`: how often a file's progress is stored, in seconds."""

    def __init__(self, app: App, *, progress_s: float = 0.3) -> None:
        ports = app.ports
        super().__init__("reading files", self._read_all, ports.settings.lease_s)
        self._ports, self._convert, self._progress_s = ports, converter_of(app.settings, app.shared.reading), progress_s
        self._next_cleanup = ports.clock.now()
        self._next_sweep = self._next_cleanup + CLEANUP_EVERY
        ports.signals.on("files", self.wake)

    async def close(self) -> None:
        """Stop. The next process begins unfinished files anew."""
        await super().close()
        with contextlib.suppress(StoreError):
            await self._ports.store.write(lambda tx: tx.of(Files).release_all(self._ports.owner))

    async def _read_all(self) -> None:
        """Read files that wait or that dead processes have left, some at a time. Raises: StoreError."""
        await self._drop_abandoned_uploads()
        await self.take(self._claim, self._work, at_once=FILES_AT_ONCE)

    async def _drop_abandoned_uploads(self) -> None:
        """Remove the bytes of uploads that were never completed, some parts at a time, once an hour."""
        now, store = self._ports.clock.now(), self._ports.store
        if now < self._next_cleanup:
            return
        before = now - UPLOAD_MAX_AGE
        while await store.read(lambda tx: tx.of(Files).has_abandoned(before=before)):
            await store.write(lambda tx: tx.of(Files).drop_abandoned(before=before, limit=PARTS_A_STEP))
        self._next_cleanup = now + CLEANUP_EVERY
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_EVERY
            await drop_orphans(self._ports, before=before)

    async def _claim(self) -> File | None:
        """Claim a file that waits, or that a dead process has left; None: there is none."""
        store, owner = self._ports.store, self._ports.owner
        if not await store.read(lambda tx: tx.of(Files).has_work()):
            return None
        dead = [other for other in await store.read(lambda tx: tx.of(Files).list_owners()) if is_dead(other)]
        now = self._ports.clock.now()
        return await store.write(
            lambda tx: tx.of(Files).claim(owner=owner, at=now, until=now + self._lease, dead_owners=dead)
        )

    @property
    def _lease(self) -> timedelta:
        """How long a claim lasts."""
        return timedelta(seconds=self._ports.settings.lease_s)

    async def _work(self, file: File) -> None:
        """Read or remove one file, from its claim to its end."""
        store = self._ports.store
        try:
            if file.status == "deleted":
                await self._remove(file)
                return
            progress = _FileProgress()
            renewals = asyncio.create_task(self._renew_claim(file, progress))
            try:
                ended = await self._read(file, progress)
            finally:
                renewals.cancel()
            await store.write(_end, ended, self._ports)
            self.held_up = None
        except LeaseLost:
            return  # deleted meanwhile, or taken over
        except StoreError as error:
            self.hold_up(error)
            # The error is not the file's fault: it is tried again before the claim runs out, which would count.
            await asyncio.sleep(self._ports.settings.lease_s / 2)
            await store.write(lambda tx: tx.of(Files).release_claim(file))

    async def _read(self, file: File, progress: _FileProgress) -> File:
        """Convert and store a file; return its row, now completed or with an error. Raises: LeaseLost, StoreError."""
        try:
            if file.tries > TRIES:
                raise InvalidInput(f"the process that read it stopped {TRIES} times: it may need too much memory")
            document = await self._convert_or_copy(file, progress)
            from perdure.search.chunking import chunks  # for whoever has files

            pieces = await asyncio.to_thread(chunks, document)
            await self._clear(file)
            await self._store(file, document, pieces, progress)
        except (LeaseLost, StoreError):
            raise
        except ExtraMissing as error:
            return await self._failed(file, str(error))
        except PerdureError as error:
            return await self._failed(file, getattr(error, "reason", "") or str(error))
        except Exception as error:  # a converter's defect must not hold up the other files
            if isinstance(error, OSError) and (disk := disk_error(error)) is not None:
                raise disk from error  # no fault of the file: it waits
            log.exception("%s can't be read", file.id)
            return await self._failed(file, f"{type(error).__name__}: {error}")
        return replace(
            file,
            status="completed",
            kind=document.kind,
            title=document.title,
            warnings=document.warnings,
            done=STEPS,
            total=STEPS,
            page_count=document.pages,
            line_count=document.line_count,
            char_count=len(document.text),
            chunk_count=len(pieces),
            updated_at=self._ports.clock.now(),
        )

    async def _failed(self, file: File, problem: str) -> File:
        """Remove what is stored of a file's text, and return its row to store, with an error."""
        await self._clear(file)
        return replace(file, status="error", problem=problem, updated_at=self._ports.clock.now())

    async def _convert_or_copy(self, file: File, progress: _FileProgress) -> Document:
        """Convert a file to a document, or copy that from a file with the same bytes. Raises: PerdureError."""
        store = self._ports.store
        suffix = PurePosixPath(file.name).suffix
        twin = await store.read(lambda tx: tx.of(Files).find_by_digest(file.digest, suffix=suffix)) if suffix else None
        if twin is not None:
            parts, after = list[FilePart](), -1
            while page := await store.read(
                lambda tx, after: tx.of(Files).parts(twin.id, after_seq=after, limit=16), after
            ):
                parts += page
                after = page[-1].seq
            kind: FileKind = twin.kind  # type: ignore[assignment]  # as it was stored
            return Document(
                name=file.name,
                kind=kind,
                text="".join(part.text for part in parts),
                page_starts=tuple(await store.read(lambda tx: tx.of(Files).page_starts(twin.id))),
                title=twin.title,
                warnings=twin.warnings,
            )
        with scratch_folder("file") as folder:
            path = folder / "upload"
            with path.open("wb") as upload:
                if file.object_key:
                    try:
                        await write_contents(self._ports.contents, file, upload)
                    except StoreDamaged as error:
                        raise InvalidInput(str(error)) from error  # only this file can't be read; others needn't wait
                seq = 0
                while (data := await store.read(lambda tx, seq: tx.of(Files).get_bytes(file.id, seq), seq)) is not None:
                    await asyncio.to_thread(upload.write, data)
                    seq += 1
            return await self._convert(file.name, path, progress=progress.advance_conversion)

    async def _store(self, file: File, document: Document, chunks: Sequence[Chunk], progress: _FileProgress) -> None:
        """Store a file's text and chunks, some at a time. Raises: LeaseLost, StoreError."""
        store, ids, clock = self._ports.store, self._ports.ids, self._ports.clock
        parts = parts_of(document.text)
        starts = document.page_starts
        while batch := list(islice(parts, PARTS_A_STEP)):
            await store.write(_put_parts, file, batch, starts, until=clock.now() + self._lease)
            starts = ()
        for index in range(0, len(chunks), CHUNKS_A_STEP):
            chunk_batch = chunks[index : index + CHUNKS_A_STEP]
            now = clock.now()
            await store.write(_put_chunks, file, chunk_batch, ids=ids, at=now, until=now + self._lease)
            progress.advance_storing(index + len(chunk_batch), len(chunks))

    async def _clear(self, file: File) -> None:
        """Remove the chunks and text of a file that an earlier try has stored. Raises: LeaseLost."""
        while await self._ports.store.write(_drop_chunks, file, until=self._ports.clock.now() + self._lease):
            pass
        await self._ports.store.write(lambda tx: tx.of(Files).drop_parts(file.id))

    async def _remove(self, file: File) -> None:
        """Remove all that is stored of a deleted file."""
        for step in (_drop_chunks, _drop_views):
            while await self._ports.store.write(step, file, until=self._ports.clock.now() + self._lease):
                pass
        await self._ports.store.write(lambda tx: tx.of(Files).purge(file))
        if file.object_key and self._ports.contents is not None:
            await self._ports.contents.delete([file.object_key])

    async def _renew_claim(self, file: File, progress: _FileProgress) -> None:
        """Renew the claim of a file and store its progress, until the claim is lost or the task is cancelled."""
        stored, waited_s = -1, 0.0
        while True:
            await asyncio.sleep(self._progress_s)
            waited_s += self._progress_s
            if progress.done == stored and waited_s < self._ports.settings.lease_s / 3:
                continue
            stored, waited_s = progress.done, 0.0
            until = self._ports.clock.now() + self._lease
            try:
                await self._ports.store.write(
                    lambda tx, until=until, done=stored: tx.of(Files).renew(file, until=until, done=done, total=STEPS)  # type: ignore[misc]
                )
            except LeaseLost:
                return  # the next thing that is stored says so too
            except StoreError:
                pass


@dataclass(slots=True)
class _FileProgress:
    """How far a file is read: `done` of `STEPS`, of which the conversion is the first `CONVERSION_STEPS`."""

    done: int = 0

    def advance_conversion(self, done: int, total: int) -> None:
        """Note how much of the file is converted."""
        self.done = max(self.done, CONVERSION_STEPS * done // max(1, total))

    def advance_storing(self, done: int, total: int) -> None:
        """Note how much of the converted file is stored."""
        self.done = CONVERSION_STEPS + (STEPS - CONVERSION_STEPS) * done // max(1, total)


def _put_parts(tx: Tx, file: File, parts: Sequence[FilePart], starts: Sequence[int], *, until: datetime) -> None:
    """Store parts of a file's text."""
    tx.of(Files).renew(file, until=until)
    tx.of(Files).put_parts(file.id, parts, starts)


def _put_chunks(tx: Tx, file: File, chunks: Sequence[Chunk], *, ids: Ids, at: datetime, until: datetime) -> None:
    """Store some of a file's chunks, to be searched."""
    tx.of(Files).renew(file, until=until)
    add_chunks(tx, file, chunks, ids=ids, at=at)


def _drop_chunks(tx: Tx, file: File, *, until: datetime) -> int:
    """Remove some chunks that an earlier try stored; return how many."""
    tx.of(Files).renew(file, until=until)
    return drop_chunks(tx, file, limit=CHUNKS_A_STEP)


def _drop_views(tx: Tx, file: File, *, until: datetime) -> int:
    """Remove some agents' views of a deleted file; return how many."""
    tx.of(Files).renew(file, until=until)
    return tx.of(Files).drop_views(file.id, limit=CHUNKS_A_STEP)


def _end(tx: Tx, file: File, ports: Ports) -> None:
    """End a file, drop its bytes, and open it for agents whose folder opens new files."""
    tx.of(Files).end(file)
    tx.of(Files).drop_bytes(file.id)
    if file.status != "completed":
        return
    for agent_id in tx.of(Folders).list_agents(file.folder_id, opening=True):
        agent = tx.agents.get(agent_id)
        limits = limits_of(agent, ports.inputs().window(agent)[0])
        open_if_room(tx, agent_id, [file], limits, counter=ports.counter, at=file.updated_at)


def key_of(org_id: OrgId, file_id: FileId) -> str:
    """The key in the object store of a new file's bytes."""
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
        named = await ports.store.read(lambda tx, keys=keys: tx.of(Files).named_keys(keys))  # type: ignore[misc]
        if orphans := [key for key in keys if key not in named]:
            await contents.delete(orphans)
            count += len(orphans)
    return count
