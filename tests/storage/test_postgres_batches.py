"""Statements without a result are sent with the next one that has one, or with the commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from perdure.core.errors import AlreadyExists, StoreError
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.support.postgres_server import address_of_an_empty_store


@pytest.fixture
def address() -> str:
    return address_of_an_empty_store()


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(address, at=START)
    try:
        yield store
    finally:
        await store.close()


def add(tx: Tx, name: str) -> None:
    tx._db.run("INSERT INTO counters (name, value) VALUES (:name, 0)", {"name": name})


def names(tx: Tx) -> list[Any]:
    return [
        row[0]
        for row in tx._db.rows("SELECT name FROM counters WHERE name NOT IN ('number', 'directory') ORDER BY name", {})
    ]


async def test_a_read_sees_what_was_written_before_it(address: str) -> None:
    def unit(tx: Tx) -> tuple[list[Any], int, list[Any]]:
        add(tx, "b")
        tx._db.run_many("INSERT INTO counters (name, value) VALUES (:name, 0)", [{"name": "a"}, {"name": "c"}])
        tx._db.run_many("INSERT INTO counters (name, value) VALUES (:name, 0)", [])
        before = names(tx)
        count = tx._db.run_counted("UPDATE counters SET value = 1 WHERE name NOT IN ('number', 'directory')", {})
        tx._db.run("DELETE FROM counters WHERE name = 'b'", {})
        return before, count, names(tx)

    async with opened(address) as store:
        assert await store.write(unit) == (["a", "b", "c"], 3, ["a", "c"])
        assert await store.read(names) == ["a", "c"]


@pytest.mark.parametrize("last", [names, lambda tx: add(tx, "last"), lambda tx: None], ids=["read", "write", "nothing"])
async def test_a_statement_that_fails_takes_its_unit_with_it(address: str, last: Any) -> None:
    """Wherever it was sent; the connection serves the next unit."""
    is_refused_late = False

    def unit(tx: Tx) -> None:
        nonlocal is_refused_late
        add(tx, "one")
        add(tx, "number")  # it is there
        add(tx, "two")
        is_refused_late = True
        last(tx)

    async with opened(address) as store:
        for _ in range(2):  # each is run again and again, also once the statements are prepared
            with pytest.raises(AlreadyExists, match="a row of counters 'number'"):
                await store.write(unit)
        assert is_refused_late
        await store.write(add, "three")
        assert await store.read(names) == ["three"]


async def test_a_unit_that_only_writes_is_committed(address: str) -> None:
    async with opened(address) as store:
        for name in "abcdefgh":
            await store.write(add, name)
        assert await store.read(names) == list("abcdefgh")


async def test_a_failed_statement_that_a_unit_hides_is_an_error(address: str) -> None:
    def unit(tx: Tx) -> None:
        add(tx, "one")
        try:
            tx._db.rows("SELECT nothing", {})
        except Exception:
            return

    async with opened(address) as store:
        with pytest.raises(StoreError, match='column "nothing" does not exist'):
            await store.write(unit)
        assert await store.read(names) == []
