"""Backups and putting them back: online, whole, and at every moment either the old store or the new one."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from perdure.core.errors import InvalidInput, NotAStore, StoreBusy, StoreDamaged, StoreTooNew
from perdure.core.incoming.addresses import is_postgres
from perdure.features.copies.moves import Address, migrate_db
from perdure.features.copies.restore import RestoreReport, read_backup, restore
from perdure.storage.stores.open import open_store
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.contracts.base import Contract
from tests.support.filled_store import filled_store
from tests.support.postgres_server import address_of_a_new_schema, run_sql

pytestmark = pytest.mark.migrates

units = Contract()


def names(tx: Tx) -> list[str]:
    return [agent.name for agent in tx.agents.list()]


def add_and_name(address: Address, name: str) -> list[str]:
    """Add an agent to a store, and return the names of all."""

    async def work() -> list[str]:
        store = await open_store(address, at=START)
        await store.write(units.add_agent, name)
        found = await store.read(names)
        await store.close()
        return found

    return asyncio.run(work())


def names_in(address: Address) -> list[str]:
    async def work() -> list[str]:
        store = await open_store(address, at=START)
        found = await store.read(names)
        await store.close()
        return found

    return asyncio.run(work())


def back_up(address: Address, path: Path) -> None:
    async def work() -> None:
        store = await open_store(address, at=START)
        reports: list[tuple[int, int]] = []
        await store.backup(path, lambda done, total: reports.append((done, total)))
        await store.close()
        assert reports

    asyncio.run(work())


def put_back(path: Path, address: Address) -> RestoreReport:
    return asyncio.run(restore(path, address, at=START, progress=lambda step, done, total: None))


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """A store with something of everything, in one of both databases."""
    path = tmp_path / "perdure.db"
    shutil.copyfile(filled_store(), path)
    if request.param == "sqlite":
        return path
    address = address_of_a_new_schema()
    asyncio.run(migrate_db(path, address, at=START, progress=lambda step, done, total: None))
    return address


def test_a_backup_is_put_back_and_the_old_store_is_kept(address: Address, tmp_path: Path) -> None:
    """Of either database into either one."""
    backup = tmp_path / "backup.db"
    before = names_in(address)
    back_up(address, backup)
    assert names_in(address) == before != []
    assert sorted(path.name for path in tmp_path.glob("backup.db*")) == ["backup.db"]
    assert "later" in add_and_name(address, "later")
    report = put_back(backup, address)

    assert names_in(address) == before
    if is_postgres(address):
        assert run_sql(str(address), f"SELECT name FROM {report.kept}.agents WHERE name = 'later'") == [("later",)]
    else:
        assert "later" in names_in(Path(report.kept))
    other = tmp_path / "new" / "other.db"
    assert put_back(backup, other).digest == report.digest
    assert names_in(other) == before
    assert not [path for path in tmp_path.rglob("*") if "restore-" in path.name]


@pytest.mark.slow
def test_a_store_that_is_open_is_not_replaced(address: Address, tmp_path: Path) -> None:
    """The error says who may have it open, and nothing changes."""
    backup = tmp_path / "backup.db"
    shutil.copyfile(filled_store(), backup)
    program = (
        "import asyncio, sys\nfrom perdure.storage.stores.open import open_store\n"
        "from perdure.testing.clock import START\n"
        "async def main():\n    store = await open_store(sys.argv[1], at=START)\n    print('open', flush=True)\n"
        "    sys.stdin.read()\n    await store.close()\nasyncio.run(main())\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(address)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    with pytest.raises(StoreBusy, match="perdure serve"):
        put_back(backup, address)
    child.communicate("")
    before = add_and_name(address, "later")

    assert put_back(backup, address).kept
    assert names_in(address) != before


def damage_page(path: Path) -> None:
    """Spoil a page of the table of messages."""
    with closing(sqlite3.connect(path)) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages'").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * size + 8)
        file.write(bytes(200))


def damage_schema(path: Path) -> None:
    """Spoil the first page behind its header, so that no table is found."""
    with path.open("r+b") as file:
        file.seek(100)
        file.write(bytes(200))


def damage_letter(path: Path) -> None:
    """Change a letter of a message, which SQLite does not notice."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE messages SET parts = REPLACE(parts, 'walrus', 'wolrus')")
        connection.commit()
        assert connection.total_changes


def damage_block(path: Path) -> None:
    """Change a letter of a block's value."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE blocks SET value = value || '!'")
        connection.commit()
        assert connection.total_changes


def damage_version(path: Path) -> None:
    """Change what a block once held."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE block_versions SET value = value || '!'")
        connection.commit()
        assert connection.total_changes


def make_newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO schema_migrations (number, name) VALUES (999, 'later')")
        connection.commit()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def make_other(path: Path) -> None:
    path.write_text("no database, certainly none " * 200)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (damage_page, StoreDamaged),
        (damage_schema, StoreDamaged),
        (damage_letter, StoreDamaged),
        (damage_block, StoreDamaged),
        (damage_version, StoreDamaged),
        (make_newer, StoreTooNew),
        (empty, NotAStore),
        (make_other, NotAStore),
        (Path.unlink, InvalidInput),
    ],
)
def test_a_backup_that_is_not_whole_is_refused(spoil: object, error: type[Exception], tmp_path: Path) -> None:
    """The store stays as it is, and nothing is left beside it."""
    path, backup = tmp_path / "perdure.db", tmp_path / "backup.db"
    for file in (path, backup):
        shutil.copyfile(filled_store(), file)
    spoil(backup)  # type: ignore[operator]
    before = path.read_bytes()
    with pytest.raises(error) as told:
        put_back(backup, path)

    assert error is not StoreDamaged or "take another backup" in str(told.value)
    assert "perdure restore FILE" not in str(told.value)
    assert path.read_bytes() == before
    assert {file.name for file in tmp_path.iterdir()} <= {"perdure.db", "backup.db", "perdure.db-mark"}


def test_a_damaged_store_is_replaced_and_kept_with_its_log(tmp_path: Path) -> None:
    """It can't be opened, so its log stays a file of its own."""
    path, backup = tmp_path / "perdure.db", tmp_path / "backup.db"
    for file in (path, backup):
        shutil.copyfile(filled_store(), file)
    path.write_bytes(bytes(4_096) + path.read_bytes()[4_096:])
    (tmp_path / "perdure.db-wal").write_bytes(b"a log" * 100)
    report = put_back(backup, path)

    assert names_in(path) == names_in(backup)
    assert Path(report.kept).read_bytes()[:4_096] == bytes(4_096)
    assert Path(f"{report.kept}-wal").read_bytes() == b"a log" * 100


def test_a_backup_of_an_older_version_is_brought_up(tmp_path: Path) -> None:
    """Only in its new place: the backup itself stays as it is."""
    path, backup = tmp_path / "perdure.db", tmp_path / "backup.db"
    shutil.copyfile(filled_store(), backup)
    with closing(sqlite3.connect(backup)) as connection:
        connection.execute("DELETE FROM schema_migrations WHERE number = 70")
        connection.execute("ALTER TABLE schema_migrations DROP COLUMN least")
        connection.commit()
    before = backup.read_bytes()
    put_back(backup, path)

    assert backup.read_bytes() == before
    assert read_backup(path).agents == read_backup(backup).agents
