"""What an agent does not use costs its messages nothing: no read, no statement."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from perdure import AsyncPerdure
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.settings import Settings
from perdure.testing import InlineStore, says
from perdure.testing.inline_store import FaultPoint
from tests.support.library import MODEL

TABLE = re.compile(r"(?:INTO|UPDATE|FROM) (\w+)")
INNER = re.compile(r"\([^()]*\)")


class Watched:
    """A store, and a model before whose first call the store's work is noted."""

    def __init__(self) -> None:
        self.points: list[FaultPoint] = []
        self.statements: list[str] = []
        self.store = InlineStore(fault=self._note)
        self._on = False

    async def _note(self, point: FaultPoint) -> None:
        if self._on:
            self.points.append(point)

    def start(self) -> None:
        self._on = True
        self.store._connection.set_trace_callback(self.statements.append)

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        self._on = False
        self.store._connection.set_trace_callback(None)
        yield says("Good.")

    @property
    def tables(self) -> set[str]:
        """The tables of the statements, without those of inner ones."""
        found: set[str] = set()
        for text in self.statements:
            while (outer := INNER.sub("", text)) != text:
                text = outer
            found |= set(TABLE.findall(text))
        return found


async def _open(watched: Watched) -> AsyncPerdure:
    settings = Settings(model=MODEL, embedding="none")
    return await AsyncPerdure.open(store=watched.store, models={MODEL: watched}, settings=settings)


async def test_a_message_of_an_agent_that_uses_nothing_is_one_transaction_of_the_kernel_s_tables() -> None:
    """Nothing is read beside it; of recall, facts, files, budgets, notes and origins no table is looked at."""
    watched = Watched()
    async with await _open(watched) as perdure:
        agent = await perdure.create_agent(blocks={"notes": "The mill is old."}, model=MODEL)
        await agent.send("Hello.")
        watched.start()
        await agent.send("How far is it to Ghent?")

    assert watched.points == ["write", "commit", "committed"]
    assert watched.tables == {
        *("agents", "agent_blocks", "conversation_blocks", "blocks", "conversations"),
        *("runs", "ids", "messages", "steps", "events"),
    }


async def test_a_message_that_recalls_is_tried_once_and_stored_with_what_was_found() -> None:
    """The first try finds that memory is to be searched, and stores nothing."""
    watched = Watched()
    async with await _open(watched) as perdure:
        agent = await perdure.create_agent(blocks={"notes": "The mill is old."}, model=MODEL)
        await agent.archive("Ada keeps bees behind the mill.")
        watched.start()
        await agent.send("Where does Ada keep her bees?")
        step = (await agent.steps())[0]
        tail = (await agent.request(step.id)).tail

    assert [point for point in watched.points if point == "committed"] == ["committed"]
    assert sum(text.startswith("INSERT INTO runs ") for text in watched.statements) == 1
    assert "Ada keeps bees behind the mill." in tail
