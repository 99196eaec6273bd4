"""Files of other versions: an older one is brought up with its data, a newer one is refused and not touched."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from perdure.core.errors import StoreError, StoreTooNew
from perdure.core.ids import DEFAULT_ORG, AgentId, ToolId
from perdure.core.specs import Tool, ToolCode, ToolSpec
from perdure.storage.database.base import Database
from perdure.storage.migrations import MIGRATIONS, SCHEMA_VERSION, Migration
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.testing.clock import START
from tests.contracts.base import Contract, list_texts, match_messages
from tests.support.postgres_server import address_of_a_new_schema, run_sql

pytestmark = pytest.mark.migrates

units = Contract()


def add_nickname(db: Database) -> None:
    # Rows that are there already get one, so the upgrade is seen to have met them.
    db.run("ALTER TABLE agents ADD COLUMN nickname TEXT", {})
    db.run("UPDATE agents SET nickname = 'old ' || name", {})


def break_half_way(db: Database) -> None:
    add_nickname(db)
    raise RuntimeError("the power went out")


def with_new(*added: Callable[[Database], None]) -> list[Migration]:
    """The migrations of a newer version: all of today's, and these after them."""
    numbered = enumerate(added, start=SCHEMA_VERSION + 1)
    return [*MIGRATIONS, *(Migration(number, apply.__name__, apply) for number, apply in numbered)]


async def create_store(path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> AgentId:
    """Create a store file with one agent and two messages, and close it."""
    store = SqliteStore.open(path, at=START, migrations=migrations)
    agent = await store.write(units.add_agent, "ada")
    await store.write(units.say, agent.id, "a walrus", "a penguin")
    await store.close()
    return agent.id


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


async def test_a_new_file_records_its_migrations(tmp_path: Path) -> None:
    """Each migration is recorded with its number, in order, and none runs twice."""
    path = tmp_path / "perdure.db"
    for _ in range(2):
        await SqliteStore.open(path, at=START).close()

        recorded = rows(path, "SELECT number, name FROM schema_migrations ORDER BY number")
        assert recorded == [(number, name) for number, name, *_ in MIGRATIONS]
    numbers = [number for number, *_ in MIGRATIONS]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == SCHEMA_VERSION


async def test_agents_of_an_older_file_with_the_built_in_program_follow_the_default(tmp_path: Path) -> None:
    """Every other agent keeps its model."""
    path = tmp_path / "perdure.db"
    older = [migration for migration in MIGRATIONS if migration[0] < 37]
    await SqliteStore.open(path, at=START, migrations=older).close()
    columns = "id, org_id, number, name, agent_type, timezone, created_at, updated_at, model"
    with sqlite3.connect(path) as connection:
        for number, model in enumerate(("perdure/extractive", "openai/gpt-4.1")):
            values = (f"agent-{number}", DEFAULT_ORG, 1000 + number, "a", "x", "UTC", "", "", model)
            connection.execute(f"INSERT INTO agents ({columns}) VALUES ({', '.join('?' * 9)})", values)
    connection.close()
    await SqliteStore.open(path, at=START).close()

    assert rows(path, "SELECT model, follows_default FROM agents ORDER BY number") == [
        ("perdure/extractive", 1),
        ("openai/gpt-4.1", 0),
    ]


async def test_names_of_an_older_file_are_found_in_every_form(tmp_path: Path) -> None:
    """One that was stored with its marks apart has one form from then on; one that two forms had is there once."""
    path = tmp_path / "perdure.db"
    older = [migration for migration in MIGRATIONS if migration[0] < 82]
    await SqliteStore.open(path, at=START, migrations=older).close()
    with sqlite3.connect(path) as connection:
        stored = [("graph-1", name, seq) for name, seq in (("jose\u0301", 1), ("josé", 1), ("ada", 2), ("ａｄａ", 3))]
        connection.executemany("INSERT INTO entity_names (graph_id, name, seq) VALUES (?, ?, ?)", stored)
    connection.close()
    await SqliteStore.open(path, at=START).close()

    names = "SELECT name, seq FROM entity_names ORDER BY seq"
    assert rows(path, names) == [("josé", 1), ("ada", 2), ("ada", 3)]


async def test_an_older_file_is_brought_up_with_its_data(tmp_path: Path) -> None:
    """Everything that was stored is there, the migration has met it, and search still finds it."""
    path = tmp_path / "perdure.db"
    agent_id = await create_store(path)
    store = SqliteStore.open(path, at=START, migrations=with_new(add_nickname))
    assert await store.read(list_texts, agent_id) == ["a walrus", "a penguin"]
    assert await store.read(match_messages, agent_id, "penguin") == [1]
    await store.write(units.say, agent_id, "a third")
    await store.close()

    assert rows(path, "SELECT nickname FROM agents") == [("old ada",)]
    assert rows(path, "SELECT MAX(number) FROM schema_migrations") == [(SCHEMA_VERSION + 1,)]


async def test_an_upgrade_that_fails_leaves_the_older_file(tmp_path: Path) -> None:
    """A migration is one transaction: broken half-way, nothing of it is there, and the older version still opens it."""
    path = tmp_path / "perdure.db"
    agent_id = await create_store(path)
    with pytest.raises(RuntimeError):
        SqliteStore.open(path, at=START, migrations=with_new(break_half_way))

    assert "nickname" not in {row[1] for row in rows(path, "PRAGMA table_info(agents)")}
    store = SqliteStore.open(path, at=START)
    assert await store.read(list_texts, agent_id) == ["a walrus", "a penguin"]
    await store.close()


async def test_a_newer_file_is_refused_and_not_touched(tmp_path: Path) -> None:
    """The error says which versions, and the file stays byte for byte, with nothing beside it."""
    path = tmp_path / "perdure.db"
    await create_store(path, with_new(add_nickname))
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match="upgrade Perdure") as caught:
        SqliteStore.open(path, at=START)

    assert (caught.value.found, caught.value.known) == (SCHEMA_VERSION + 1, SCHEMA_VERSION)
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["perdure.db", "perdure.db-mark"]


async def test_postgres_is_brought_up_and_refused_alike() -> None:
    """An older database is migrated with its data; a newer one is refused."""
    address = address_of_a_new_schema()
    store = await PostgresStore.open(address, at=START)
    agent = await store.write(units.add_agent, "grace")
    await store.close()
    store = await PostgresStore.open(address, at=START, migrations=with_new(add_nickname))
    assert await store.read(lambda tx: tx.agents.get(agent.id)) == agent
    await store.close()
    assert run_sql(address, "SELECT nickname FROM agents") == [("old grace",)]
    with pytest.raises(StoreTooNew):
        await PostgresStore.open(address, at=START)

    assert run_sql(address, "SELECT MAX(number) FROM schema_migrations") == [(SCHEMA_VERSION + 1,)]


async def test_a_store_from_before_the_first_release_is_refused(tmp_path: Path) -> None:
    """By its version, and it is left as it is."""
    path = tmp_path / "perdure.db"
    await SqliteStore.open(path, at=START, migrations=[one for one in MIGRATIONS if one.number < 8]).close()
    before = path.read_bytes()

    with pytest.raises(StoreError, match="tables of version 6, from before any release"):
        SqliteStore.open(path, at=START)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("stored", "hosts"), [(True, ("*",)), (False, ()), (["a.test"], ("a.test",))])
async def test_a_tool_that_declared_a_network_lists_every_public_host(
    tmp_path: Path, stored: object, hosts: tuple[str, ...]
) -> None:
    """Older ones say true or false, and say it no more once they are changed."""
    path = tmp_path / "perdure.db"
    store = SqliteStore.open(path, at=START)
    spec = ToolSpec(name="look", description="Look.", parameters={"type": "object"}, kind="custom")
    tool = Tool(id=ToolId("tool-look"), spec=spec)
    code = ToolCode(source="def look(): ...", function="look")
    await store.write(lambda tx: tx.tools.add(tool, code=code, at=START))
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE tools SET code = json_set(code, '$.network', json(?))", (json.dumps(stored),))
    connection.commit()
    connection.close()

    store = SqliteStore.open(path, at=START)
    found = await store.read(lambda tx: tx.tools.code(tool.id))
    await store.close()

    assert found is not None
    assert found.network == hosts
