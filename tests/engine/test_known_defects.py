"""What goes wrong in other context engines, and does not here. The fifth, one registry file that knows every kind of
thing, is `test_only_the_composition_root_knows_more_than_two_kinds_of_things` in `tests/test_architecture.py`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure, RunFailed, StoredEvent, hook
from perdure.core.errors import ModelOverflow
from perdure.core.events import ViewCompacted
from perdure.core.messages import CompactionNote
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.nodes import SummaryNode, node_handle
from perdure.core.runs import Prefix, Usage
from perdure.engine.compaction.room import preview
from perdure.engine.estimates import rows_tokens
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore, ScriptedModel, SequentialIds, fails, says
from tests.support.real_tokens import tokens_of_request

MODEL = "test/scripted"
WINDOW = 8_000
SUMMARY = "They said one word after the other, message after message."


async def open_library(model: Any, **options: Any) -> AsyncPerdure:
    return await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, clock=FakeClock(), ids=SequentialIds(), **options
    )


async def create_small_agent(perdure: AsyncPerdure) -> AsyncAgent:
    settings = {"context_window_tokens": WINDOW, "auto_recall": False, "summaries": {"background": False}}
    return await perdure.create_agent("a", model=MODEL, settings=settings)


async def compactions_of(agent: AsyncAgent, text: str) -> list[ViewCompacted]:
    events = [sent.event async for sent in agent.stream(text) if isinstance(sent, StoredEvent)]
    return [event for event in events if isinstance(event, ViewCompacted)]


class Strict:
    """A model that refuses what is larger than its window, and says what it was sent."""

    def __init__(self) -> None:
        self.refused = self.requests = 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if request.purpose == "summary":
            yield says(SUMMARY)
            return
        self.requests += 1
        if (tokens := tokens_of_request(request)) > WINDOW:
            self.refused += 1
            raise ModelOverflow(f"maximum context length is {WINDOW} tokens")
        yield replace(says("OK."), usage=Usage(input_tokens=tokens, output_tokens=2))


async def test_room_is_made_before_a_provider_refuses_a_request() -> None:
    """Not after its error: none is ever too large, and each message takes one call."""
    model, done = Strict(), 0
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        for number in range(16):
            done += len(await compactions_of(agent, f"message {number} {'word ' * (500 + 397 * number % 900)}"))

    assert done > 2
    assert (model.requests, model.refused) == (16, 0)


@pytest.mark.slow
async def test_no_summary_is_lost_near_the_limit() -> None:
    """In each request the summaries and the messages behind them follow each other from the first message on."""
    model = ScriptedModel(summarises=says(SUMMARY))
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        most = 0
        for number in range(30):
            await agent.send(f"message {number} {'word ' * (1_100 if number % 5 == 4 else 400)}")
            prefix, nodes = await perdure.app.store.read(lambda tx: shown_nodes(tx, agent))
            ends = [-1, *(node.upto_message_seq for node in nodes)]
            assert [node.from_message_seq for node in nodes] == [end + 1 for end in ends[:-1]]
            assert prefix.from_message_seq == ends[-1] + 1
            shown = [json.loads(message.text) for message in model.requests[-1].messages if message.kind == "summary"]
            handles = [node["handle"] for summary in shown for node in summary["nodes"]]
            assert handles == [node_handle(node.seq) for node in nodes]
            assert tokens_of_request(model.requests[-1]) <= WINDOW
            most = max(most, len(nodes))

    assert most > 3


def shown_nodes(tx: Tx, agent: AsyncAgent) -> tuple[Prefix, Sequence[SummaryNode]]:
    prefix = tx.prefixes.get(agent.id, tx.conversations.get_by_seq(agent.id, 0).prefix_seq or 0)
    return prefix, tx.nodes.list_by_seqs(agent.id, 0, prefix.nodes)


async def test_hooks_at_the_end_are_called_whatever_the_end() -> None:
    """At that of a run that fails as at that of one that answers, of a conversation, and of an agent with its others.
    What a kill leaves out is called by the next process: `tests/faults/test_hooks_killed.py`."""
    ends: list[str] = []

    @hook("run_end", "reset", "conversation_end")
    def watcher(payload: Any) -> None:
        ends.append(payload.point)

    model = ScriptedModel(says("OK."), fails("down"), otherwise=says("OK."))
    async with await open_library(model, hooks=[watcher]) as perdure:
        agent = await create_small_agent(perdure)
        await agent.send("hello")
        with pytest.raises(RunFailed):
            await agent.send("and now?")
        await agent.reset()
        other = await agent.new_conversation()
        await agent.send("hello", conversation=other.id)
        await agent.delete_conversation(other.id)
        await perdure.delete_agent(agent.id)

    assert ends == ["run_end", "run_end", "reset", "run_end", "conversation_end", "conversation_end"]


async def test_compaction_leaves_all_token_counts() -> None:
    """Those of earlier runs, steps and messages stay as they were; those of the view are what it holds now."""
    model, done = Strict(), list[ViewCompacted]()
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)

        def read(tx: Tx) -> tuple[dict[Any, Usage], dict[Any, int]]:
            usages: dict[Any, Usage] = {run.key: run.usage for run in tx.runs.list(agent.id, limit=1_000)}
            usages |= {step.id: step.usage for step in tx.steps.list(agent.id)}
            rows = tx.messages.list(agent.id, limit=1_000, kinds=None)
            return usages, {row.id: row.tokens for row in rows}

        def check_view(tx: Tx) -> None:
            conversation = tx.conversations.get_by_seq(agent.id, 0)
            state = preview(tx, tx.agents.get(agent.id), conversation, perdure.app.ports.inputs())
            assert (
                conversation.view_tokens == rows_tokens(state.view, conversation.stubs, perdure.app.ports.counter) > 0
            )

        for number in range(9):
            usages, tokens = await perdure.app.store.read(read)
            done += await compactions_of(agent, f"message {number} {'word ' * 900}")
            usages_now, tokens_now = await perdure.app.store.read(read)
            assert usages_now.items() >= usages.items()
            assert tokens_now.items() >= tokens.items()
            await perdure.app.store.read(check_view)
        assert all(usage.input_tokens and usage.output_tokens for usage in usages_now.values())
        notes = [
            part
            for row in await perdure.app.store.read(lambda tx: tx.messages.list(agent.id, limit=1_000, kinds=None))
            for part in row.parts
            if isinstance(part, CompactionNote)
        ]

    assert len(done) > 1
    assert all(one.tokens_before > one.tokens_after > 0 for one in done)
    assert notes
    assert all(note.tokens_before > note.tokens_after > 0 for note in notes)
