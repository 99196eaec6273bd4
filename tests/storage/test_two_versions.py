"""Two versions on one store: the older one goes on under load while the newer one migrates, and both live until the
older one has drained. Migrations that the older one can't live with keep it out."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import psycopg
import pytest

from perdure.core.errors import StoreBusy, StoreTooNew
from perdure.core.ids import AgentId
from perdure.storage.database.base import Database
from perdure.storage.migrations import MIGRATIONS, SCHEMA_VERSION, Migration
from perdure.storage.store import Store
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.storage.stores.postgres_upgrade import upgrade
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.contracts.base import Contract, list_texts
from tests.support.postgres_server import address_of_a_new_schema

pytestmark = pytest.mark.migrates

units = Contract()
Open = Callable[[Sequence[Migration]], Awaitable[Store]]
WRITERS, WRITES = 4, 25
WAITING = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'messages'::regclass"


def expand(db: Database) -> None:
    """What a newer version may add: columns, tables and indexes, also of tables that are written all the time."""
    db.run("ALTER TABLE agents ADD COLUMN nickname TEXT NOT NULL DEFAULT 'none'", {})
    db.run("ALTER TABLE messages ADD COLUMN mood TEXT", {})
    db.run("CREATE TABLE moods (agent_id TEXT NOT NULL, seq BIGINT NOT NULL, PRIMARY KEY (agent_id, seq))", {})
    db.run("CREATE INDEX messages_by_mood ON messages (agent_id, mood) WHERE mood IS NOT NULL", {})


NUMBER = SCHEMA_VERSION + 1
NEWER = [*MIGRATIONS, Migration(NUMBER, "moods", expand, SCHEMA_VERSION)]
CONTRACTED = [*NEWER, Migration(NUMBER + 1, "no_nickname", lambda db: None)]


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens one store, as a version that knows these migrations does."""
    address = address_of_a_new_schema() if request.param == "postgres" else ""

    async def opened(migrations: Sequence[Migration]) -> Store:
        if address:
            return await PostgresStore.open(address, at=START, migrations=migrations)
        return SqliteStore.open(tmp_path / "perdure.db", at=START, migrations=migrations)

    return opened


async def write_all(store: Store, agent_id: AgentId, name: str, *, begun: asyncio.Event | None = None) -> list[str]:
    """Write and read messages one after the other; return the texts that were acknowledged."""
    told = []
    for number in range(WRITES):
        text = f"{name} {number}"
        await store.write(units.say, agent_id, text)
        told.append(text)
        assert text in await store.read(list_texts, agent_id)
        if begun is not None and number == 2:
            begun.set()
    return told


@pytest.mark.slow
async def test_an_older_version_goes_on_while_a_newer_one_migrates(open_store: Open) -> None:
    """No request of either fails, nothing that was acknowledged is missing, and the older one may even start anew."""
    old = await open_store(MIGRATIONS)
    agents = [(await old.write(units.add_agent, f"agent {number}")).id for number in range(WRITERS)]
    begun = asyncio.Event()
    loads = [asyncio.create_task(write_all(old, agent, "old", begun=begun)) for agent in agents]
    await begun.wait()
    new = await open_store(NEWER)
    also = [asyncio.create_task(write_all(new, agent, "new")) for agent in agents]
    told = [await asyncio.gather(*tasks) for tasks in (loads, also)]
    await old.close()
    again = await open_store(MIGRATIONS)
    await again.write(units.say, agents[0], "old again")
    await again.close()
    texts = [await new.read(list_texts, agent) for agent in agents]
    await new.close()

    assert "old again" in texts[0]
    for number in range(WRITERS):
        assert {*told[0][number], *told[1][number]} <= {*texts[number]}
        assert len(texts[number]) == 2 * WRITES + (number == 0)


async def test_a_migration_and_a_unit_that_wait_for_each_other_both_go_on() -> None:
    """The unit holds what the migration needs, and then needs what the migration holds; PostgreSQL ends one of them."""
    address = address_of_a_new_schema()
    old = await PostgresStore.open(address, at=START)
    await old.write(units.add_agent, "Ada")
    begun = threading.Event()
    tries = []

    def read_messages_and_then_agents(tx: Tx) -> int:
        tries.append(0)
        tx._db.rows("SELECT 1 FROM messages", {})
        begun.set()
        deadline = time.monotonic() + 10
        while len(tries) == 1 and not tx._db.rows(WAITING, {}) and time.monotonic() < deadline:
            time.sleep(0.01)
        return len(tx._db.rows("SELECT 1 FROM agents", {}))

    unit = asyncio.create_task(old.write(read_messages_and_then_agents))
    await asyncio.to_thread(begun.wait)
    new = await PostgresStore.open(address, at=START, migrations=NEWER)

    assert await unit == 1
    await new.close()
    await old.close()


async def test_an_upgrade_does_not_wait_for_ever_for_a_long_transaction() -> None:
    """It says that others hold the tables, and has changed nothing; when they end, it succeeds."""
    address = address_of_a_new_schema()
    await (await PostgresStore.open(address, at=START)).close()
    with psycopg.connect(address) as backup, psycopg.connect(address) as connection:
        backup.execute("SELECT 1 FROM messages")
        with pytest.raises(StoreBusy, match="a backup or another long transaction"):
            upgrade(connection, migrations=NEWER, at=START, patience_s=0)
        backup.commit()
        columns = "SELECT 1 FROM information_schema.columns WHERE table_name = 'agents' AND column_name = 'nickname'"
        columns += " AND table_schema = current_schema()"
        assert connection.execute(columns.encode()).fetchall() == []

        upgrade(connection, migrations=NEWER, at=START, patience_s=0)
        assert len(connection.execute(columns.encode()).fetchall()) == 1


async def test_a_version_that_can_not_live_with_a_migration_is_refused(open_store: Open) -> None:
    """One incompatible migration is enough, whatever stands before or behind it."""
    await (await open_store([*CONTRACTED, Migration(NUMBER + 2, "more", lambda db: None, NUMBER + 1)])).close()
    for known in (MIGRATIONS, NEWER):
        with pytest.raises(StoreTooNew, match="upgrade Perdure"):
            await open_store(known)

    await (await open_store(CONTRACTED)).close()
