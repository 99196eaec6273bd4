"""Which node each table's rows lie on, and whether the statements of the hot paths say it."""

from __future__ import annotations

import asyncio
import re

import pytest

from perdure import AsyncPerdure
from perdure.storage.distribution import (
    FAMILIES,
    LOCAL,
    NEW_KEYS,
    REFERENCE,
    citus_statements,
    distributed,
    preparation,
)
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.testing import ScriptedModel, SequentialIds, calls, says
from perdure.testing.clock import START
from tests.support.partitions import PARTS, Recording, parts_read, record, split_tables
from tests.support.postgres_server import address_of_a_new_schema, address_of_an_empty_store, run_sql

FAMILY_OF = {table: first for first, tables in FAMILIES.items() for table in tables}
OF_ALL_SHARDS = {
    "SELECT d.settings FROM agents a JOIN agent_details d": "who shares memory, asked behind content from outside only",
    "UPDATE runs AS r SET lease_owner = NULL": "a process that closes releases all its runs",
    "UPDATE group_turns AS r SET lease_owner = NULL": "the same for turns of groups",
    "UPDATE erasures SET owner = ''": "the same for erasures",
    "AND r.status IN ('queued', 'running') AND (r.resumes IS NOT NULL OR": "runs to take over, at each start",
    "AND (r.lease_until IS NULL OR r.lease_until < :at)": "the same, in the pauses of each process",
    "FROM group_turns r WHERE": "turns of groups to take over",
    "FROM companion_passes p WHERE p.ended_at IS NULL": "passes to take over",
    "FROM erasures e WHERE ended_at IS NULL": "erasures to take over",
    "SELECT DISTINCT r.agent_id FROM resetting r": "resets to carry out",
    "EXISTS (SELECT 1 FROM agents WHERE org_id = :deleted)": "deletes to carry out",
    "a.hidden = 1 AND a.number > :after": "ephemeral conversations that nobody uses, looked for in pauses",
    "FROM file_uploads WHERE created_at < :before": "uploads that were never ended, looked for in pauses",
    "SELECT DISTINCT m.agent_id, m.conversation_seq FROM (SELECT": "newest messages without facts, at each start",
    "FROM schedules s WHERE s.next_at": "due schedules",
    "SELECT MIN(s.next_at) FROM schedules s": "when the next one is due",
    "t.callback_due_at <= :at": "due callbacks",
    "FROM groups WHERE org_id = :org_id AND kind IN (:w0, :w1)": "agents with companions, at the start of a process",
    "SELECT agent_id FROM agent_archives WHERE archive_id = :archive_id": "who has an archive that a client wrote to",
    ":id IN (fact_archive_id, entity_archive_id)": "whether an archive is a graph's, by an index",
}
"""Parts of the statements that read every shard -> why they may."""


@pytest.fixture(scope="module")
def split_address() -> str:
    """A store whose tables are split by their columns of distribution."""
    address = address_of_a_new_schema()
    asyncio.run(_create(address))
    split_tables(address)
    return address


async def _create(address: str) -> None:
    await (await PostgresStore.open(address, at=START)).close()


def test_each_table_has_a_place() -> None:
    """A new table needs a line in `storage/distribution.py`, and its column has to exist and never be null."""
    address = address_of_an_empty_store()
    columns = run_sql(
        address,
        "SELECT c.table_name, c.column_name FROM information_schema.columns c WHERE c.table_schema = current_schema()"
        " AND c.is_nullable = 'NO'",
    )
    tables = {
        name for (name,) in run_sql(address, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    }
    listed = [*distributed(), *REFERENCE, *LOCAL]

    assert sorted(listed) == sorted(map(str, {one for one in tables if not str(one).endswith("at_first")})), (
        "storage/distribution.py has a line for each table"
    )
    assert set(distributed().items()) <= set(columns)


def test_each_family_lies_beside_its_first_table() -> None:
    statements = citus_statements()

    assert "SELECT create_distributed_table('agents', 'id', colocate_with => 'none')" in statements
    assert "SELECT create_distributed_table('messages', 'agent_id', colocate_with => 'agents')" in statements
    assert all(next(iter(tables)) == first for first, tables in FAMILIES.items())


def test_no_unique_index_lacks_the_column(split_address: str) -> None:
    """PostgreSQL has the rule of Citus for the unique indexes of a table in parts, so it took all of them."""
    rows = run_sql(
        split_address,
        "SELECT relname FROM pg_class WHERE relkind = 'p' AND relnamespace = current_schema()::regnamespace",
    )

    assert {name for (name,) in rows} == set(distributed())


async def test_hot_paths_name_the_key_of_one_family(split_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner knows from each statement alone which shards it needs, and they are of one family."""
    with record(monkeypatch) as recording:
        await _run_hot_paths(split_address, recording)
    assert {"messages", "events", "steps", "passages", "message_words"} <= _tables_written(recording)

    for sql, params in recording.statements.items():
        parts = parts_read(split_address, sql, params)
        if any(part in sql for part in OF_ALL_SHARDS):
            continue
        assert len({FAMILY_OF.get(table) for table in parts}) <= 1, f"two families: {sql}"
        assert all(count < PARTS for count in parts.values()), f"all shards of {parts}: {sql}"
        if match := re.match(r"UPDATE (\w+)(?: AS \w+)? SET (.*?) WHERE ", sql):
            key = distributed().get(match[1], "-")
            assert not re.search(rf"(^|, ){key} = ", match[2]), f"{key} can't change: {sql}"
        if match := re.match(r"INSERT INTO (\w+) \((.*?)\)", sql):
            assert distributed().get(match[1], "") in ("", *match[2].split(", ")), f"no key: {sql}"


def test_the_preparation_keeps_what_was_indexed() -> None:
    """A unique constraint that goes leaves an index of its column."""
    statements = preparation()

    dropped = [statement for statement in statements if re.search(r"DROP CONSTRAINT \w+$", statement)]
    of_new_keys = sum(bool(column) for _, column in NEW_KEYS.values())
    assert len(dropped) == sum(statement.startswith("CREATE INDEX") for statement in statements) - of_new_keys


async def _run_hot_paths(address: str, recording: Recording) -> None:
    """Send, edit memory, search, page, list and follow; an agent's creation is not recorded."""
    model = ScriptedModel(
        calls("memory_insert", label="human", new_string="likes Go"),
        says("noted"),
        calls("archival_memory_insert", content="Ada wrote notes"),
        calls("archival_memory_search", query="Ada notes"),
        calls("conversation_search", query="hello"),
        says("done"),
    )
    async with await AsyncPerdure.open(address, models={"test/m": model}, ids=SequentialIds()) as perdure:
        agent = await perdure.create_agent("Ada", model="test/m", archival=True, human="Bob")
        recording.statements.clear()
        for text in ("hello there", "what of Ada?", "and again, hello?"):
            reply = await agent.send(text)
        async for _ in agent.follow(reply.run_id):
            pass
        await agent.messages()
        await agent.archive("Grace likes COBOL")
        await agent.search_archive("COBOL")
        await agent.search("hello")
        await agent.recall("Ada")
        await agent.runs()
        await agent.steps()
        await asyncio.sleep(0.3)  # what follows a run in the background is recorded too


def _tables_written(recording: Recording) -> set[str]:
    inserts = (re.match(r"INSERT INTO (\w+)", sql) for sql in recording.statements)
    return {match[1] for match in inserts if match}
