"""What a reader of a run receives."""

from __future__ import annotations

import asyncio

from perdure import AsyncPerdure
from perdure.core.events import Delta, Event, RunEnded, StepAbandoned, StoredEvent
from perdure.core.ids import AgentId, ConversationId, MessageId, RunId, StepId
from perdure.core.runs import Run, RunKey, Usage
from perdure.engine.run.runner import Publication
from perdure.testing import InlineStore
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
