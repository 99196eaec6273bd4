"""The files of a store: what SQLite passes over in silence is told, and what is as it should be never is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.core.errors import NotAStore, StoreDamaged
from perdure.storage.database import sqlite_file
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.testing.clock import START
from tests.contracts.base import Contract, list_texts

units = Contract()


def killed(home: Path, *, texts: int = 3) -> Path:
    """The store of a process that was killed: what it had on the disk then."""
    live, left = home / "live", home / "left"
    live.mkdir()

    async def talk() -> None:
        store = SqliteStore.open(live / "perdure.db", at=START)
        agent = await store.write(units.add_agent)
        for number in range(texts):
            await store.write(units.say, agent.id, f"message {number}")
        shutil.copytree(live, left)
        await store.close()

    asyncio.run(talk())
    path = left / "perdure.db"
    noted = sqlite_file._load_note(path)
    if noted is not None:  # it names the file that it was noted for: here the copy
        sqlite_file.MarkFile(path).note(noted.mark)
    return path


def read_texts(path: Path) -> list[str]:
    """What was said, of a store that opens."""

    async def read() -> list[str]:
        store = SqliteStore.open(path, at=START)
        agents = await store.read(lambda tx: tx.agents.list())
        found = await store.read(list_texts, agents[0].id) if agents else []
        await store.close()
        return list(found)

    return asyncio.run(read())


def test_a_killed_store_opens(tmp_path: Path) -> None:
    """With its log nothing is lost, and nothing is told."""
    assert read_texts(killed(tmp_path)) == ["message 0", "message 1", "message 2"]


def test_a_log_that_is_gone_is_told(tmp_path: Path) -> None:
    """The store is not opened, and not touched, until somebody accepts the loss."""
    path = killed(tmp_path)
    path.with_name("perdure.db-wal").unlink()
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"its log perdure\.db-wal is gone, .*--accept-loss"):
            read_texts(path)
    assert path.read_bytes() == before
    sqlite_file.forget_mark(path)

    assert len(read_texts(path)) < 3


def test_a_log_that_was_cut_is_told(tmp_path: Path) -> None:
    """SQLite takes a log up to where it ends."""
    path = killed(tmp_path)
    log = path.with_name("perdure.db-wal")
    at = log.stat()
    os.truncate(log, 4_096)
    os.utime(log, ns=(at.st_atime_ns, at.st_mtime_ns))

    with pytest.raises(StoreDamaged, match="is gone, or was cut"):
        read_texts(path)


def test_an_empty_store_beside_a_log_is_refused(tmp_path: Path) -> None:
    """SQLite would take it for a new one, and delete the log."""
    for name, spoil in (("emptied", lambda path: os.truncate(path, 0)), ("gone", Path.unlink)):
        (tmp_path / name).mkdir()
        path = killed(tmp_path / name)
        spoil(path)
        log = path.with_name("perdure.db-wal").read_bytes()
        with pytest.raises(StoreDamaged, match=r"is empty, but its log perdure\.db-wal is not .* restore a backup"):
            read_texts(path)

        assert path.with_name("perdure.db-wal").read_bytes() == log


def restore_over(path: Path, backup: Path) -> None:
    shutil.copyfile(backup, path)


def restore_by_name(path: Path, backup: Path) -> None:
    backup.replace(path)


def restore_with_sqlite(path: Path, backup: Path) -> None:
    with contextlib.closing(sqlite3.connect(backup)) as source, contextlib.closing(sqlite3.connect(path)) as target:
        source.backup(target)


@pytest.mark.parametrize("restore", [restore_over, restore_by_name, restore_with_sqlite])
@pytest.mark.parametrize("vacuumed", [False, True])
def test_a_backup_that_is_put_back_is_no_loss(
    tmp_path: Path, restore: Callable[[Path, Path], None], vacuumed: bool
) -> None:
    """It has an older mark than the file beside it, and lacks nothing."""
    path, backup = tmp_path / "perdure.db", tmp_path / "backup.db"

    async def talk() -> None:
        store = SqliteStore.open(path, at=START)
        agent = await store.write(units.add_agent)
        await store.write(units.say, agent.id, "before")
        with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(backup)) as target:
            if vacuumed:
                source.execute("VACUUM INTO ?", (str(tmp_path / "vacuumed.db"),))
            else:
                source.backup(target)
        store._marks._next_s = 0
        await store.write(units.say, agent.id, "after")
        await store.close()

    asyncio.run(talk())
    if vacuumed:
        (tmp_path / "vacuumed.db").replace(backup)
    for rest in ("perdure.db-wal", "perdure.db-shm"):
        (tmp_path / rest).unlink(missing_ok=True)
    restore(path, backup)

    assert read_texts(path) == ["before"]


def test_a_store_that_is_deleted_and_made_anew_is_no_loss(tmp_path: Path) -> None:
    """Whoever removes it may leave the file beside it."""
    path = killed(tmp_path)
    path.with_name("perdure.db-wal").unlink()
    path.unlink()

    assert read_texts(path) == []


def test_a_mark_is_written_once_a_second_at_most(tmp_path: Path) -> None:
    """So that messages don't pay for it."""
    notes: list[int] = []

    async def talk() -> None:
        store = SqliteStore.open(tmp_path / "perdure.db", at=START)
        store._marks.note = notes.append  # type: ignore[assignment,method-assign]
        store._marks._next_s = 0
        agent = await store.write(units.add_agent)
        store._marks._next_s = float("inf")
        for _ in range(20):
            await store.write(units.say, agent.id, "hello")
        await store.close()

    asyncio.run(talk())

    assert len(notes) == 1


@pytest.mark.parametrize("bytes_gone", [16, 100, 4_096])
def test_a_header_that_is_gone_is_damage(tmp_path: Path, bytes_gone: int) -> None:
    """And not a file of another program, which stays one."""
    path = tmp_path / "perdure.db"
    asyncio.run(SqliteStore.open(path, at=START).close())
    with path.open("r+b") as file:
        file.write(bytes(bytes_gone))
    with pytest.raises(StoreDamaged, match=r"is damaged \(its header is gone\): restore a backup"):
        read_texts(path)
    path.write_bytes(b"no database, certainly none " * 1_000)

    with pytest.raises(NotAStore, match="choose another path"):
        read_texts(path)


def test_tables_or_an_id_that_are_gone_are_damage(tmp_path: Path) -> None:
    """They would be made anew, or the store be taken for another program's."""
    path = tmp_path / "perdure.db"
    with contextlib.closing(sqlite3.connect(path)) as empty:
        empty.execute("PRAGMA application_id = 0x50455244")
    with pytest.raises(StoreDamaged, match="its tables are gone"):
        read_texts(path)
    path.unlink()
    asyncio.run(SqliteStore.open(path, at=START).close())
    with contextlib.closing(sqlite3.connect(path)) as spoilt:
        spoilt.execute("PRAGMA application_id = 7")

    with pytest.raises(StoreDamaged, match="its application id is 0x7"):
        read_texts(path)
