"""What a reader of a run receives."""

from __future__ import annotations

import asyncio

import pytest

from perdure import AsyncPerdure, Settings
from perdure.core.events import Delta, Event, RunEnded, StepAbandoned, StoredEvent
from perdure.core.ids import AgentId, ConversationId, MessageId, RunId, StepId
from perdure.core.runs import Run, RunKey, Usage
from perdure.engine.run.accept import Accepted
from perdure.engine.run.runner import HELD, Publication
from perdure.features.openai_front.answers import AnswerStream, ChatWriter
from perdure.server.wire.chunks import Chunks, StreamMode
from perdure.testing import InlineStore, ScriptedModel, says
from perdure.testing.clock import START

RUN = Run(
    id=RunId("run-1"),
    key=RunKey(AgentId("agent-1"), 0),
    conversation_seq=0,
    conversation_id=ConversationId("conv-1"),
    status="running",
    created_at=START,
)


def delta(step: str, text: str) -> Delta:
    return Delta(StepId(step), MessageId("message-1"), "text", text)


def build_event(seq: int, event: Event) -> StoredEvent:
    return StoredEvent(agent_id=AgentId("agent-1"), run_seq=0, seq=seq, event=event, created_at=START)


async def test_no_preview_of_an_abandoned_step_is_sent_after_its_event() -> None:
    """The model's call of a process that lost the run goes on for a moment, and its deltas are void."""
    publications: list[Publication] = [
        delta("step-1", "a"),
        build_event(2, StepAbandoned(StepId("step-1"))),
        delta("step-1", "b"),
        delta("step-2", "c"),
        build_event(3, RunEnded(RunId("run-1"), "end_turn", Usage(), 2)),
    ]
    async with await AsyncPerdure.open(store=InlineStore(), models={}) as perdure:
        runner = perdure.app.runner
        asyncio.get_running_loop().call_soon(runner._publish, RUN.key, publications)

        sent = [one async for one in runner.follow(RUN, known=[build_event(1, StepAbandoned(StepId("step-0")))])]

    assert [one.text for one in sent if isinstance(one, Delta)] == ["a", "c"]


@pytest.mark.parametrize("form", ["openai", "letta"])
async def test_of_a_reader_who_stops_little_is_held(form: str) -> None:
    """He may have left his connection open. When he reads on, he gets what he has missed in one piece."""
    answer = " ".join(f"word{number}" for number in range(4 * HELD))
    model, settings = ScriptedModel(says(answer)), Settings(model="test/scripted")
    async with await AsyncPerdure.open(
        store=InlineStore(), models={"test/scripted": model}, settings=settings
    ) as perdure:
        agent, runner = await perdure.create_agent("ann", tools=()), perdure.app.runner
        events = agent.stream("hello")
        sent = [await anext(events)]
        run = (await agent.runs())[0]
        async for _ in runner.follow(run):
            pass
        held = max(queue.qsize() for readers in runner._readers.values() for queue, _ in readers)
        sent += [one async for one in events]
    writer = ChatWriter("1", "ann", START)
    stream = AnswerStream(Accepted(run, ()), writer) if form == "openai" else Chunks(run, StreamMode(tokens=True))
    chunks = [chunk for one in sent for chunk in stream.of(one, now=START)]
    shapes = [one for one in chunks if isinstance(one, dict)]
    if form == "openai":
        said = "".join(one["choices"][0]["delta"].get("content", "") for one in shapes)
    else:
        said = "".join(one["content"] for one in shapes if one["message_type"] == "assistant_message")

    assert held < HELD + 100
    assert said == answer
