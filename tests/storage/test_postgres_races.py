"""Units of work that meet on PostgreSQL: both have read before either writes, unless the agent's lock keeps them apart.

Each unit stands still before its first write until the other has come as far, or for a moment. So a lock that is
missing shows every time, not once in a thousand runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.core.agents import Agent
from perdure.core.ids import AgentId, RunId
from perdure.core.messages import ToolCall
from perdure.core.runs import Run
from perdure.domain.agents.capture import capture
from perdure.domain.agents.units import AgentChanges, update_agent
from perdure.engine.conversations.reset import _reset_captured
from perdure.engine.log.next_action import EndRun
from perdure.engine.log.run_log import run_log_of
from perdure.engine.ports import EngineSettings, UnitInputs
from perdure.engine.records.rows import end_run
from perdure.engine.records.run_request import RunRequest
from perdure.engine.run.accept import accept
from perdure.engine.run.deltas import request_cancel
from perdure.providers.registry import ModelRegistry
from perdure.storage.database.postgres_database import PostgresDatabase
from perdure.storage.database.row_format import Row
from perdure.storage.store import Store
from perdure.storage.stores import postgres_store as postgres
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.storage.tx import Tx
from perdure.testing import ScriptedModel
from perdure.testing.clock import START
from tests.contracts.base import ADA, AT, Contract, list_texts
from tests.simulator.invariants import check_moment
from tests.support.postgres_server import address_of_an_empty_store

WAIT_S = 0.2
"""How long a unit waits for the other. One that is kept out by a lock comes later."""

units = Contract()
INPUTS = UnitInputs(
    ids=units.ids,
    counter=ScriptTokenCounter(),
    models=ModelRegistry({"test/model": ScriptedModel()}),
    settings=EngineSettings(),
    owner="here",
    now=AT,
    until=AT + timedelta(seconds=15),
)

Unit = Callable[[Tx, AgentId, int], Any]


def accept_a_message(tx: Tx, agent_id: AgentId, number: int) -> None:
    request = RunRequest(
        run_id=RunId(units.ids.new("run")),
        agent_id=agent_id,
        conversation_seq=0,
        drafts=(units.draft(f"message {number}"),),
        tokens=(1,),
    )
    accept(tx, request, INPUTS)


def change_the_agent(tx: Tx, agent_id: AgentId, number: int) -> None:
    changes = AgentChanges(name=f"name {number}") if number else AgentChanges(description="described")
    update_agent(tx, agent_id, changes, author=ADA, at=AT)


def capture_what_was_said(tx: Tx, agent_id: AgentId, number: int) -> None:
    capture(tx, agent_id, 0, 1, ids=units.ids, at=AT)


def reset_the_agent(tx: Tx, agent_id: AgentId, number: int) -> None:
    _reset_captured(tx, agent_id, None, {0: 9}, INPUTS, author=ADA, counted=tx.resets.count_messages(agent_id))


def one_begins(tx: Tx, agent_id: AgentId) -> None:
    """The second of two messages waits behind the run of the first."""
    runs = sorted(tx.runs.list(agent_id), key=lambda run: run.key.seq)
    assert [(run.key.seq, run.first_message_seq) for run in runs] == [(0, 2), (1, None)]
    assert len(list_texts(tx, agent_id)) == 3


def both_changes_hold(tx: Tx, agent_id: AgentId) -> None:
    agent = tx.agents.get(agent_id)
    assert (agent.name, agent.description) == ("name 1", "described")


def captured_once(tx: Tx, agent_id: AgentId) -> None:
    (archive,) = tx.archives.list_by_agent(agent_id)
    texts = [passage.text for passage in tx.passages.page(archive.id)]
    assert len(texts) == 1
    assert ("first" in texts[0], "second" in texts[0]) == (True, True)


def reset_once(tx: Tx, agent_id: AgentId) -> None:
    assert len(tx.resets.list(agent_id)) == 1
    assert list_texts(tx, agent_id) == []


@pytest.fixture
def store_where_units_meet(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Opens a store; `meet()` on what it gives makes the next two units wait for each other."""
    address = address_of_an_empty_store()
    barrier: list[threading.Barrier] = []

    class Meeting(PostgresDatabase):
        """Waits once before it writes."""

        met = False

        def _meet(self) -> None:
            if barrier and not self.met and not self.read_only:
                self.met = True
                with contextlib.suppress(threading.BrokenBarrierError):
                    barrier[0].wait(WAIT_S)

        def run_counted(self, sql: str, params: Mapping[str, Any]) -> int:
            self._meet()
            return super().run_counted(sql, params)

        def run_many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
            self._meet()
            super().run_many(sql, params)

        def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
            if sql.startswith("UPDATE"):
                self._meet()
            return super().rows(sql, params)

    async def open_store() -> tuple[Store, Callable[[], None]]:
        return await PostgresStore.open(address, at=START), lambda: barrier.append(threading.Barrier(2))

    monkeypatch.setattr(postgres, "PostgresDatabase", Meeting)
    return open_store


@pytest.mark.parametrize(
    ("unit", "holds"),
    [
        (accept_a_message, one_begins),
        (change_the_agent, both_changes_hold),
        (capture_what_was_said, captured_once),
        (reset_the_agent, reset_once),
    ],
    ids=["accept", "update", "capture", "reset"],
)
async def test_two_units_on_one_agent_come_one_after_the_other(
    store_where_units_meet: Any, unit: Unit, holds: Callable[[Tx, AgentId], None]
) -> None:
    """What either has read is still true when it writes."""
    store, meet = await store_where_units_meet()

    def prepare(tx: Tx) -> Agent:
        agent = units.add_agent(tx)
        for text in ("first", "second"):
            units.say(tx, agent.id, text)
        changes = AgentChanges(settings={"auto_capture": {"commit_token_threshold": 50}})
        return update_agent(tx, agent.id, changes, author=ADA, at=AT)

    try:
        agent = await store.write(prepare)
        meet()
        await asyncio.gather(*(store.write(unit, agent.id, number) for number in range(2)))

        await store.read(holds, agent.id)
        await store.read(lambda tx: check_moment(tx, agent.id) if not tx.runs.list(agent.id) else None)
    finally:
        await store.close()


async def test_a_run_that_stops_at_a_call_while_it_is_cancelled_gives_the_call_up(store_where_units_meet: Any) -> None:
    """As one that had stopped before."""
    store, meet = await store_where_units_meet()

    def prepare(tx: Tx) -> Run:
        run = units.add_run(tx, units.add_agent(tx).id)
        claimed = tx.runs.claim(run.key, owner=INPUTS.owner, at=AT, until=INPUTS.until)
        assert claimed is not None
        call = ToolCall("call-1", "order", "{}", awaits="approval")
        tx.messages.append(claimed, [units.draft(call, role="assistant")], [1], at=AT)
        return claimed

    def stop(tx: Tx, run: Run) -> None:
        end_run(tx, run_log_of(tx, tx.runs.keep_lease(run)), EndRun("requires_approval"), [], INPUTS)

    try:
        run = await store.write(prepare)
        meet()
        _, cancelled = await asyncio.gather(store.write(stop, run), store.write(request_cancel, run.id, INPUTS))

        assert [one.stop_reason for one, *_ in cancelled] == ["cancelled"]
        assert await store.read(lambda tx: tx.conversations.list_pending()) == []
    finally:
        await store.close()
