"""A store of a version that kept names in the form in which they were written, and accents and points in its index of
words: an upgrade gives them one form."""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.core.agents import IdentityFilter
from perdure.core.passages import PassageFilter
from perdure.core.text.words import index_words
from perdure.features.files.folder_tables import Folders
from perdure.storage.database import full_text as word_index
from perdure.storage.database.full_text import tag_labels
from perdure.storage.database.row_format import dump, load, restore
from perdure.storage.migrations import MIGRATIONS
from perdure.storage.migrations.m0086_one_form_of_keys import PLACES
from perdure.storage.store import Store
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.storage.tables.blocks import VERSION_CHECKSUMS
from perdure.storage.tables.passages import PASSAGE_CHECKSUMS
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.contracts.base import match_messages, match_passages
from tests.contracts.names import NameContract, list_tags
from tests.support.postgres_server import address_of_a_new_schema

pytestmark = pytest.mark.migrates

OLDER = [migration for migration in MIGRATIONS if migration.number != 86]
"""A store whose names have not one form yet, with the tables that the code of today writes."""
OLDER_WORDS = [migration for migration in MIGRATIONS if migration.number != 104]
"""A store whose index of words has marks, likewise."""
NAME = "Việt 한글 café"
units = NameContract()
Open = Callable[..., Awaitable[Store]]


def apart(text: str) -> str:
    """The text with each mark apart from its letter."""
    return unicodedata.normalize("NFD", text)


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the test's own store, by default with all migrations."""
    address = address_of_a_new_schema() if request.param == "postgres" else ""

    async def open_(migrations: Sequence[Any] = MIGRATIONS) -> Store:
        if address:
            return await PostgresStore.open(address, at=START, migrations=migrations)
        return SqliteStore.open(tmp_path / "perdure.db", at=START, migrations=migrations)

    return open_


def write_apart(tx: Tx) -> None:
    """Store all names as an older version stored those that were written with marks apart."""
    db = tx._db
    for place in PLACES:
        table, column = place.split()
        if table in ("passages", "block_versions"):
            continue
        for (old,) in db.rows(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL", {}):
            db.run(f"UPDATE {table} SET {column} = :new WHERE {column} = :old", {"old": old, "new": apart(old)})
    for values in db.rows(f"SELECT {', '.join(VERSION_CHECKSUMS.columns)} FROM block_versions", {}):
        row = dict(zip(VERSION_CHECKSUMS.columns, values, strict=True))
        row["label"] = apart(row["label"])
        row["checksum"] = VERSION_CHECKSUMS.of(row)
        where = "block_id = :block_id AND version = :version"
        db.run(f"UPDATE block_versions SET label = :label, checksum = :checksum WHERE {where}", row)
    numbers: dict[str, int] = dict(map(tuple, db.rows("SELECT id, number FROM archives", {})))
    for values in db.rows(f"SELECT {', '.join(PASSAGE_CHECKSUMS.columns)} FROM passages", {}):
        row = dict(zip(PASSAGE_CHECKSUMS.columns, values, strict=True))
        after = row | {"tags": apart(row["tags"])}
        after["checksum"] = PASSAGE_CHECKSUMS.of(after)
        where = "archive_id = :archive_id AND seq = :seq"
        db.run(f"UPDATE passages SET tags = :tags, checksum = :checksum WHERE {where}", after)
        words = index_words(restore(row["text"]))
        number = numbers[row["archive_id"]]
        word_index.unindex_words(db, "passage_words", number, [(row["seq"], tag_labels(load(row["tags"])), words)])
        word_index.index_words(db, "passage_words", number, [(row["seq"], tag_labels(load(after["tags"])), words)])
    for table in ("passage_tags", "archive_tags"):
        for (old,) in db.rows(f"SELECT DISTINCT tag FROM {table}", {}):
            db.run(f"UPDATE {table} SET tag = :new WHERE tag = :old", {"old": old, "new": apart(old)})


def faults(tx: Tx) -> list[Any]:
    """What `store verify` finds wrong with archives and blocks."""
    found = [fault for owner in tx.upkeep.owners() for fault in tx.upkeep.check(owner).faults]
    return [*found, *tx.upkeep.check_blocks().faults]


async def test_names_of_an_older_store_are_found_in_every_form(open_store: Open) -> None:
    """Whatever had a name, tag, label or key with marks apart is found by both forms, and nothing is damaged."""
    store = await open_store(OLDER)
    made: Mapping[str, Any] = await store.write(units._make, NAME)
    await store.write(write_apart)
    assert await store.read(lambda tx: tx.of(Folders).find(NAME)) is None
    await store.close()

    store = await open_store()
    for form in (NAME, apart(NAME)):
        found = await store.read(units._find, form, made)
        assert [how for how, is_found in found.items() if not is_found] == []
    assert await store.read(list_tags, made["archive"].id) == [(NAME, 1)]
    assert await store.read(faults) == []
    await store.close()


async def test_two_things_whose_names_had_two_forms_keep_different_names(open_store: Open) -> None:
    """Where a name may occur once, the second thing gets a number; a tag in two forms is one tag."""
    store = await open_store(OLDER)
    await store.write(units._make, NAME)
    await store.write(write_apart)
    second = await store.write(units._make, NAME)
    passage = await store.write(units.add_passage, second["archive"].id, "a penguin", NAME)
    both = dump([NAME, apart(NAME)])

    def tag_twice(tx: Tx) -> None:
        db, own = tx._db, {"archive_id": passage.archive_id, "seq": passage.seq, "tag": apart(NAME)}
        where = "archive_id = :archive_id AND seq = :seq"
        db.run(f"UPDATE passages SET tags = :tags, checksum = NULL WHERE {where}", {**own, "tags": both})
        db.run("INSERT INTO passage_tags (archive_id, tag, seq) VALUES (:archive_id, :tag, :seq)", own)
        db.run("INSERT INTO archive_tags (archive_id, tag, uses) VALUES (:archive_id, :tag, 1)", own)
        number, words = second["archive"].number, index_words("a penguin")
        word_index.unindex_words(db, "passage_words", number, [(passage.seq, tag_labels([NAME]), words)])
        word_index.index_words(db, "passage_words", number, [(passage.seq, tag_labels(load(both)), words)])

    await store.write(tag_twice)
    await store.close()

    store = await open_store()
    folders = await store.read(lambda tx: tx.of(Folders).list())
    keys = [one.identifier_key for one in await store.read(lambda tx: tx.identities.page(where=IdentityFilter()))]
    archive = second["archive"].id
    where = PassageFilter(tags=(NAME,))
    assert sorted(one.name for one in folders) == [NAME, f"{NAME}_2"]
    assert sorted(keys) == [NAME, f"{NAME}_2"]
    assert await store.read(list_tags, archive) == [(NAME, 2)]
    assert await store.read(match_passages, archive, "penguin", where=where) == [passage.seq]
    assert await store.read(faults) == []
    await store.close()


@pytest.mark.parametrize("text", ["l´amour", "un¨", "x¯y", "ǰ"])
async def test_signs_that_hold_marks_are_indexed_anew_beside_a_damaged_text(open_store: Open, text: str) -> None:
    """What can't be read takes nothing from the others."""
    store = await open_store(OLDER_WORDS)
    made: Mapping[str, Any] = await store.write(units._make, NAME)
    agent = made["agent"]
    said = await store.write(units.say, agent.id, text, "a penguin", *["a walrus"] * 600)

    def damage(tx: Tx) -> None:
        word_index.unindex_words(tx._db, "message_words", agent.number, [(said[0].seq, "user", index_words(text))])
        word_index.index_words(tx._db, "message_words", agent.number, [(said[0].seq, "user", "former words of it")])
        tx._db.run("UPDATE messages SET parts = '[' WHERE seq = :seq", {"seq": said[1].seq})

    await store.write(damage)
    await store.close()

    store = await open_store()
    marks = await store.read(lambda tx: tx._db.index_marks("message_words", agent.number, 0, 1 << 31))
    mark = await store.read(lambda tx: tx._db.index_mark(agent.number, "user", index_words(text)))
    assert (marks[said[0].seq], said[1].seq in marks, len(marks) > 500) == (mark, False, True)
    await store.close()


async def test_words_with_marks_are_found_without_them_after_an_upgrade(open_store: Open) -> None:
    """In messages and passages, beside others, and nothing is damaged."""
    store = await open_store(OLDER_WORDS)
    made: Mapping[str, Any] = await store.write(units._make, NAME)
    agent, archive = made["agent"], made["archive"]
    said = await store.write(units.say, agent.id, "İstanbul ελληνικά", *["a walrus"] * 600)
    passage = await store.write(units.add_passage, archive.id, "אֶחָד İzmir")

    def index_with_marks(tx: Tx) -> None:
        for table, number, seq, label, text, words in (
            ("message_words", agent.number, said[0].seq, "user", "İstanbul ελληνικά", "i\u0307stanbul ελληνικά"),
            ("passage_words", archive.number, passage.seq, "", "אֶחָד İzmir", "א ח ד i\u0307zmir"),
        ):
            word_index.unindex_words(tx._db, table, number, [(seq, label, index_words(text))])
            word_index.index_words(tx._db, table, number, [(seq, label, words)])

    await store.write(index_with_marks)
    assert await store.read(match_messages, agent.id, "istanbul") == []
    await store.close()

    store = await open_store()
    for query in ("istanbul", "İSTANBUL", "ΕΛΛΗΝΙΚΑ"):
        assert await store.read(match_messages, agent.id, query) == [said[0].seq]
    for query in ("izmir", "אחד"):
        assert await store.read(match_passages, archive.id, query) == [passage.seq]
    assert len(await store.read(match_messages, agent.id, "walrus", limit=1_000)) == 600
    assert await store.read(faults) == []
    await store.close()
