"""A deleted agent leaves no row in any table, also not in those of tomorrow, and no byte after a scrub."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.core.ids import AgentId
from perdure.features.copies.moves import migrate_db
from perdure.storage.stores.open import open_store
from tests.support.filled_store import filled_store, table_names, value
from tests.support.postgres_server import address_of_a_new_schema

pytestmark = pytest.mark.migrates

CANARY = "zebrafinch"
KEPT = {
    "block_versions": "a block is a thing of its own, which others may use; each version has its author",
    "blocks": "the same",
    "passages": "so is an archive",
    "memory_sources": "where the values of blocks and passages come from",
    "episodes": "what a graph that others use has learned",
}
"""Table -> why rows of it may name a deleted agent."""


def give_rows(path: Path) -> AgentId:
    """Give an agent a row in every table that has a column for it; their texts are canaries."""
    with closing(sqlite3.connect(path)) as connection:
        (agent_id,) = connection.execute("SELECT id FROM agents WHERE name = 'ada'").fetchone()
        for table in table_names(path):
            columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
            if "agent_id" not in [column[1] for column in columns] or table in KEPT:
                continue
            row = [
                agent_id if name == "agent_id" else CANARY if kind == "TEXT" else value(kind, 0, named=False)
                for _, name, kind, *_ in columns
            ]
            connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        # Texts that are read when they are removed have to be whole.
        connection.execute("DELETE FROM messages WHERE parts = ?", [CANARY])
        connection.execute("DELETE FROM agent_details WHERE system = ?", [CANARY])
        connection.commit()
    return AgentId(agent_id)


def leftovers(path: Path, *needles: str) -> set[str]:
    """`table.column` of each column that holds one of these texts."""
    found = set()
    with closing(sqlite3.connect(path)) as connection:
        for table in table_names(path):
            for column in connection.execute(f"PRAGMA table_info({table})").fetchall():
                for needle in needles:
                    sql = f"SELECT 1 FROM {table} WHERE CAST({column[1]} AS TEXT) LIKE ? LIMIT 1"
                    if connection.execute(sql, [f"%{needle}%"]).fetchone():
                        found.add(f"{table}.{column[1]}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_no_table_keeps_a_row_of_a_deleted_agent(database: str, tmp_path: Path) -> None:
    """Every table that has a column `agent_id` gets a row of it; a few steps later they are gone."""
    path = tmp_path / "perdure.db"
    shutil.copyfile(filled_store(), path)
    agent_id = give_rows(path)
    at = datetime.now(UTC)
    address = address_of_a_new_schema() if database == "postgres" else path
    after = tmp_path / "after.db"

    async def delete() -> None:
        if database == "postgres":
            await migrate_db(path, address, at=at, progress=lambda step, done, total: None)
        store = await open_store(address, at=at)
        await store.write(lambda tx: tx.agents.delete(agent_id))
        while await store.write(lambda tx: tx.upkeep.carry_out_deletes(limit=50)):
            pass
        await store.backup(after)
        await store.close()

    assert len({one.partition(".")[0] for one in leftovers(path, agent_id)}) > 30
    asyncio.run(delete())

    assert {one for one in leftovers(after, agent_id, CANARY) if one.partition(".")[0] not in KEPT} == set()


@pytest.mark.uses("extractive")
async def test_a_scrub_removes_every_byte(tmp_path: Path) -> None:
    """From the tables, the words of the index, the free pages and the log."""
    path = tmp_path / "perdure.db"
    texts = [("user", None, f"{CANARY}{number} " * 20, datetime.now(UTC)) for number in range(200)]
    async with await AsyncPerdure.open(path) as perdure:
        await (await perdure.create_agent("stays")).send("My name is Ada.")
        agent = await perdure.create_agent("goes", description=CANARY)
        await agent.import_messages(texts)
        await perdure.delete_agent(agent.id)
        await perdure.upkeep.scrub(lambda step, done, total: None)
        log = path.with_name("perdure.db-wal")

        assert CANARY.encode() not in path.read_bytes() + log.read_bytes()
        assert agent.id.encode() not in path.read_bytes() + log.read_bytes()
        assert b"Ada" in path.read_bytes()
