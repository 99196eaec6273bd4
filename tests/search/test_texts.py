"""Passages that are remembered are those that the store would give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perdure.core.ids import ArchiveId, PassageId
from perdure.core.passages import Passage, PassageTexts
from perdure.core.tx import Tx
from perdure.search.texts import Texts
from perdure.storage.database.sqlite_store import SqliteStore
from perdure.testing import InlineStore
from tests.contracts.base import AT, Contract

units = Contract()


async def filled(store: InlineStore | SqliteStore, *, passages: int) -> ArchiveId:
    archive = await store.write(units.add_archive)

    def add(tx: Tx) -> None:
        first = units.add_passage(tx, archive.id, "walrus 0", "red")
        tx.passages.add(
            [
                replace(
                    first,
                    id=PassageId(units.ids.new("passage")),
                    text=f"walrus {number}",
                    metadata={"number": number},
                    source={"file_id": "file-1"} if number % 2 else {},
                )
                for number in range(1, passages)
            ]
        )

    await store.write(add)
    return archive.id


def whole(read: PassageTexts) -> list[tuple[object, ...]]:
    columns = zip(read.seqs, read.texts, read.occurred_at, read.origins, read.uses, strict=True)
    return [(*row, read.whole(index)) for index, row in enumerate(columns)]


def remembered(tx: Tx, texts: Texts, archive_id: ArchiveId, *seqs: int) -> list[tuple[object, ...]]:
    """What is remembered of these passages, the same as what the store has."""
    found = whole(texts.of(tx, tx.archives.get(archive_id), seqs))
    assert found == whole(tx.passages.texts(archive_id, seqs))
    return found


async def test_what_is_remembered_is_what_the_store_has() -> None:
    """In the order that is asked for, also of passages of which some are not known yet or not there."""
    store, texts = InlineStore(), Texts()
    archive_id = await filled(store, passages=9)
    for seqs in ([3, 1, 2], [2, 3, 1], [1, 8, 99, 3], [99], [8, 1], [], [99, 100, 1]):
        found = await store.read(remembered, texts, archive_id, *seqs)
        assert [row[0] for row in found] == [seq for seq in seqs if seq < 9]
    assert texts.nbytes > 0
    await store.close()


async def test_a_passage_that_is_given_away_can_be_changed() -> None:
    """Who changes the metadata of a hit does not change what others find."""
    store, texts = InlineStore(), Texts()
    archive_id = await filled(store, passages=3)
    for _ in range(2):
        (found,) = await store.read(remembered, texts, archive_id, 1)
        passage = found[-1]
        assert isinstance(passage, Passage)
        passage.metadata["number"] = 17  # type: ignore[index]
    await store.close()


async def test_what_others_commit_is_seen_at_once(tmp_path: Path) -> None:
    """Changed, added and deleted passages and their uses, written by another process; nothing before its commit."""
    ours, theirs = (SqliteStore.open(tmp_path / "perdure.db", at=AT) for _ in range(2))
    texts, archive_id = Texts(), await filled(ours, passages=5)

    def put(tx: Tx) -> None:
        tx.passages.put(replace(tx.passages.by_seqs(archive_id, [1])[0], text="a penguin", metadata={}))

    def use(tx: Tx) -> None:
        tx.passages.use(archive_id, [1, 2])

    def delete(tx: Tx) -> None:
        tx.passages.delete(archive_id, [3])

    def add(tx: Tx) -> None:
        units.add_passage(tx, archive_id, "a gull")

    seen = [await ours.read(remembered, texts, archive_id, *range(6))]
    for change in (put, use, use, delete, add):
        await theirs.write(change)
        seen += [await ours.read(remembered, texts, archive_id, *range(6)) for _ in range(2)]
        assert seen[-1] == seen[-2] != seen[-3]
    await ours.close()
    await theirs.close()


async def test_an_older_transaction_goes_on_seeing_its_own_state(tmp_path: Path) -> None:
    """It neither takes what a newer one remembers, nor puts its own in place of that."""
    store, texts = SqliteStore.open(tmp_path / "perdure.db", at=AT), Texts()
    archive_id = await filled(store, passages=5)
    before = await store.read(lambda tx: tx.archives.get(archive_id))
    old = await store.read(lambda tx: tx.passages.texts(archive_id, [1]))
    await store.write(lambda tx: tx.passages.put(replace(tx.passages.by_seqs(archive_id, [1])[0], text="a penguin")))
    new = await store.read(remembered, texts, archive_id, 1)
    texts.keep(before, old)
    assert await store.read(remembered, texts, archive_id, 1) == new
    assert whole(await store.read(lambda tx: texts.of(tx, before, [2]))) != []
    assert await store.read(remembered, texts, archive_id, 1, 2)
    await store.close()


async def test_what_is_remembered_is_bounded() -> None:
    """Of several archives the one that was searched last is kept, of a large one what was read last."""
    store = InlineStore()
    one, other = [await filled(store, passages=40) for _ in range(2)]
    texts = Texts()
    await store.read(remembered, texts, one, *range(40))
    bound = texts.nbytes
    texts = Texts(max_bytes=bound)
    for archive_id in (one, other, one):
        await store.read(remembered, texts, archive_id, *range(40))
        assert 0 < texts.nbytes <= bound
    texts = Texts(max_bytes=bound // 4)
    for first in range(0, 40, 4):
        await store.read(remembered, texts, one, *range(first, first + 4))
        assert 0 < texts.nbytes <= bound // 4
    await store.close()
