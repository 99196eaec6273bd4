"""Damage to what is derived from the texts is found, told and repaired, on both databases."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from perdure.core.ids import AgentId, ArchiveId
from perdure.core.vectors import IndexFault
from perdure.storage.store import Store
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.contracts.base import Contract, match_messages, match_passages
from tests.contracts.upkeep import KINDS, faults_of
from tests.contracts.vectors import MODEL, blob, vectors_in
from tests.support.postgres_server import address_of_an_empty_store, run_sql

units = Contract()
Run = Callable[[str], None]

DAMAGES = {
    "UPDATE agents SET message_count = 99": "messages counted",
    "UPDATE archives SET passage_count = 99": "passages counted",
    "UPDATE archive_tags SET uses = 7": "tags with a wrong number",
    "DELETE FROM passage_tags WHERE seq = 1": "not found by their tags",
    "INSERT INTO passage_tags (archive_id, tag, seq) SELECT archive_id, 'gone', 1 FROM passages LIMIT 1": "by tags",
    "INSERT INTO passage_tags (archive_id, tag, seq) SELECT archive_id, 'sea', 7 FROM passages LIMIT 1": "by tags",
    "UPDATE folders SET file_count = -2": "files counted",
    "DELETE FROM embedding_queue": "not waiting for one",
    "INSERT INTO embedding_queue (number, seq) SELECT number, 77 FROM archives": "but no text",
    "DELETE FROM messages WHERE seq = 0": "found by words they don't have",
    "DELETE FROM passages WHERE seq = 0": "but no text",
    "UPDATE passages SET text = 'one two three four', checksum = NULL": "found by words they don't have",
    "UPDATE vector_scopes SET row_count = 5": "vectors counted",
    "DELETE FROM vectors WHERE vector IS NOT NULL": "not waiting for one",
}


async def open_store(folder: Path, database: str) -> tuple[Store, Run]:
    """A store, and a way to damage it."""
    if database == "postgres":
        address = await asyncio.to_thread(address_of_an_empty_store)

        def run(sql: str) -> None:
            run_sql(address, sql)

        return await PostgresStore.open(address, at=START), run
    path = folder / "perdure.db"

    def run_here(sql: str) -> None:
        connection = sqlite3.connect(path)
        connection.execute(sql)
        connection.commit()
        connection.close()

    return SqliteStore.open(path, at=START), run_here


def fill(tx: Tx) -> tuple[AgentId, ArchiveId, int]:
    agent, archive = units.add_agent(tx), units.add_archive(tx)
    tx.vectors.open(agent.number, "agent", agent.id, MODEL)
    tx.vectors.open(archive.number, "archive", archive.id, MODEL)
    units.say(tx, agent.id, "a walrus said", "a penguin " * 200)  # so long that the index does not wait for more
    for text in ("the walrus", "the penguin", "the gull"):
        units.add_passage(tx, archive.id, text, "sea", "cold")
    units.add_folder(tx)
    for number in (agent.number, archive.number):
        tx.vectors.put(number, [(0, blob(1, 0))], model=MODEL, dimensions=2)
    return agent.id, archive.id, archive.number


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_damage_is_found_and_repaired(tmp_path: Path, database: str, damage: str) -> None:
    """Told as what it is; after the repair nothing differs, and a second one finds nothing to do."""
    store, run = await open_store(tmp_path, database)
    await store.write(fill)
    assert await store.read(faults_of) == []
    run(damage)
    found = await store.read(faults_of)
    assert any(DAMAGES[damage] in fault.text for fault in found), found
    assert not any(fault.repaired for fault in found)
    repaired = await store.write(lambda tx: faults_of(tx, repair=True))
    if any(not fault.repaired for fault in repaired):
        await store.write(rebuilt)

    assert await store.read(faults_of) == []
    await store.close()


async def test_a_lost_index_is_made_anew(tmp_path: Path) -> None:
    """An emptied full-text index, a damaged vector: both are as they were, the vector once it is embedded again."""
    store, run = await open_store(tmp_path, "sqlite")
    agent_id, archive_id, number = await store.write(fill)
    run("INSERT INTO passage_words (passage_words) VALUES ('delete-all')")
    run("INSERT INTO message_words (message_words) VALUES ('delete-all')")
    run("UPDATE vectors SET vector = x'00'")
    found = await store.read(faults_of)
    assert counted(found, "words") == 5 and counted(found, "vectors") == 2
    await store.write(lambda tx: faults_of(tx, repair=True))

    assert await store.read(faults_of) == []
    assert await store.read(lambda tx: match_messages(tx, agent_id, "walrus")) == [0]
    assert await store.read(lambda tx: match_passages(tx, archive_id, "gull")) == [2]
    assert await store.read(vectors_in, number) == {}
    assert await store.read(lambda tx: tx.vectors.has_work(MODEL, at=START))
    await store.close()


async def test_words_of_a_wrong_length_are_embedded_again_with_their_vector(tmp_path: Path) -> None:
    """Two bytes hold the signs of a word of 16 numbers, so three are damaged."""
    store, _ = await open_store(tmp_path, "sqlite")

    def damage(tx: Tx) -> None:
        archive = units.add_archive(tx)
        tx.vectors.open(archive.number, "archive", archive.id, MODEL)
        for text in ("the walrus", "the gull"):
            units.add_passage(tx, archive.id, text)
        rows = [(seq, blob(*[0.25] * 16)) for seq in range(2)]
        tx.vectors.put(archive.number, rows, model=MODEL, dimensions=16, words={0: b"123", 1: b"1234"})

    await store.write(damage)
    found = await store.write(lambda tx: faults_of(tx, repair=True))

    assert [(fault.kind, fault.count) for fault in found] == [("vectors", 1)]
    assert "damaged" in found[0].text
    assert await store.read(lambda tx: tx.vectors.has_work(MODEL, at=START))
    assert await store.read(faults_of) == []
    await store.close()


def rebuilt(tx: Tx) -> None:
    for kind in KINDS:
        while tx.upkeep.rebuild_words(kind, limit=1):
            pass


def counted(faults: Sequence[IndexFault], kind: str) -> int:
    return sum(fault.count for fault in faults if fault.kind == kind)


async def test_a_repair_adds_nothing_twice_to_an_index_that_is_made_anew(tmp_path: Path) -> None:
    """What the one in use has lost is in the new one, which is made of the texts."""
    store, run = await open_store(tmp_path, "sqlite")
    await store.write(fill)
    run("DELETE FROM passage_words_docsize WHERE id & 4294967295 = 1")
    assert await store.write(lambda tx: tx.upkeep.rebuild_words("archive", limit=3))
    assert [fault.text for fault in await store.write(lambda tx: faults_of(tx, repair=True))] == [
        "not found by their words"
    ]
    while await store.write(lambda tx: tx.upkeep.rebuild_words("archive", limit=3)):
        pass
    assert await store.read(faults_of) == []
    await store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "perdure.db")) as connection:
        (sums,) = connection.execute("SELECT block FROM passage_words_data WHERE id = 1").fetchone()
    assert sums[0] == 3, "how many rows FTS5 believes to have"
