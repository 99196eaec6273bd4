"""What is remembered of the words of a filter's passages gives what the full-text index gives."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from perdure.core.ids import ArchiveId, PassageId
from perdure.core.passages import Passage
from perdure.core.text.words import query_of
from perdure.core.tx import Matches, PassageFilter, Tx
from perdure.search import words as words_module
from perdure.search.texts import Texts
from perdure.search.words import GATHERED_AFTER, Words
from perdure.testing import InlineStore
from tests.contracts.base import Contract

units = Contract()
RED = PassageFilter(tags=("red",))
VOCABULARY = [f"{syllable}{number}" for number in range(12) for syllable in ("walrus", "sealing", "gull", "猫好き")]


async def filled(store: InlineStore, *, tagged: int) -> ArchiveId:
    """The id of an archive where every second passage has the tag."""
    rng, archive = random.Random(tagged), await store.write(units.add_archive)
    shares = [1 / (rank + 1) for rank in range(len(VOCABULARY))]

    def add(tx: Tx) -> None:
        first = units.add_passage(tx, archive.id, "walrus0", "red")
        some = [
            replace(
                first,
                id=PassageId(units.ids.new("passage")),
                text=" ".join(rng.choices(VOCABULARY, shares, k=6)),
                tags=("red",) if number % 2 else ("blue",),
            )
            for number in range(2 * tagged - 2)
        ]
        tx.passages.add(some)

    await store.write(add)
    return archive.id


def searched(tx: Tx, words: Words, archive_id: ArchiveId, text: str, times: int = 1) -> tuple[Matches, Matches]:
    """What a text matches by what is remembered after so many searches, and by the index alone."""
    archive = next(one for one in tx.archives.list(limit=9) if one.id == archive_id)
    only = np.array(tx.passages.seqs(archive.id, where=RED), np.int64)
    for _ in range(times):
        known = words.of(tx, archive, RED, only)
    query, rows = query_of(text), len(only)
    return (
        tx.passages.match(archive.id, query, where=RED, limit=80, known=known, rows=rows),
        tx.passages.match(archive.id, query, where=RED, limit=80, rows=rows),
    )


@pytest.mark.parametrize("tagged", [120, 1_300])
async def test_gathered_words_match_as_the_index_does(tagged: int) -> None:
    """Words that few and that many passages hold, phrases, and words that none holds; the same candidates in the same
    order."""
    store, words, rng = InlineStore(), Words(Texts()), random.Random(1)
    archive_id = await filled(store, tagged=tagged)
    await store.read(searched, words, archive_id, "walrus0", GATHERED_AFTER)
    assert words.nbytes > 0
    for _ in range(40):
        text = " ".join((*rng.choices(VOCABULARY, k=3), *VOCABULARY[: rng.randrange(3)], rng.choice(["absent", "猫"])))
        remembered, asked = await store.read(searched, words, archive_id, text)
        assert remembered == asked
        assert asked.seqs
    await store.close()


async def test_a_change_of_the_archive_is_seen_at_once() -> None:
    """What was gathered before it is not used any more."""
    store, words = InlineStore(), Words(Texts())
    archive_id = await filled(store, tagged=50)
    before, _ = await store.read(searched, words, archive_id, "walrus3", GATHERED_AFTER)

    def change(tx: Tx) -> Passage:
        return tx.passages.put(replace(tx.passages.by_seqs(archive_id, [0])[0], text="walrus3 again"))

    await store.write(change)
    after, asked = await store.read(searched, words, archive_id, "walrus3")
    assert 0 not in before.seqs
    assert 0 in after.seqs
    assert after == asked
    await store.close()


async def test_long_passages_are_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading and keeping them would cost more than the index does, which goes on being asked."""
    monkeypatch.setattr(words_module, "GATHERED_CHARS", 500)
    store, words = InlineStore(), Words(Texts())
    archive_id = await filled(store, tagged=50)
    remembered, asked = await store.read(searched, words, archive_id, "walrus0", 2 * GATHERED_AFTER)
    assert words.nbytes == 0
    assert remembered == asked
    await store.close()


async def test_what_is_gathered_of_all_filters_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of the filter that was searched last are kept, those of an earlier one make room."""
    monkeypatch.setattr(words_module, "GATHERED_BYTES", 1)
    store, words, kept = InlineStore(), Words(Texts()), []
    for _ in range(2):
        archive_id = await filled(store, tagged=50)
        await store.read(searched, words, archive_id, "walrus0", GATHERED_AFTER)
        kept.append(words.nbytes)
    assert kept[0] == kept[1] > 0
    await store.close()
