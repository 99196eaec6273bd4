"""How work grows with a history of messages that have sources: `python -m benchmarks.history_growth [messages ...]`.

Without arguments 2, 2,000 and 20,000; `... 2 20000 200000` takes minutes. Times are CPU of all threads, the least of
a few. The history is in another conversation of the agent, on SQLite. Exit code 1: something takes more
than `BAR` times as much as after the shortest history.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure import AsyncPerdure
from perdure.core.ids import AgentId, MessageId, Uuids
from perdure.core.messages import Draft, Message, Text
from perdure.core.sources import Source
from perdure.domain.provenance.context import context_sources
from perdure.features.facts.tables import Episodes
from perdure.features.facts.units.turns import turn_sources
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import ScriptedModel, says

__all__ = ["main"]

BAR = 1.5
ROUNDS = 7
AT_ONCE, TURNS = 1_000, 8
LEAST_MS = 0.3
"""Below, a measure says nothing."""
MODEL = "test/scripted"
SOURCE = Source("web", "https://example.com/page")

Work = Callable[[AsyncPerdure, AgentId], Awaitable[Any]]


async def opened(path: Path) -> AsyncPerdure:
    """The store, without work in the background."""
    settings = replace(Settings(), model=MODEL, embedding="none")
    models = {MODEL: ScriptedModel(otherwise=says("I see."))}
    return await AsyncPerdure.open(path, models=models, settings=settings)


async def fill(path: Path, messages: int) -> AgentId:
    """A store with so many messages of one agent, each with a source."""
    ids = Uuids()
    async with await opened(path) as perdure:
        agent = await perdure.create_agent("ada", settings={"facts": False})
        await agent.new_conversation()

        def add(tx: Tx, first: int, count: int) -> None:
            drafts = [
                Draft(
                    id=MessageId(ids.new("message")),
                    role="user" if number % 2 == 0 else "assistant",
                    parts=(Text(f"Message {number} about topic w{number % 997}."),),
                    sources=(SOURCE,),
                )
                for number in range(first, first + count)
            ]
            tx.messages.append((agent.id, 1), drafts, [9] * count, at=perdure.app.ports.clock.now())

        for first in range(0, messages, AT_ONCE):
            await perdure.app.store.write(add, first, min(AT_ONCE, messages - first))
        return agent.id


def reads(unit: Callable[[Tx, AgentId], Any]) -> Work:
    """The work of a unit that reads."""
    return lambda perdure, agent_id: perdure.app.store.read(lambda tx: unit(tx, agent_id))


def last_turns(tx: Tx, agent_id: AgentId) -> Sequence[Message]:
    """The newest messages of the history, as extraction reads them."""
    return tx.messages.list(agent_id, conversation_seq=1, newest_first=True, limit=TURNS)[::-1]


async def send(perdure: AsyncPerdure, agent_id: AgentId) -> None:
    """One message."""
    await (await perdure.agent(agent_id)).send("hello")


WORK: dict[str, Work] = {
    "sources of messages": reads(lambda tx, agent: tx.sources.list_by_messages(agent, [0, 1])),
    "sources of the last turns": reads(lambda tx, agent: turn_sources(tx, last_turns(tx, agent))),
    "sources in the context": reads(lambda tx, agent: context_sources(tx, agent, 1, before_seq=10**9, everything=True)),
    "waiting conversations": reads(lambda tx, agent: tx.conversations.list_pending()),
    "model calls of a conversation": reads(lambda tx, agent: tx.steps.list_calls(agent, 0)),
    "conversations behind": reads(lambda tx, agent: tx.of(Episodes).list_behind(limit=9)),
    "a message": send,
    "a search": lambda perdure, agent: perdure.search.search_messages("w17", agent_id=agent, limit=10),
}


BOUNDED, READ_MAX = frozenset({"sources of the last turns", "sources in the context"}), 1_000
"""They read so many sources at most: they are compared from there on."""


async def cost_ms(perdure: AsyncPerdure, agent_id: AgentId, work: Work) -> float:
    """The least CPU time of some."""
    least = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        await work(perdure, agent_id)
        least = min(least, time.process_time() - began)
    return least * 1000


async def measure(sizes: list[int], folder: Path) -> bool:
    """Print what each costs after each history, and return whether all keep to the bar."""
    costs: dict[str, list[float]] = {name: [] for name in ("the first search", *WORK)}
    for size in sizes:
        path = folder / f"{size}.db"
        agent_id = await fill(path, size)
        async with await opened(path) as perdure:
            began = time.process_time()
            await WORK["a search"](perdure, agent_id)
            costs["the first search"].append((time.process_time() - began) * 1000)
            for name, work in WORK.items():
                costs[name].append(await cost_ms(perdure, agent_id, work))
    print("".join([f"{'CPU, ms, after messages':<34}", *(f"{size:>12,}" for size in sizes), f"{'factor':>9}"]))
    keeps = True
    for name, each in costs.items():
        first = next((place for place, size in enumerate(sizes) if size >= READ_MAX), 0) if name in BOUNDED else 0
        factor = max(each[first:]) / max(each[first], LEAST_MS)
        keeps &= factor <= BAR
        print("".join([f"{name:<34}", *(f"{cost:>12.3f}" for cost in each), f"{factor:>9.2f}"]), flush=True)
    return keeps


def main() -> int:
    """Print the table; 1 if a factor is above the bar."""
    sizes = [int(size) for size in sys.argv[1:]] or [2, 2_000, 20_000]
    with tempfile.TemporaryDirectory() as folder:
        return 0 if asyncio.run(measure(sizes, Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
