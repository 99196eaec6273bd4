"""The service of upkeep: compare derived data with the texts, rebuild it, and embed every text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from perdure.core.errors import InvalidInput, StoreDamaged, StoreError
from perdure.core.vectors import CheckResult, IndexFault, IndexOwner, OwnerKind, ScopeCounts
from perdure.domain.archives.embedding import reindex
from perdure.engine.conversations.reset import remove_traces
from perdure.library.parts.part import AsyncPart
from perdure.storage.tx import Tx

T = TypeVar("T")

PAGE = 500
POLL_S = 0.2
"""How often it is looked how far the worker of embeddings is."""

TEXTS: dict[OwnerKind, str] = {"agent": "messages", "archive": "passages"}

Progress = Callable[[str, int, int], None]
"""Takes what is being done, how much of it is done, and how much there is to do."""

Unit = Callable[..., Awaitable[Any]]
"""`store.read`, or `store.write` for a repair."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The compared owners, and what differs.

    Args:
        unfinished: the kinds of owner whose new full-text index is not complete.
        without_checksum: how many rows have no checksum.
    """

    owners: Sequence[IndexOwner]
    faults: Sequence[IndexFault]
    unfinished: AbstractSet[OwnerKind]
    without_checksum: int


@dataclass(frozen=True, slots=True)
class EmbeddingReport:
    """How many texts of each agent and archive have a vector of `model`, and how many vectors are new."""

    model: str
    counts: Sequence[ScopeCounts]
    made: int


class StoreUpkeep(AsyncPart):
    """Checks and repairs of a store, in small transactions, so that others can write meanwhile."""

    async def queue_lengths(self) -> Mapping[str, int]:
        """Queue -> how much waits in it. Raises: StoreError."""
        now = self._app.ports.clock.now()
        return await self._ports.store.read(lambda tx: tx.queues.lengths(at=now))

    @property
    def place(self) -> str:
        """Where the data is, for people: the path of the file, or which PostgreSQL database."""
        return self._ports.store.place

    async def scrub(self, progress: Progress) -> None:
        """Remove every trace of what was deleted from the indexes, from the free space of the database and from its
        log. Others can't write while the file is written anew. Raises: StoreError: it is not done."""
        await remove_traces(self._app.ports, progress)

    async def claim(self, name: str, period: str) -> bool:
        """Note the first use of something called `name` in a period, such as a day; False: it was noted before."""
        return await self._app.shared.store.write(lambda tx: tx.used.claim(name, period))

    async def mark(self) -> str:
        """A text that changes with everything that is stored, by this process or another; cheap to read."""
        return await self._ports.store.mark()

    async def check_ready(self) -> None:
        """Check that the store answers and has the tables of this version. Raises: StoreError."""
        if not await self._ports.store.read(lambda tx: tx.is_current()):
            raise StoreError("the store has older tables than this version: start perdure again, which upgrades them")

    async def find_damage(self) -> Sequence[str]:
        """What the database finds damaged in its own file, a sentence each; then nothing in the file can be trusted."""
        return await self._ports.store.read(lambda tx: tx.upkeep.integrity())

    async def compare(self, *, repair: bool, progress: Progress) -> Comparison:
        """Compare derived data with the texts, and the texts with their checksums; with `repair`, rebuild derived data.

        Raises: StoreError.
        """
        store = self._ports.store
        unfinished = {*await store.read(lambda tx: tx.upkeep.rebuilding())}
        owners = await self._owners()
        unit = store.write if repair else store.read
        blocks = await _compare_pages(unit, lambda tx, after: tx.upkeep.check_blocks(after=after, repair=repair))
        entities = await _compare_pages(unit, lambda tx, after: tx.upkeep.check_entities(after=after, repair=repair))
        faults, without_checksum = blocks[0] + entities[0], blocks[1]
        if repair:
            for kind in sorted(unfinished):
                await self._rebuild_words(kind, owners, progress)
        stale: set[OwnerKind] = set()
        total, before = sum(owner.rows for owner in owners), 0
        for owner in owners:
            seq: int | None = 0
            while seq is not None:
                progress("comparing", before + min(seq, owner.rows), total)
                try:
                    checked = await unit(
                        lambda tx, owner, seq: tx.upkeep.check(owner, from_seq=seq, repair=repair), owner, seq
                    )
                except StoreDamaged:
                    faults.append(
                        IndexFault("damage", owner.id, f"place from number {seq} on that can't be read", 1, False)
                    )
                    break
                faults += checked.faults
                without_checksum += checked.without_checksum
                if any(fault.kind == "stale words" and not fault.repaired for fault in checked.faults):
                    stale.add(owner.kind)
                seq = checked.after
            before += owner.rows
        if not repair:
            return Comparison(owners, faults, unfinished, without_checksum)
        for kind in sorted(stale):
            await self._rebuild_words(kind, owners, progress)
        return Comparison(owners, [replace(one, repaired=one.kind != "damage") for one in faults], set(), 0)

    async def reindex(self, owner_ids: Sequence[str] = (), *, again: bool, progress: Progress) -> EmbeddingReport:
        """Have every text of these agents and archives, or of all, embedded by the embedder in use; wait for it.

        Args:
            again: also those that have a vector of this embedder.
        Raises: InvalidInput: there is no embedder; StoreError.
        """
        embedder, worker = self._app.embedder, self._app.worker
        if embedder is None or worker is None:
            raise InvalidInput(f"there is no embedder: {self._app.embedding_reason}")
        owners = [one for one in await self._owners() if not owner_ids or one.id in owner_ids]
        for first in range(0, len(owners), PAGE):
            part = [(one.number, one.kind, one.id) for one in owners[first : first + PAGE]]
            await self._ports.store.write(reindex, part, embedder.handle, force=again)
        worker.wake()
        texts = {owner.number: owner.rows for owner in owners}
        before: int | None = None
        while True:
            counts = [
                one
                for one in await self._load_all(
                    lambda tx, after: tx.vectors.counts(after=after, limit=PAGE), lambda page: page.scope.number
                )
                if one.scope.number in texts
            ]
            done = sum(one.scope.row_count + one.failed for one in counts)
            before = done if before is None else before
            total = sum(_count_texts(one, texts[one.scope.number]) for one in counts)
            progress(worker.trouble or embedder.handle, done, total)
            if all(not count.waiting and count.scope.fill_from is None for count in counts):
                return EmbeddingReport(embedder.handle, counts, done - before)
            await asyncio.sleep(POLL_S)

    async def _owners(self) -> list[IndexOwner]:
        """All agents and archives, in order of their numbers."""
        return await self._load_all(
            lambda tx, after: tx.upkeep.owners(after=after, limit=PAGE), lambda owner: owner.number
        )

    async def _load_all(self, load_page: Callable[[Tx, int], Sequence[T]], number_of: Callable[[T], int]) -> list[T]:
        """All items, read page by page; each page begins behind the number of the last item."""
        items: list[T] = []
        while page := await self._ports.store.read(load_page, number_of(items[-1]) if items else -1):
            items += page
        return items

    async def _rebuild_words(self, kind: OwnerKind, owners: Sequence[IndexOwner], progress: Progress) -> None:
        """Build the full-text index again; search uses the old one until the new one is complete."""
        what, of_kind = f"making the index of {TEXTS[kind]} anew", [owner for owner in owners if owner.kind == kind]
        total = sum(owner.rows for owner in of_kind)
        while place := await self._ports.store.write(lambda tx: tx.upkeep.rebuild_words(kind)):
            number, next_seq = place
            progress(what, sum(owner.rows for owner in of_kind if owner.number < number) + next_seq, total)


async def _compare_pages(
    unit: Unit, check: Callable[[Tx, tuple[str, int]], CheckResult[tuple[str, int]]]
) -> tuple[list[IndexFault], int]:
    """(all faults, how many rows have no checksum) that a check finds, called page by page through `unit`; it takes
    where to continue, which is first ("", -1)."""
    faults: list[IndexFault] = []
    without_checksum, after = 0, ("", -1)
    while True:
        checked = await unit(check, after)
        faults += checked.faults
        without_checksum += checked.without_checksum
        if checked.after is None:
            return faults, without_checksum
        after = checked.after


def _count_texts(counts: ScopeCounts, texts: int) -> int:
    """How many texts get a vector; while the queue is being filled, at most `texts`."""
    known = counts.scope.row_count + counts.waiting + counts.failed
    return known if counts.scope.fill_from is None else max(known, texts)
