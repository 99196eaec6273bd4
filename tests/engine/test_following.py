"""What a reader of a run is sent."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.events import Delta, Event, RunEnded, StepAbandoned, StoredEvent
from perdure.core.ids import AgentId, MessageId, RunId, StepId
from perdure.core.runs import Usage
from perdure.engine.run.hub import Publication, follow
from perdure.testing.clock import START


def delta(step: str, text: str) -> Delta:
    return Delta(StepId(step), MessageId("message-1"), "text", text)


def build_event(seq: int, event: Event) -> StoredEvent:
    return StoredEvent(agent_id=AgentId("agent-1"), run_seq=0, seq=seq, event=event, created_at=START)


async def test_no_preview_of_a_step_comes_after_it_was_told_to_be_abandoned() -> None:
    """The model's call of a process that lost the run goes on for a moment, and what it says is void."""
    publications: list[Publication] = [
        delta("step-1", "a"),
        build_event(1, StepAbandoned(StepId("step-1"))),
        delta("step-1", "b"),
        delta("step-2", "c"),
        build_event(2, RunEnded(RunId("run-1"), "end_turn", Usage(), 2)),
    ]

    async def load(after: int) -> Sequence[StoredEvent]:
        return ()

    async def receive() -> Publication:
        return publications.pop(0)

    followed = [one async for one in follow(receive, load)]

    assert [one.text for one in followed if isinstance(one, Delta)] == ["a", "c"]
