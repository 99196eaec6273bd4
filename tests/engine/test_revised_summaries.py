"""What a person changes or removes stands in no summary any more: neither in one in view nor in those around it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure, Message, StoredEvent
from perdure.core.events import PrefixRewritten
from perdure.core.models import ModelReply, ModelRequest
from perdure.core.nodes import SummaryNode
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore, ScriptedModel, SequentialIds, fails, says
from tests.engine.test_room import Meanwhile, compactions_of, create_small_agent

MODEL = "test/scripted"
FILLER = "word " * 400
SECRET = "zebra-4711"
SAID = f"My password is {SECRET}, keep it."


def summarise(request: ModelRequest) -> ModelReply:
    """A summary that repeats the secret, if it was shown."""
    known = SECRET in request.messages[0].text
    return says(f"They said one word after the other, {f'and that {SECRET} is a password' if known else 'all day'}.")


async def open_library(model: Any) -> AsyncPerdure:
    return await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, clock=FakeClock(), ids=SequentialIds())


async def create_agent(perdure: AsyncPerdure, **summaries: Any) -> AsyncAgent:
    settings = {"context_window_tokens": 6_000, "auto_recall": False, "summaries": {"leaf_min_fanout": 2, **summaries}}
    return await perdure.create_agent("a", model=MODEL, settings=settings)


async def settle(perdure: AsyncPerdure) -> None:
    while tasks := perdure.app.runner.after_runs.tasks:
        await asyncio.wait(tasks)


async def nodes_of(perdure: AsyncPerdure, agent: AsyncAgent) -> Sequence[SummaryNode]:
    def read(tx: Tx) -> Sequence[SummaryNode]:
        lines = [line.seq for line in tx.conversations.list(agent.id)]
        return [node for line in lines for node in tx.nodes.list(agent.id, line)]

    return await perdure.app.store.read(read)


def with_secret(nodes: Sequence[SummaryNode]) -> list[int]:
    return [node.seq for node in nodes if SECRET in node.text]


async def fill(perdure: AsyncPerdure, agent: AsyncAgent, count: int) -> Message:
    """Say the secret, and then so much that it leaves the view; the message that says it."""
    await agent.send(SAID)
    for _ in range(count):
        await agent.send(FILLER)
        await settle(perdure)
    return (await agent.messages(limit=1, newest_first=False))[0]


async def rewrites_of(agent: AsyncAgent, text: str) -> list[str]:
    events = [sent.event async for sent in agent.stream(text) if isinstance(sent, StoredEvent)]
    return [event.reason for event in events if isinstance(event, PrefixRewritten)]


def shown(model: ScriptedModel) -> str:
    """The summaries in the last request."""
    return "".join(message.text for message in model.requests[-1].messages if message.kind == "summary")


async def change(agent: AsyncAgent, message: Message, how: str) -> None:
    match how:
        case "update":
            await agent.update_message(message.id, "My password is none of your business.")
        case "forget":
            await agent.forget(SECRET)
        case "erase":
            await agent.forget(SECRET, erase=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["update", *(pytest.param(how, marks=pytest.mark.uses("origins")) for how in ("forget", "erase"))]
)
async def test_what_was_changed_is_in_no_summary_that_is_shown_after_it(how: str) -> None:
    """Nor in those below and above it. The request says why it begins anew, and waits for no model."""
    model = ScriptedModel(summarises=summarise)
    async with await open_library(model) as perdure:
        agent = await create_agent(perdure, background=False, condensed_min_fanout=2)
        message = await fill(perdure, agent, 20)
        nodes = await nodes_of(perdure, agent)
        assert max(node.level for node in nodes if SECRET in node.text) > 0
        assert SECRET in shown(model)

        await change(agent, message, how)
        assert with_secret(await nodes_of(perdure, agent)) == []
        asked = len(model.summary_requests)
        rewritten = await rewrites_of(agent, "short")
        assert rewritten[0] == "summary"
        assert len(model.summary_requests) == asked
        assert SECRET not in shown(model)
        assert "messages" in shown(model)


@pytest.mark.slow
async def test_a_model_writes_it_again_in_the_background() -> None:
    """The view takes that with its next prefix, and begins no other one for it."""
    model = ScriptedModel(summarises=summarise)
    async with await open_library(model) as perdure:
        agent = await create_agent(perdure)
        message = await fill(perdure, agent, 14)
        await change(agent, message, "update")
        assert "extract" in {node.made_by for node in await nodes_of(perdure, agent)}
        await settle(perdure)
        nodes = await nodes_of(perdure, agent)
        revised = [node for node in nodes if node.revised_at is not None]
        assert revised
        assert "model" in {node.made_by for node in revised}
        assert with_secret(nodes) == []
        assert (await rewrites_of(agent, "short"))[0] == "summary"
        assert "all day" in shown(model)
        prefixes = await perdure.app.store.read(
            lambda tx: tx.prefixes.list_rewrites(agent.id, 0, after_seq=-1, upto_seq=10**6)
        )
        (changes,) = [changes for _, reason, changes in prefixes if reason == "summary"]
        assert {(change.what, change.change) for change in changes} == {("summaries", "revised")}
        assert await rewrites_of(agent, "short") == []


@pytest.mark.slow
async def test_a_model_that_is_down_is_asked_again_after_the_next_run() -> None:
    model = ScriptedModel(summarises=summarise)
    async with await open_library(model) as perdure:
        agent = await create_agent(perdure)
        message = await fill(perdure, agent, 14)
        model._summarises = fails("down")
        await change(agent, message, "update")
        await settle(perdure)
        assert "extract" in {node.made_by for node in await nodes_of(perdure, agent)}
        model._summarises = summarise
        await agent.send("short")
        await settle(perdure)
        revised = [node for node in await nodes_of(perdure, agent) if node.revised_at is not None]

    assert "model" in {node.made_by for node in revised}


async def test_a_prepared_summary_loses_it_too() -> None:
    """It is in no view yet, but its handle can be guessed."""
    model = ScriptedModel(summarises=summarise)
    async with await open_library(model) as perdure:
        agent = await create_agent(perdure)
        await agent.send(SAID)
        while not with_secret(await nodes_of(perdure, agent)):
            await agent.send(FILLER)
            await settle(perdure)
        assert not shown(model)
        first = (await agent.messages(limit=1, newest_first=False))[0]
        await change(agent, first, "update")

        assert with_secret(await nodes_of(perdure, agent)) == []


@pytest.mark.slow
async def test_a_fork_s_copy_loses_it_too() -> None:
    """And what was made of the copy since."""
    model = ScriptedModel(summarises=summarise)
    async with await open_library(model) as perdure:
        agent = await create_agent(perdure, condensed_min_fanout=2)
        message = await fill(perdure, agent, 14)
        fork = await agent.fork_conversation()
        for _ in range(14):
            await agent.send(FILLER, conversation=fork.id)
            await settle(perdure)
        nodes = await nodes_of(perdure, agent)
        assert {node.conversation_seq for node in nodes if SECRET in node.text} == {0, 1}
        assert any(node.children for node in nodes if node.conversation_seq == 1 and SECRET in node.text)
        await change(agent, message, "update")
        assert with_secret(await nodes_of(perdure, agent)) == []
        await agent.send("short", conversation=fork.id)

    assert SECRET not in shown(model)


@pytest.mark.slow
async def test_another_conversation_s_summaries_stay() -> None:
    """Numbers of messages are the agent's, so those of two conversations lie among one another."""
    model = ScriptedModel(summarises=summarise)
    async with await open_library(model) as perdure:
        agent = await create_agent(perdure)
        other = await agent.new_conversation()
        await agent.send(SAID)
        await agent.send(FILLER, conversation=other.id)
        for _ in range(14):
            await agent.send(FILLER)
            await agent.send(FILLER, conversation=other.id)
            await settle(perdure)
        before = [node for node in await nodes_of(perdure, agent) if node.conversation_seq == 1]
        await change(agent, (await agent.messages(limit=1, newest_first=False))[0], "update")
        after = [node for node in await nodes_of(perdure, agent) if node.conversation_seq == 1]

    assert before
    assert before == after


async def test_a_summary_that_changes_while_the_next_is_written_is_shown_anew() -> None:
    """The next one is written with those before it: what was forgotten in one must not come back by another."""
    model = Meanwhile(summarises=says("Message 0 and the next: word after word."))
    async with await open_library(model) as perdure:
        agent, store = await create_small_agent(perdure), perdure.app.ports.store
        filler = "word " * 300
        assert await compactions_of(agent, *(f"message {number} {filler}" for number in range(10)))
        asked = len(model.summary_requests)

        def redact(tx: Tx) -> None:
            for node in tx.nodes.list(agent.id, 0):
                tx.nodes.put_text(node, "Something was redacted.")

        model.happens = lambda: store.write(redact)
        done = await compactions_of(agent, *(f"message {number} {filler}" for number in range(10, 20)))

        first, second = [str(request.messages) for request in model.summary_requests[asked : asked + 2]]
        assert done and len(model.summary_requests) == asked + len(done) + 1
        assert "word after word" in first and "word after word" not in second


async def test_a_run_that_another_process_cancels_while_a_summary_is_written_stores_none() -> None:
    """This process hears of it when it stores."""
    model = Meanwhile(summarises=says("Message 0 and the next: word after word."))
    async with await open_library(model) as perdure:
        agent, store = await create_small_agent(perdure), perdure.app.ports.store

        async def cancel() -> None:
            run = (await agent.runs(limit=1))[0]
            await store.write(lambda tx: tx.runs.request_cancel(run.key))

        model.happens = cancel
        for number in range(20):
            if (await agent.send(f"message {number} {FILLER}")).stop_reason == "cancelled":
                break

        assert len(model.summary_requests) == 1
        assert (await agent.runs(limit=1))[0].status == "cancelled"
        assert await store.read(lambda tx: tx.nodes.list(agent.id, 0)) == []
