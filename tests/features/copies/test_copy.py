"""Copies of whole stores between databases: every row of every table, killed anywhere, never half a store."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from psycopg.errors import LockNotAvailable

from perdure.core.errors import Conflict, InvalidInput, StoreDamaged, StoreIncomplete
from perdure.core.tasks import Progress
from perdure.core.vectors import CheckResult, IndexOwner
from perdure.features.copies import copier
from perdure.features.copies.copier import CopyReport
from perdure.features.copies.moves import Address, migrate_db, open_side
from perdure.features.copies.shapes import MADE_ANEW, OF_THE_FILE
from perdure.storage.store import Store
from perdure.storage.stores.open import open_store
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.support.filled_store import NOT_FILLED, filled_store, table_names, table_rows
from tests.support.postgres_server import address_of_a_new_schema, run_sql

pytestmark = pytest.mark.migrates


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "from.db"
    shutil.copyfile(filled_store(), path)
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    return address_of_a_new_schema() if request.param == "postgres" else tmp_path / "to.db"


class Killed(Exception):
    """Ends a copy as a kill does: nothing of its own runs afterwards."""


def killer(at: int) -> tuple[Progress, list[int]]:
    """A progress that ends the copy at its n-th report, and a list whose length is how many there were."""
    reports: list[int] = []

    def report(step: str, done: int, total: int) -> None:
        reports.append(done)
        if len(reports) == at:
            raise Killed

    return report, reports


def copy(source: Address, target: Address, progress: Progress = lambda step, done, total: None) -> CopyReport:
    return asyncio.run(migrate_db(source, target, at=START, progress=progress))


def found(tx: Tx) -> list[object]:
    """What searches find, which read the index that the copy has made."""
    agents = tx.agents.list()
    return [(agent.id, [one.text for one in tx.messages.list(agent.id, limit=100)]) for agent in agents]


def read(address: Address) -> list[object]:
    async def ask() -> list[object]:
        store: Store = await open_store(address, at=START)
        try:
            return await store.read(found)
        finally:
            await store.close()

    return asyncio.run(ask())


def check(tx: Tx, owner: IndexOwner) -> CheckResult[int]:
    return tx.upkeep.check(owner)


def faults_of(address: Address) -> list[object]:
    """What `perdure store verify` finds in derived data and checksums."""

    async def ask() -> list[object]:
        store = await open_store(address, at=START)
        faults: list[object] = []
        for owner in await store.read(lambda tx: tx.upkeep.owners()):
            faults += (await store.read(check, owner)).faults
        await store.close()
        return faults

    return asyncio.run(ask())


@pytest.mark.slow
def test_there_and_back_every_row_of_every_table_is_the_same(source: Path, target: Address, tmp_path: Path) -> None:
    """Also in tables that are added later: no table is listed anywhere, and the store of this test fills each."""
    names = [name for name in table_names(source) if name not in {*MADE_ANEW, *OF_THE_FILE}]
    there = copy(source, target)
    back = copy(target, tmp_path / "back.db")

    assert (there.rows, there.digest) == (back.rows, back.digest)
    for name in names:
        rows = table_rows(source, name)
        assert rows or name in NOT_FILLED, f"{name} is empty in this store: `filled_store` has to fill it"
        assert table_rows(tmp_path / "back.db", name) == rows, name
    assert read(target) == read(tmp_path / "back.db") == read(source) != []
    assert faults_of(target) == faults_of(tmp_path / "back.db") == []


@pytest.mark.slow
def test_a_copy_that_is_killed_anywhere_goes_on(
    source: Path, target: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is whole nobody opens the target; then it has everything once."""
    monkeypatch.setattr(copier, "BATCH_ROWS", 20)
    whole = copy(source, tmp_path / "whole.db")
    for kills in range(200):
        try:
            report = copy(source, target, killer(5 + kills)[0])
            break
        except Killed:
            with pytest.raises(StoreIncomplete, match="perdure migrate-db"):
                read(target)

    assert kills > 3
    assert report.resumed
    assert (report.rows, report.digest) == (whole.rows, whole.digest)
    assert faults_of(target) == []


def change_rows(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE agents SET name = name || '!'")
        connection.commit()


def change_counters(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE counters SET value = value + 1")
        connection.commit()


@pytest.mark.slow
@pytest.mark.parametrize(("change", "error"), [(change_counters, Conflict), (change_rows, StoreDamaged)])
def test_a_source_that_changes_between_two_parts_of_a_copy_is_told(
    source: Path, tmp_path: Path, change: Callable[[Path], None], error: type[Exception]
) -> None:
    """At the beginning by its counters, or at the end by its rows; the target stays unusable."""
    progress, reports = killer(10**9)
    copy(source, tmp_path / "whole.db", progress)
    with pytest.raises(Killed):
        copy(source, tmp_path / "to.db", killer(len(reports) // 2)[0])
    change(source)
    with pytest.raises(error, match="has changed since"):
        copy(source, tmp_path / "to.db")

    with pytest.raises(StoreIncomplete):
        read(tmp_path / "to.db")


def test_nobody_writes_to_the_source_meanwhile(source: Path, tmp_path: Path) -> None:
    """Who tries waits, and then fails."""
    add = "UPDATE counters SET value = value + 1"
    other = sqlite3.connect(source, timeout=0)
    with closing(open_side(source)) as side, side.snapshot(lock=True), pytest.raises(sqlite3.OperationalError):
        other.execute(add)
    other.close()
    address = address_of_a_new_schema()
    copy(source, address)
    impatient = f"{address}%20-clock_timeout%3D100"
    with closing(open_side(address)) as side, side.snapshot(lock=True), pytest.raises(LockNotAvailable):
        run_sql(impatient, add)


@pytest.mark.slow
def test_a_target_that_is_not_empty_is_refused(source: Path, target: Address, tmp_path: Path) -> None:
    """It stays as it is; so does a copy of something else that is not whole."""
    copy(source, target)
    before = read(target)
    with pytest.raises(InvalidInput, match="is not empty"):
        copy(source, target)
    assert read(target) == before
    with pytest.raises(Killed):
        copy(source, tmp_path / "half.db", killer(3)[0])
    with pytest.raises(InvalidInput, match="copy of something else"):
        copy(target, tmp_path / "half.db")

    with pytest.raises(InvalidInput, match="to itself"):
        copy(source, source)


def test_no_password_is_told(source: Path) -> None:
    """Neither in an error nor in the command that goes on with a copy."""
    with pytest.raises(Exception) as caught:
        copy(source, "postgresql://ada:walrus@127.0.0.1:1/perdure?connect_timeout=1")

    assert "walrus" not in str(caught.value)
