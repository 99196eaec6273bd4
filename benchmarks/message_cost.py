"""What a message costs in CPU time through the library, with a model that costs nothing."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.floor import Yardstick, as_of_design
from perdure import Agent, Perdure
from perdure.core.ids import AgentId, MessageId, Uuids
from perdure.core.messages import Draft, Text
from perdure.settings import Settings
from perdure.storage.store import Store
from perdure.storage.stores.open import open_store
from perdure.storage.tx import Tx
from perdure.testing import ScriptedModel

__all__ = ["SAID", "MessageCost", "fill_history", "message_cost"]

MODEL = "test/scripted"
AGENTS = 10
ROUNDS = 20  # of one message to each agent
TOGETHER = 4  # rounds between two looks at the yardstick, which leaves the processor's caches to itself
SAID = (
    "How far is it from Turin to Genoa, and which train do you take?",
    "About 170 kilometres. The regional train takes two hours and is cheap; the fast one leaves at nine.",
)
PLACES = ("Turin", "Genoa", "Lisbon", "Krakow", "Oslo", "Fukuoka", "Leeds", "Ghent", "Basel", "Cork", "Izmir", "Quito")


@dataclass(frozen=True)
class MessageCost:
    """CPU milliseconds over all threads, as measured and as scaled by the yardstick.

    `row_us` is the yardstick's row meanwhile.
    """

    measured_ms: float
    scaled_ms: float
    row_us: float


def message_cost(folder: Path, *, history: int) -> MessageCost:
    """What a message costs to a conversation that has `history` messages before it.

    The medians of 20 rounds of a message to each of ten agents; garbage collection as it comes.
    """
    path = folder / f"history-{history}.db"
    model = ScriptedModel()
    with Perdure(path, models={MODEL: model}, settings=replace(Settings(), model=MODEL)) as perdure:
        agents = [perdure.create_agent(f"agent {number}") for number in range(AGENTS)]
    asyncio.run(_fill(path, [agent.id for agent in agents], rows=history - 2))
    with (
        Perdure(path, models={MODEL: model}, settings=replace(Settings(), model=MODEL)) as perdure,
        Yardstick(folder) as yardstick,
    ):
        agents = [perdure.agent(agent.id) for agent in agents]
        _round(agents, model)  # its message and reply are the last two of the history
        costs = [cost for _ in range(ROUNDS // TOGETHER) for cost in _measured(agents, model, yardstick)]
    return MessageCost(
        statistics.median(cost.measured_ms for cost in costs),
        statistics.median(cost.scaled_ms for cost in costs),
        statistics.median(cost.row_us for cost in costs),
    )


def _measured(agents: list[Agent], model: ScriptedModel, yardstick: Yardstick) -> list[MessageCost]:
    """Some rounds, one after the other."""
    before = yardstick.row_us()
    rounds_ms = [_round(agents, model) * 1000 / AGENTS for _ in range(TOGETHER)]
    row_us = (before + yardstick.row_us()) / 2
    return [MessageCost(each_ms, as_of_design(each_ms, row_us), row_us) for each_ms in rounds_ms]


def _round(agents: list[Agent], model: ScriptedModel) -> float:
    """CPU seconds of one message to each agent."""
    model.requests.clear()
    texts = [_question() for _ in agents]
    began = time.process_time()
    for agent, text in zip(agents, texts, strict=True):
        agent.send(text)
    return time.process_time() - began


def _question() -> str:
    """Another one most of the time: nothing that is kept of one text is of use for the next."""
    first, second = random.sample(PLACES, 2)
    return SAID[0].replace("Turin", first).replace("Genoa", second)


async def _fill(path: Path, agents: list[AgentId], *, rows: int) -> None:
    store = await open_store(path, at=datetime.now(UTC))
    try:
        await fill_history(store, agents, rows=rows)
    finally:
        await store.close()


async def fill_history(store: Store, agents: list[AgentId], *, rows: int) -> None:
    """Give each agent so many messages, question and answer in turn."""
    now, ids = datetime.now(UTC), Uuids()

    def fill(tx: Tx, agent_id: AgentId) -> None:
        drafts = [
            Draft(
                id=MessageId(ids.new("message")), role="assistant" if row % 2 else "user", parts=(Text(SAID[row % 2]),)
            )
            for row in range(rows)
        ]
        tx.messages.append((agent_id, 0), drafts, [40] * rows, at=now)

    for agent_id in agents:
        await store.write(fill, agent_id)
