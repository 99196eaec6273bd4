"""A conversation begins anew: its view is empty, its history stays, memory is as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, ConversationBusy, NotFound, Perdure, Verdict, hook, tool
from perdure.core.errors import AnswerInvalid, ToolError
from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import Draft, Text
from perdure.core.runs import Run, RunKey
from perdure.domain.conversations.handles import resolve_handle
from perdure.engine.conversations.importing import import_drafts
from perdure.engine.conversations.reset import delete_conversation
from perdure.library.parts.checks import outside
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, ScriptedModel, calls, says
from tests.contracts.nodes import node_of
from tests.support.library import MODEL, SlowSpeaker, open_async, open_sync


@tool
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def test_the_model_sees_nothing_of_what_was_said_and_all_of_memory(tmp_path: Path) -> None:
    """Nor do lists and searches show it; the log does, and a past request is made again as it was."""
    model = ScriptedModel(calls("memory_insert", label="human", new_string="Name: Ada"), says("Noted, walrus."))
    with Perdure(tmp_path / "a.db", models={MODEL: model}, settings=Settings(embedding="none")) as perdure:
        agent = perdure.create_agent("ada", model=MODEL)
        agent.send("I am Ada, a walrus.")
        said = [message.id for message in agent.messages()]
        step = agent.steps()[-1]
        before = agent.request(step.id)
        (reset,) = agent.reset()
        empty = (agent.messages(), agent.message_count(), agent.search("walrus"))
        agent.send("Who am I?")
        asked = model.requests[-1]

        assert (reset.number, reset.message_count) == (1, 4)
        assert empty == ([], 0, [])
        assert [message.text for message in asked.messages] == ["Who am I?"]
        assert "Name: Ada" in asked.system
        assert agent.request(step.id) == before
        assert [message.id for message in agent.messages(reset=True)][:4] == said
        assert agent.resets() == [reset]
        assert agent.steps()[0].rewritten == "reset"


async def test_all_conversations_or_one(tmp_path: Path) -> None:
    """Others are as they were; what has nothing in view is not reset again."""
    async with await open_async(tmp_path / "a.db") as perdure:
        agent = await perdure.create_agent()
        other = await agent.new_conversation()
        await agent.send("one")
        await agent.send("two", conversation=other.id)

        (only,) = await agent.reset(conversation=other.id)
        left = [message.text for message in await agent.messages()]
        again = await agent.reset()

        assert only.conversation_id == other.id
        assert left == ["one", "OK."]
        assert [reset.message_count for reset in again] == [2]
        assert await agent.messages() == []
        with pytest.raises(NotFound):
            await agent.reset(conversation="conversation-00000000-0000-4000-8000-000000000000")  # type: ignore[arg-type]


async def test_while_a_run_is_on_nothing_is_reset(tmp_path: Path) -> None:
    """In whichever conversation, nor captured; the error names the run."""
    model = SlowSpeaker("one ", "two ")
    async with await open_async(tmp_path / "a.db", model=model) as perdure:
        agent = await perdure.create_agent(settings={"auto_capture": True})
        other = await agent.new_conversation()
        await agent.import_messages([("user", None, "before", "2026-01-01T00:00:00Z")])
        accepted = await agent.submit("count", conversation=other.id)
        await model.speaking.wait()
        with pytest.raises(ConversationBusy, match=accepted.run.id):
            await agent.reset()
        kept = [message.text for message in await agent.messages()]
        captured = await agent.passages()
        model.go.set()
        async for _ in agent.follow(accepted.run.id):
            pass

        assert kept == ["before", "count"]
        assert not captured
        assert len(await agent.reset()) == 2


def test_calls_that_wait_are_given_up(tmp_path: Path) -> None:
    """They can't be approved any more, nothing is run, and the conversation takes messages again."""
    with open_sync(tmp_path / "a.db", calls("pay", n=5), says("Hello."), tools=[pay]) as perdure:
        agent = perdure.create_agent(tools=["pay"])
        agent.require_approval("pay")
        (waiting,) = agent.send("Pay.").pending
        agent.reset()
        with pytest.raises(AnswerInvalid):
            agent.approve(waiting.call_id)
        reply = agent.send("Hello?")
        results = [result.text for message in agent.messages(reset=True) for result in message.results]

    assert reply.text == "Hello."
    assert results == ["not run: the conversation was reset"]


def test_hooks_are_told_of_each_conversation_and_may_begin_it(tmp_path: Path) -> None:
    """What a hook adds is in the next request, and in no list."""
    told: list[str] = []

    @hook("reset")
    def remind(reset: Any) -> Verdict:
        told.append(reset.conversation_id)
        return Verdict(context="The kettle is on.", block="no")

    model = ScriptedModel()
    with Perdure(tmp_path / "a.db", models={MODEL: model}, hooks=[remind]) as perdure:
        agent = perdure.create_agent(model=MODEL)
        agent.send("one")
        (reset,) = agent.reset()
        listed = agent.messages()
        agent.send("two")

    assert told == [reset.conversation_id]
    assert listed == []
    first, second = model.requests[-1].messages
    assert '"text":"The kettle is on."' in first.text.replace(": ", ":")
    assert second.text == "two"


def test_a_message_that_is_sent_again_gets_its_answer(tmp_path: Path) -> None:
    """Though it is out of view since, and the process another one: it was accepted, and may not have been heard."""
    with open_sync(tmp_path / "a.db", says("Four.")) as perdure:
        agent = perdure.create_agent("ada")
        first = agent.send("Two and two?", idempotency_key="sum")
        agent.reset()
    with open_sync(tmp_path / "a.db") as perdure:
        again = perdure.agent("ada").send("Two and two?", idempotency_key="sum")

    assert (again.run_id, again.text) == (first.run_id, "Four.")


async def test_a_deleted_conversation_takes_no_history(tmp_path: Path) -> None:
    """Also when it was found just before: nothing is written where nobody could see it."""
    async with await open_async(tmp_path / "a.db") as perdure:
        agent = await perdure.create_agent()
        line = await agent.new_conversation()
        await delete_conversation(line.id, perdure.app.ports, author=outside())
        draft = Draft(id=MessageId(perdure.app.ports.ids.new("message")), role="user", parts=(Text("hello"),))
        with pytest.raises(NotFound):
            await import_drafts(agent.id, line.seq, [draft], perdure.app.ports)

        assert await agent.messages(reset=True) == []


async def test_a_reset_that_fails_half_way_changes_nothing() -> None:
    """It is one transaction over all conversations."""
    store = InlineStore()
    async with await AsyncPerdure.open(store=store, models={MODEL: ScriptedModel()}, settings=Settings()) as perdure:
        agent = await perdure.create_agent(model=MODEL)
        await agent.send("one")
        now = perdure.app.ports.clock.now()

        def fail(tx: Tx) -> None:
            tx.resets.add(tx.conversations.get_by_seq(agent.id, 0), author=outside(), at=now)
            raise RuntimeError("the machine went off")

        with pytest.raises(RuntimeError):
            await store.write(fail)

        assert [message.text for message in await agent.messages()] == ["one", "OK."]
        assert await agent.resets() == []
        assert len(await agent.search("one")) == 1


async def test_handles_of_before_lead_nowhere() -> None:
    """An agent that remembers a number, or guesses one, reads neither messages nor their summary."""
    store = InlineStore()
    async with await AsyncPerdure.open(store=store, models={MODEL: ScriptedModel()}, settings=Settings()) as perdure:
        agent = await perdure.create_agent(model=MODEL)
        for text in ("one", "two", "three"):
            await agent.send(text)
        await store.write(lambda tx: tx.nodes.add(node_of(agent.id)))

        def open_handle(tx: Tx, handle: str) -> object:
            run: Run = tx.runs.get_by_key(RunKey(AgentId(agent.id), 0))
            return resolve_handle(tx, run, handle)

        await store.read(open_handle, "node-0")
        await agent.reset()

        for handle in ("node-0", "msg-1", "msg-0..3"):
            with pytest.raises(ToolError):
                await store.read(open_handle, handle)
