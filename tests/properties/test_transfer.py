"""An archive that is written out and read again is the same archive."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import AsyncPerdure, NewPassage
from perdure.core.passages import PASSAGE_STATES
from perdure.library.transfer import ImportedArchives, check_lines
from perdure.settings import Settings
from perdure.testing import InlineStore
from tests.support.strategies import effort

texts = st.text(st.characters(exclude_categories=()), min_size=1, max_size=40)  # half surrogate pairs too
said = texts.filter(str.strip)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | numbers | texts
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
objects = st.dictionaries(texts, values, max_size=3)
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # bounds only
passages = st.builds(
    NewPassage,
    text=said,
    tags=st.lists(said, max_size=3),
    metadata=objects,
    source=objects,
    occurred_at=st.none() | moments,
)


@pytest.mark.slow
@effort(12, 400)
@given(st.lists(passages, max_size=5), said, st.none() | texts, objects)
def test_what_was_written_is_read_again(
    new: list[NewPassage], name: str, description: str | None, metadata: dict[str, object]
) -> None:
    """In another store, to the letter, in the same order; read once more, nothing changes; in another archive of the
    same store too, and once only."""

    async def run() -> None:
        async with await _open_library() as one, await _open_library() as other:
            archive = await one.archives.create(name, description=description, metadata=metadata)
            stored = [
                replace(passage, state=state)
                for passage, state in zip(await archive.insert_many(new), cycle(PASSAGE_STATES), strict=False)
            ]
            await one.app.store.write(lambda tx: tx.passages.put_states(stored))
            lines = [line async for line in one.transfer.export_archive(archive.id)]
            assert all("\n" not in line for line in lines)
            assert check_lines(lines) == len(new)

            result = await other.transfer.import_archives(lines)
            assert (result.imported, result.skipped) == (len(new), 0)
            assert [line async for line in other.transfer.export_archive(archive.id)] == lines
            assert list(await (await other.archives.get(archive.id)).passages()) == stored
            assert (await other.transfer.import_archives(lines)).imported == 0

            copy = await one.archives.create("copy")
            results: list[ImportedArchives] = [
                await one.transfer.import_archives(lines, into=copy.id) for _ in range(2)
            ]
            assert [result.imported for result in results] == [len(new), 0]
            assert [passage.text for passage in await copy.passages()] == [passage.text for passage in stored]
            assert list(await archive.passages()) == stored

    asyncio.run(run())


async def _open_library() -> AsyncPerdure:
    return await AsyncPerdure.open(store=InlineStore(), settings=Settings(embedding="none"))
