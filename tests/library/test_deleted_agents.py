"""Agents that are deleted: gone at once, removed in steps, also by the next process."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, NotFound
from perdure.core.errors import StoreDamaged, StoreFull
from perdure.engine.conversations.reset import finish_removals
from perdure.library.parts.checks import outside
from perdure.testing import ScriptedModel
from perdure.testing.clock import START

MODEL = "test/scripted"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
MESSAGES = 1_000


async def open_library(path: Path) -> AsyncPerdure:
    return await AsyncPerdure.open(path / "p.db", models={MODEL: ScriptedModel()})


async def talkative(perdure: AsyncPerdure) -> str:
    """An agent with a long history, and what else an agent may have."""
    agent = await perdure.create_agent(model=MODEL)
    said = [("user", None, f"walrus {number}", BEGAN + timedelta(minutes=number)) for number in range(MESSAGES)]
    await agent.import_messages(said)
    return agent.id


def rows_of(path: Path, agent_id: str) -> int:
    """How many rows of the agent a store has, in all tables."""
    connection = sqlite3.connect(path / "p.db")
    count = 0
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for column in {row[1] for row in connection.execute(f"PRAGMA table_info({table})")} & {"agent_id", "owner_id"}:
            (found,) = connection.execute(f"SELECT COUNT(*) FROM {table} WHERE {column} = ?", [agent_id]).fetchone()
            count += found
    connection.close()
    return count


async def test_a_large_agent_is_removed_in_small_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others write between any two of them; none of them changes more than some hundred rows."""
    perdure = await open_library(tmp_path)
    agent_id = await talkative(perdure)
    left = [rows_of(tmp_path, agent_id)]
    write = perdure.app.store.write

    async def watched(*args: Any, **kwargs: Any) -> Any:
        result: Any = await write(*args, **kwargs)
        left.append(rows_of(tmp_path, agent_id))
        return result

    monkeypatch.setattr(perdure.app.store, "write", watched)
    await perdure.delete_agent(agent_id)  # type: ignore[arg-type]
    monkeypatch.undo()
    await perdure.close()

    assert left[0] > 2 * MESSAGES
    assert left[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(left)) <= 2 * 250


async def test_what_a_process_left_of_a_deleted_agent_goes_when_the_store_is_opened(tmp_path: Path) -> None:
    """It is not seen meanwhile, and its name is free."""
    perdure = await open_library(tmp_path)
    agent_id = await talkative(perdure)
    await perdure.app.store.write(lambda tx: tx.agents.delete(agent_id))  # type: ignore[arg-type]
    await perdure.app.store.write(lambda tx: tx.upkeep.carry_out_deletes(limit=10))
    await perdure.close()
    assert rows_of(tmp_path, agent_id) > MESSAGES

    perdure = await open_library(tmp_path)
    with pytest.raises(NotFound):
        await perdure.agent(agent_id)
    with pytest.raises(NotFound):
        await perdure.agent("agent")
    for _ in range(1_000):
        if not rows_of(tmp_path, agent_id):
            break
        await asyncio.sleep(0.02)
    assert rows_of(tmp_path, agent_id) == 0
    await perdure.close()


async def test_a_full_disk_behind_the_delete_is_no_failure_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is gone, which its deleter is told; its rows go when there is room."""
    perdure = await open_library(tmp_path)
    agent_id = await talkative(perdure)
    write, written = perdure.app.store.write, 0

    async def full(*args: Any, **kwargs: Any) -> Any:
        nonlocal written
        written += 1
        if written > 2:
            raise StoreFull("no space left")
        return await write(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(perdure.app.store, "write", full)
        await perdure.delete_agent(agent_id)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        await perdure.agent(agent_id)
    assert rows_of(tmp_path, agent_id) > 0

    await finish_removals(perdure.app.ports)
    assert rows_of(tmp_path, agent_id) == 0
    await perdure.close()


@pytest.mark.parametrize("parts", ['[{"type":', '[{"type":"text"}]'])
async def test_a_damaged_text_does_not_keep_deleted_agents(tmp_path: Path, parts: str) -> None:
    """Neither this one nor the next; and until then verify names it, whether it has a checksum or not."""
    perdure = await open_library(tmp_path)
    agent_id = await talkative(perdure)
    damaging = sqlite3.connect(tmp_path / "p.db")
    damaging.execute("UPDATE messages SET parts = ?, checksum = NULL WHERE agent_id = ? AND seq = 7", [parts, agent_id])
    damaging.commit()
    damaging.close()
    with pytest.raises(StoreDamaged):
        owner = (await perdure.app.store.read(lambda tx: tx.upkeep.owners()))[0]
        await perdure.app.store.read(lambda tx: tx.upkeep.check(owner))

    await perdure.delete_agent(agent_id)  # type: ignore[arg-type]
    other = await talkative(perdure)
    await perdure.delete_agent(other)  # type: ignore[arg-type]

    assert (rows_of(tmp_path, agent_id), rows_of(tmp_path, other)) == (0, 0)
    await perdure.close()


async def test_a_reset_that_is_stored_is_no_failure_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages are out of view; what is left to do is done when there is room."""
    perdure = await open_library(tmp_path)
    agent = await perdure.agent(await talkative(perdure))
    write = perdure.app.store.write

    async def full(unit: Any, *args: Any, **kwargs: Any) -> Any:
        if unit.__qualname__.startswith("_finish_reset"):
            raise StoreFull("no space left")
        return await write(unit, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(perdure.app.store, "write", full)
        await agent.reset()
    assert await agent.message_count() == 0
    assert await perdure.app.store.read(lambda tx: tx.resets.list_agents()) == [agent.id]

    await finish_removals(perdure.app.ports)
    assert await perdure.app.store.read(lambda tx: tx.resets.list_agents()) == []
    await perdure.close()


async def test_a_reset_of_damaged_messages_keeps_no_other_waiting(tmp_path: Path) -> None:
    """It is told in the log, and the next agent's is carried out."""
    perdure = await open_library(tmp_path)
    first, second = [await perdure.agent(await talkative(perdure)) for _ in range(2)]
    damaging = sqlite3.connect(tmp_path / "p.db")
    damaging.execute("UPDATE messages SET parts = '[{' WHERE agent_id = ? AND seq = 7", [first.id])
    damaging.commit()
    damaging.close()
    for agent in (first, second):
        conversation = (await agent.conversations())[0]
        await perdure.app.store.write(lambda tx, one=conversation: tx.resets.add(one, author=outside(), at=START))  # type: ignore[misc]

    await finish_removals(perdure.app.ports)

    assert await perdure.app.store.read(lambda tx: tx.resets.list_agents()) == [first.id]
    await perdure.close()
