"""What was said and remembered has checksums: a letter that changed on the disk is found."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure.core.errors import StoreDamaged
from perdure.core.messages import Text
from perdure.core.vectors import IndexFault
from perdure.storage.database.row_format import ChecksumColumns
from perdure.storage.store import Store
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.storage.tables.blocks import VERSION_CHECKSUMS
from perdure.storage.tables.message_rows import MESSAGE_CHECKSUMS, REVISION_CHECKSUMS
from perdure.storage.tables.passages import PASSAGE_CHECKSUMS
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.contracts.base import ADA, AT, Contract

units = Contract()


def fill(tx: Tx) -> None:
    agent, archive = units.add_agent(tx), units.add_archive(tx)
    units.say(tx, agent.id, "a walrus", "a penguin", "a seal")
    messages = tx.messages.list(agent.id)
    tx.messages.revise(messages[1].id, [Text("a walrus again")], author=ADA, at=AT)
    tx.messages.revise(messages[2].id, None, author=ADA, at=AT)
    units.add_passage(tx, archive.id, "a walrus", "sea")
    units.add_block(tx, "human", agent_id=agent.id)


def create_store(path: Path) -> None:
    async def make() -> None:
        store = SqliteStore.open(path, at=START)
        await store.write(fill)
        await store.close()

    asyncio.run(make())


def change(path: Path, sql: str) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql).rowcount


def compared(path: Path, *, repair: bool = False) -> tuple[Sequence[IndexFault], int]:
    """What differs, and how many rows have no checksum."""

    def unit(tx: Tx) -> tuple[Sequence[IndexFault], int]:
        checked = [tx.upkeep.check(owner, repair=repair) for owner in tx.upkeep.owners()]
        blocks = tx.upkeep.check_blocks(repair=repair)
        faults = [fault for one in checked for fault in one.faults] + list(blocks.faults)
        return faults, sum(one.without_checksum for one in checked) + blocks.without_checksum

    async def compare(store: Store) -> tuple[Sequence[IndexFault], int]:
        found = await (store.write(unit) if repair else store.read(unit))
        await store.close()
        return found

    return asyncio.run(compare(SqliteStore.open(path, at=START)))


@pytest.mark.parametrize(
    ("table", "column", "where"),
    [
        ("messages", "parts", "seq = 0"),
        ("messages", "otid", "seq = 1"),
        ("messages", "created_at", "seq = 2"),
        ("message_revisions", "parts", "parts IS NOT NULL"),
        ("message_revisions", "author_id", "parts IS NULL"),
        ("passages", "text", "1"),
        ("passages", "tags", "1"),
        ("block_versions", "value", "1"),
        ("block_versions", "diff", "1"),
        ("blocks", "value", "1"),
    ],
)
def test_a_letter_that_changed_is_found_and_not_accepted(tmp_path: Path, table: str, column: str, where: str) -> None:
    """By a repair neither: it can't know what was written."""
    path = tmp_path / "perdure.db"
    create_store(path)
    assert compared(path) == ([], 0)
    assert change(path, f"UPDATE {table} SET {column} = COALESCE({column}, '') || '.' WHERE {where}") == 1
    for repair in (False, True, False):
        faults, bare = compared(path, repair=repair)

        assert [(fault.kind, fault.count, fault.repaired) for fault in faults] == [("damage", 1, False)]
        assert bare == 0


@pytest.mark.parametrize(
    ("summed", "changing"),
    [
        (MESSAGE_CHECKSUMS, {"revision", "removed"}),
        (REVISION_CHECKSUMS, {"name"}),  # newer than the checksums of older rows
        (PASSAGE_CHECKSUMS, {"embedding", "embedding_model", "updated_at", "uses", "recalls", "state", "state_origin"}),
        (VERSION_CHECKSUMS, set()),
    ],
    ids=lambda one: getattr(one, "table", ""),
)
def test_a_checksum_is_of_every_column_that_does_not_change(
    tmp_path: Path, summed: ChecksumColumns, changing: set[str]
) -> None:
    """A new column is either in the checksum or listed here as one that changes by itself."""
    path = tmp_path / "perdure.db"
    create_store(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        columns = {row[1] for row in connection.execute(f"PRAGMA table_info({summed.table})")}

    assert columns - {*summed.columns} == {"checksum", *changing}


def test_rows_of_before_get_a_checksum_by_a_repair(tmp_path: Path) -> None:
    """Until then they are counted, and no fault."""
    path = tmp_path / "perdure.db"
    create_store(path)
    tables = ("messages", "message_revisions", "passages", "block_versions")
    rows = sum(change(path, f"UPDATE {table} SET checksum = NULL") for table in tables)

    assert rows == 7
    assert compared(path) == ([], rows)
    assert compared(path, repair=True) == ([], rows)
    assert compared(path) == ([], 0)
    change(path, "UPDATE passages SET text = 'a whale'")
    assert [fault.kind for fault in compared(path)[0]] == ["damage"]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE messages SET parts = '[{broken' WHERE seq = 0",
        "UPDATE messages SET parts = CAST(x'5b22ff225d' AS TEXT) WHERE seq = 0",
        "UPDATE messages SET created_at = 'yesterday' WHERE seq = 0",
    ],
)
def test_a_row_that_can_not_be_read_is_damage(tmp_path: Path, sql: str) -> None:
    """And its text is not quoted."""
    path = tmp_path / "perdure.db"
    create_store(path)
    change(path, sql)
    store = SqliteStore.open(path, at=START)

    async def read() -> None:
        try:
            await store.read(lambda tx: tx.messages.list(tx.agents.list()[0].id))
        finally:
            await store.close()

    with pytest.raises(StoreDamaged, match="perdure store verify") as caught:
        asyncio.run(read())
    assert "broken" not in str(caught.value)
    assert "yesterday" not in str(caught.value)
