"""A backup is the whole store at one moment, made while others write; what goes wrong leaves no file."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput, StoreClosed
from perdure.storage.stores import sqlite
from perdure.storage.stores.postgres_store import BACKUPS, PostgresStore
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.contracts.base import Contract, list_texts
from tests.support.postgres_server import address_of_a_new_schema

units = Contract()
"""For its units of work; it opens nothing."""


async def test_a_backup_made_during_writes_is_one_moment_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process's commits neither wait for it, nor begin it anew, nor get into it by half."""
    monkeypatch.setattr(sqlite, "BACKUP_PAGES", 10)
    source = SqliteStore.open(tmp_path / "p.db", at=START)
    agent = await source.write(lambda tx: _add_agent_with_texts(tx))
    steps: list[tuple[int, int]] = []

    def commit(done: int, total: int) -> None:
        steps.append((done, total))
        with contextlib.closing(sqlite3.connect(tmp_path / "p.db", isolation_level=None)) as writer:
            writer.execute("UPDATE agents SET name = ?", (f"name {done}",))

    await source.backup(tmp_path / "copy.db", commit)
    await source.close()
    copy = SqliteStore.open(tmp_path / "copy.db", at=START)
    texts = await copy.read(list_texts, agent.id)
    name = (await copy.read(lambda tx: tx.agents.get(agent.id))).name
    faults = await copy.read(lambda tx: tx.upkeep.integrity())
    await copy.close()

    assert len(texts) == 40 and name == "ada" and not faults
    assert [done for done, _ in steps] == sorted({done for done, _ in steps}) and len(steps) > 5
    assert steps[-1][0] == steps[-1][1]
    assert (tmp_path / "copy.db").stat().st_mode & 0o077 == 0


async def test_a_backup_never_replaces_a_file(tmp_path: Path) -> None:
    """Nor is it made in a folder that is not there; the error names the file."""
    store = SqliteStore.open(tmp_path / "p.db", at=START)
    (tmp_path / "mine.txt").write_text("mine")
    for name in ("mine.txt", "p.db", "nowhere/copy.db"):
        with pytest.raises(InvalidInput, match=name):
            await store.backup(tmp_path / name)
    await store.close()
    with pytest.raises(StoreClosed):
        await store.backup(tmp_path / "late.db")

    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert not (tmp_path / "late.db").exists()


async def test_a_backup_that_ends_early_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither when its caller is cancelled nor when its progress raises."""
    monkeypatch.setattr(sqlite, "BACKUP_PAGES", 1)
    store = SqliteStore.open(tmp_path / "p.db", at=START)
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def report(done: int, total: int) -> None:
        loop.call_soon_threadsafe(begun.set)

    def fail(done: int, total: int) -> None:
        raise RuntimeError("no more")

    task = asyncio.create_task(store.backup(tmp_path / "copy.db", report))
    await begun.wait()
    task.cancel()
    await asyncio.wait({task})
    with pytest.raises(RuntimeError, match="no more"):
        await store.backup(tmp_path / "other.db", fail)
    await store.close()

    assert task.cancelled()
    assert _names(tmp_path) <= {"p.db", "p.db-mark", "p.db-wal", "p.db-shm"}


def _add_agent_with_texts(tx: Tx) -> Agent:
    agent = units.add_agent(tx)
    units.say(tx, agent.id, *("a text of some length " * 40 for _ in range(40)))
    return agent


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_a_program_that_cannot_copy_a_database_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody must believe that there is a backup where there is none."""
    monkeypatch.setattr(BACKUPS, "functions", [])
    store = await PostgresStore.open(address_of_a_new_schema(), at=START)

    with pytest.raises(InvalidInput, match="pg_dump"):
        await store.backup(tmp_path / "copy.db")

    await store.close()
