"""Events: numbered from 1 without gaps within a run, and read again from any number."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from perdure.core.errors import NotFound
from perdure.core.events import (
    Delta,
    DeltaStreamed,
    EngineQuarantined,
    Event,
    HookAnswered,
    MemoryEdited,
    MemoryRecalled,
    MessageAdded,
    ModelChanged,
    PrefixRewritten,
    RowsCut,
    RunCancelRequested,
    RunEnded,
    RunQueued,
    RunStarted,
    StepAbandoned,
    StepStarted,
    ToolStarted,
    ViewCompacted,
    ViewFull,
)
from perdure.core.ids import AgentId, BlockId, MessageId, RunId, StepId
from perdure.core.messages import Text
from perdure.core.runs import Failure, Run, RunKey, Usage
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, Contract, raises

ODD = "\x00 \ud800 \x1b 🧭 中"

FACTS: tuple[Event, ...] = (
    RunQueued(RunId("run-1")),
    RunStarted(RunId("run-1"), 2),
    RunCancelRequested(RunId("run-1")),
    ModelChanged(ODD, ODD),
    StepStarted(StepId("step-1"), 0),
    StepAbandoned(StepId("step-1")),
    PrefixRewritten(3, "window"),
    ViewCompacted(3, 0, 2**40, True, "extract", 900, 80, ODD, "fallback"),
    ViewFull(2**40, 7, "merge"),
    EngineQuarantined(ODD, ODD, "sliding_window"),
    RowsCut({17: 200, 2**40: 3}),
    ToolStarted(ODD, ODD),
    MemoryEdited(BlockId("block-1"), ODD, 4, ODD),
    MemoryRecalled(2**40, ({"kind": "turn", "id": ODD, "score": 0.5, "name": ODD},)),
    MemoryRecalled(0, (), ODD),
    HookAnswered("before_tool", ODD, "blocked", ODD),
    RunEnded(RunId("run-1"), "end_turn", Usage(input_tokens=1), 2),
    RunEnded(RunId("run-1"), "error", Usage(), 2, Failure(kind="llm_error", message=ODD)),
    DeltaStreamed(Delta(StepId("step-1"), MessageId("message-1"), "tool_arguments", ODD, 3, ODD)),
)


def delta(text: str) -> DeltaStreamed:
    return DeltaStreamed(Delta(StepId("step-1"), MessageId("message-1"), "text", text))


class EventContract(Contract):
    async def test_every_kind_of_event_is_kept(self) -> None:
        """Numbers begin at 1 and go on without gaps; what is read is what was told."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            first = await store.write(lambda tx: tx.events.add(run.key, FACTS[:3], at=AT))
            rest = await store.write(lambda tx: tx.events.add(run.key, FACTS[3:], at=AT + timedelta(seconds=1)))
            stored = await store.read(lambda tx: tx.events.list(run.key))
            kinds = await store.read(lambda tx: tx.events.kinds(agent.id, [run.key.seq, 99]))

            assert stored == [*first, *rest]
            assert tuple(one.event for one in stored) == FACTS
            assert [one.seq for one in stored] == list(range(1, len(FACTS) + 1))
            assert kinds == {run.key.seq: [one.type for one in FACTS if not isinstance(one, DeltaStreamed)]}
            assert {(one.agent_id, one.run_seq) for one in stored} == {(agent.id, run.key.seq)}

    async def test_a_reader_goes_on_from_the_last_number_it_saw(self) -> None:
        """After N come N+1 and the rest, as many as asked for; after the last one nothing."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            await store.write(lambda tx: tx.events.add(run.key, [RunQueued(run.id)] * 6, at=AT))

            def numbers(tx: Tx, after: int, limit: int = 1000) -> list[int]:
                return [event.seq for event in tx.events.list(run.key, after=after, limit=limit)]

            assert await store.read(numbers, 0) == [1, 2, 3, 4, 5, 6]
            assert await store.read(numbers, 2, 3) == [3, 4, 5]
            assert await store.read(numbers, 6) == []

    async def test_concurrent_events_leave_no_gap(self) -> None:
        """Many tasks over two handles: every number once, each run on its own count."""
        async with self.open_store() as one, self.open_store() as other:
            agent = await one.write(self.add_agent)
            runs = [await one.write(self.add_run, agent.id) for _ in range(2)]

            def tell(tx: Tx, run: Run) -> None:
                tx.events.add(run.key, [RunQueued(run.id)] * 2, at=AT)

            def numbers(tx: Tx, run: Run) -> list[int]:
                return [event.seq for event in tx.events.list(run.key)]

            await asyncio.gather(*(store.write(tell, run) for _ in range(5) for store in (one, other) for run in runs))
            for run in runs:
                assert await one.read(numbers, run) == list(range(1, 21))

    async def test_added_messages_come_with_the_message(self) -> None:
        """As it is shown now: a revised one with its new parts, a removed one without."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            messages = await store.write(lambda tx: self.say(tx, agent.id, "a", "b", "c", run=run))
            added = [MessageAdded(message.seq, message) for message in messages]
            await store.write(lambda tx: tx.events.add(run.key, [RunQueued(run.id), *added], at=AT))

            def events(tx: Tx) -> list[Event]:
                return [stored.event for stored in tx.events.list(run.key)]

            assert await store.read(events) == [RunQueued(run.id), *added]

            def revise(tx: Tx) -> None:
                tx.messages.revise(messages[0].id, [Text("A")], author=ADA, at=AT)
                tx.messages.revise(messages[1].id, None, author=ADA, at=AT)

            await store.write(revise)
            _, first, second, third = await store.read(events)
            assert isinstance(first, MessageAdded)
            assert first.message is not None
            assert first.message.text == "A"
            assert [second, third] == [MessageAdded(messages[1].seq), added[2]]

    async def test_trimming_takes_previews_only(self) -> None:
        """Previews that are too old or too many go; facts stay, and numbers are never given again."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)

            def tell(tx: Tx, events: list[Event], seconds: int) -> None:
                tx.events.add(run.key, events, at=AT + timedelta(seconds=seconds))

            await store.write(tell, [RunQueued(run.id), delta("old")], 0)
            await store.write(tell, [delta("a"), RunStarted(run.id, 1), delta("b"), delta("c")], 60)
            await store.write(tell, [StepStarted(StepId("step-1"), 0)], 60)

            def trim(tx: Tx, keep: int) -> int:
                return tx.events.trim_deltas(run.key, keep=keep, since=AT + timedelta(seconds=30))

            def list_events(tx: Tx) -> list[str]:
                return [
                    one.event.delta.text if isinstance(one.event, DeltaStreamed) else one.event.type
                    for one in tx.events.list(run.key)
                ]

            assert await store.write(trim, 3) == 1
            assert await store.read(list_events) == ["run.queued", "a", "run.started", "b", "c", "step.started"]
            assert await store.write(trim, 2) == 1
            assert await store.read(list_events) == ["run.queued", "run.started", "b", "c", "step.started"]
            assert await store.write(trim, 0) == 2
            assert await store.read(list_events) == ["run.queued", "run.started", "step.started"]
            (new,) = await store.write(lambda tx: tx.events.add(run.key, [delta("d")], at=AT))
            assert new.seq == 8

    async def test_an_unknown_run_tells_nothing(self) -> None:
        """Adding events to a run that is not there is refused."""
        async with self.open_store() as store:
            with raises(NotFound):
                await store.write(
                    lambda tx: tx.events.add(
                        RunKey(AgentId(self.ids.new("agent")), 0), [RunQueued(RunId("run-1"))], at=AT
                    )
                )
