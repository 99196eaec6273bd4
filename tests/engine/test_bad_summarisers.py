"""Compaction after compaction with a summariser that does everything wrong, also in the background."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest

from perdure import AsyncAgent, AsyncPerdure, StoredEvent
from perdure.core.errors import ModelError
from perdure.core.events import ViewCompacted
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore, SequentialIds, calls, says

MODEL = "test/adversary"
COMPACTIONS = 200 if os.environ.get("PERDURE_FAULTS") == "full" else 24
PLANTED = {"ORD-48151": "order", "/srv/ada/plan.md": "plan", "ada@lovelace.example": "address", "TKT-62342": "ticket"}
FILLER = "word " * 400
WAYS = {"empty", "forgetful", "huge", "echo", "raises", "invents", "hangs", "prompt", "apology"}
FORGETFUL = "They said one word after the other, message after message, and nothing more than that."
_LOOK = re.compile(r"Look for (\S+)\.")


@dataclass
class Adversary:
    """A model that answers well, and whose summaries are bad in one way after the other."""

    ways: itertools.cycle[str] = field(default_factory=lambda: itertools.cycle(("forgetful", *sorted(WAYS))))
    summaries: list[str] = field(default_factory=list)
    answers: int = 0
    last: ModelRequest | None = None

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if request.purpose == "summary":
            self.summaries.append(next(self.ways))
            yield await self._summary(request, self.summaries[-1])
            return
        self.answers += 1
        self.last = request
        newest = request.messages[-1]
        look = _LOOK.search(newest.text)
        if look is not None and newest.role == "user":
            yield calls("context_grep", pattern=re.escape(look[1]))
        else:
            yield says(newest.text if newest.role == "tool" else "OK.")

    async def _summary(self, request: ModelRequest, way: str) -> ModelReply:
        match way:
            case "raises":
                raise ModelError("no")
            case "hangs":
                await asyncio.sleep(3_600)
            case "huge":
                return says("They said word upon word and message upon message. " * 900)
            case "echo":
                return says(request.messages[0].text)
            case "prompt":
                return says(request.system)
            case "invents":
                return says("They said word after word; see node-4000, msg-999999 and ORD-48999 for more.")
            case "apology":
                return says("I'm sorry, but I can't help with that.")
            case "forgetful":
                return says(FORGETFUL)
        return says("")


async def send(perdure: AsyncPerdure, agent: AsyncAgent, text: str) -> list[ViewCompacted]:
    """Send a message, and let the work in the background end; the compactions."""
    events = [sent.event async for sent in agent.stream(text) if isinstance(sent, StoredEvent)]
    while tasks := perdure.app.runner.after_runs.tasks:
        await asyncio.wait(tasks)
    return [event for event in events if isinstance(event, ViewCompacted)]


@pytest.mark.slow
async def test_the_worst_summariser_causes_no_loop_and_no_loss() -> None:
    """At most two calls for a summary; each compaction frees room; what was planted first is seen, or one call away."""
    model, store = Adversary(), InlineStore()
    async with await AsyncPerdure.open(
        store=store, models={MODEL: model}, clock=FakeClock(), ids=SequentialIds()
    ) as perdure:
        ports = perdure.app.ports
        object.__setattr__(ports, "settings", replace(ports.settings, summary_timeout_s=0.02))
        settings = {"context_window_tokens": 8_000, "auto_recall": False, "summaries": {"leaf_min_fanout": 2}}
        agent = await perdure.create_agent("a", model=MODEL, settings=settings)
        for planted, what in PLANTED.items():
            await send(perdure, agent, f"My {what} is {planted}, keep that in mind.")
        done: list[ViewCompacted] = []
        turns = len(PLANTED)
        while len(done) < COMPACTIONS:
            done += await send(perdure, agent, f"message {turns} {FILLER}")
            turns += 1
            assert turns < 10 * COMPACTIONS
        assert model.answers == turns
        nodes = await store.read(lambda tx: tx.nodes.list(agent.id, 0, limit=10_000))
        assert len(model.summaries) <= 2 * len(nodes) + turns  # in the background one may fail after each run
        assert {*model.summaries} == WAYS
        assert all(event.tokens_after < event.tokens_before for event in done)
        assert {node.method for node in nodes} >= {"normal", "fallback"}
        assert not any(wrong in node.text for node in nodes for wrong in ("node-4000", "msg-999999", "ORD-48999"))
        assert await list_hidden_and_shown(store, agent) == await store.read(lambda tx: every_seq(tx, agent))
        assert model.last is not None
        shown = "".join(message.text for message in model.last.messages)
        for planted in PLANTED:
            before = model.answers
            found = (await agent.send(f"Look for {planted}.")).text
            assert planted in shown or (f"is {planted}" in found and model.answers == before + 2)


def every_seq(tx: Tx, agent: AsyncAgent) -> list[int]:
    return list(range(tx.messages.next_seq(agent.id)))


async def list_hidden_and_shown(store: InlineStore, agent: AsyncAgent) -> list[int]:
    """The numbers of all rows that are in view or behind a node in view, in their order there."""

    def look(tx: Tx) -> list[int]:
        prefix = tx.prefixes.get(agent.id, tx.conversations.get_by_seq(agent.id, 0).prefix_seq or 0)
        nodes = tx.nodes.list_by_seqs(agent.id, 0, prefix.nodes)
        hidden = [seq for node in nodes for seq in range(node.from_message_seq, node.upto_message_seq + 1)]
        rows = tx.messages.list(agent.id, after_seq=prefix.from_message_seq - 1, limit=1_000, kinds=None)
        return [*hidden, *(message.seq for message in rows)]

    return await store.read(look)
