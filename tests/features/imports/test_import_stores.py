"""Imports into PostgreSQL, and out of a database of Letta's server there; several at once; and the largest chat."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure.testing import says
from tests.features.imports import golden
from tests.support.library import open_async, open_sync
from tests.support.stores import new_address

pytest.importorskip("psycopg", reason="psycopg is installed by `make setup`")


@pytest.mark.slow
@pytest.mark.parametrize("source", golden.WRITERS)
def test_postgresql_takes_each_import_once(tmp_path: Path, source: Any) -> None:
    place = golden.WRITERS[source](tmp_path)
    address: Any = new_address(tmp_path, postgres=True)
    with open_sync(address) as store:
        first = store.imports.run(source, place)
        again = store.imports.run(source, place)

    assert first.new > 0 and again.new == 0


def test_a_database_of_letta_on_postgresql_is_read_as_a_file_is(tmp_path: Path) -> None:
    import psycopg

    place, address = golden.write_letta(tmp_path), new_address(tmp_path, postgres=True)
    with closing(sqlite3.connect(place)) as old, psycopg.connect(address) as new:
        for (name,) in old.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = old.execute(f"PRAGMA table_info({name})").fetchall()
            kinds = {"JSON": "json", "INT": "int", "BLOB": "bytea"}
            shapes = ", ".join(f'"{one[1]}" {kinds.get(one[2], "text")}' for one in columns)
            new.execute(f"CREATE TABLE {name} ({shapes})")
            for row in old.execute(f"SELECT * FROM {name}").fetchall():
                new.execute(f"INSERT INTO {name} VALUES ({', '.join(['%s'] * len(row))})", row)
    with open_sync(tmp_path / "a.db") as one, open_sync(tmp_path / "b.db") as other:
        first, second = one.imports.run("letta-db", place), other.imports.run("letta-db", address)
        texts = [[(m.role, m.parts) for m in store.agent("Sam").messages()] for store in (one, other)]

    assert (first.messages, first.memories, first.left_out) == (second.messages, second.memories, second.left_out)
    assert texts[0] == texts[1]


async def test_two_imports_of_the_same_at_once_bring_it_once(tmp_path: Path) -> None:
    place = golden.write_chatgpt(tmp_path)
    async with await open_async(tmp_path / "perdure.db") as store:
        await store.create_agent("chatgpt")
        found = await asyncio.gather(*(store.imports.run("chatgpt", place) for _ in range(4)))
        agent = await store.agent("chatgpt")
        texts = [one.text for one in await agent.messages(limit=100)]

    assert len(texts) == len({*texts}) == 8
    assert all(report.messages.total == 8 for report in found)


async def test_a_conversation_goes_on_here_and_takes_what_is_new_at_the_source(tmp_path: Path) -> None:
    """What was said here stays, and a run that has not ended leaves the conversation out for now."""
    nodes = golden.chatgpt()
    place = golden.write_json(tmp_path / "conversations.json", nodes)
    async with await open_async(tmp_path / "perdure.db", says("Here I am")) as store:
        await store.imports.run("chatgpt", place)
        agent = await store.agent("chatgpt")
        line = (await agent.conversations())[1]
        await agent.send("Are you there?", conversation=line.id)
        nodes[0]["mapping"]["n1"] = golden.node("n1", "a2b", "user", "And what shall I drink?", at=golden.DAY + 500)
        nodes[0]["current_node"] = "n1"
        golden.write_json(place, nodes)
        report = await store.imports.run("chatgpt", place)
        texts = [one.text for one in await agent.messages(conversation=line.id)]

    assert report.messages.new == 1 and report.withdrawn == 0
    assert texts[-3:] == ["Are you there?", "Here I am", "And what shall I drink?"]
