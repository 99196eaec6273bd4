"""An engine that raises, hangs or returns nonsense: the run goes on without it, and an event says why."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from perdure.context.engines import (
    ContextEngine,
    EngineConversation,
    Evict,
    Merge,
    Plan,
    Situation,
    Stub,
    evict_count,
    split_atoms,
)
from perdure.core.events import EngineQuarantined, ViewFull
from perdure.core.messages import Message
from tests.engine.context_engines import stories
from tests.engine.context_engines.stories import FILLER, Stage, call, tell


async def full(stage: Stage) -> None:
    """The window is full twice, once in the middle of a run."""
    for number in range(4):
        await stage.say(f"message {number} {FILLER * 40}")
    await stage.say(
        f"look {FILLER * 10}", [call("dump", chars=4_000)], [call("dump", call_id="d", chars=3_000)], "seen"
    )


def broken(plan: Callable[[Situation], Any], **attributes: Any) -> type[ContextEngine]:
    """An engine that plans by this function."""
    return type("Broken", (ContextEngine,), {"plan": lambda self, situation: plan(situation), **attributes})


def evict(situation: Situation) -> Evict:
    found = evict_count(situation, 2, absorbs=False)
    assert found is not None
    return found


def whole_view(situation: Situation) -> Evict:
    may_leave, fixed = split_atoms(situation)
    return replace(evict(situation), atoms=(*may_leave, *fixed))


def raises(situation: Situation) -> Plan:
    raise RuntimeError("no idea")


def half_an_atom(situation: Situation) -> Evict:
    first, *others = evict(situation).atoms
    return replace(evict(situation), atoms=(replace(first, messages=first.messages[:-1]), *others))


def drops_the_question(situation: Situation) -> Evict:
    """Everything leaves, the message too that the run answers."""
    may_leave, _ = split_atoms(situation)
    return replace(evict(situation), atoms=tuple(may_leave), pinned=())


def pins_half_a_call(situation: Situation) -> Evict:
    """The message with the call stays, and its result leaves."""
    found = evict_count(situation, 3, absorbs=False)
    assert found is not None
    asked = [atom.messages[0] for atom in found.atoms if atom.messages[0].calls]
    return replace(found, pinned=(*found.pinned, *asked[:1]))


NONSENSE: dict[str, tuple[Callable[[Situation], Any], str]] = {
    "raises": (raises, "raised RuntimeError: no idea"),
    "another type": (lambda situation: "evict all", "it returned str: a plan is Evict, Merge or Stub"),
    "a coroutine": (lambda situation: asyncio.sleep(0), "it returned coroutine"),
    "nothing": (lambda situation: None, "it has no plan for a request that does not fit"),
    "what no model has seen": (whole_view, "which no model has answered yet"),
    "a gap": (lambda situation: replace(evict(situation), atoms=evict(situation).atoms[1:]), "is not the oldest"),
    "no gain": (lambda situation: replace(evict(situation), summary_tokens=4_000), "would not become smaller"),
    "no size": (lambda situation: replace(evict(situation), summary_tokens=-1), "summary_tokens is -1"),
    "long text": (lambda situation: replace(evict(situation), text=FILLER * 90), "more than the"),
    "no text": (lambda situation: replace(evict(situation), text=" "), "its summary has no text"),
    "pins strangers": (lambda situation: replace(evict(situation), pinned=situation.rows[-1:]), "it pins a message"),
    "no rows": (lambda situation: replace(evict(situation), atoms=cast(Any, None)), "its plan can't be read"),
    "empty merge": (lambda situation: Merge((), 100), "it merges no summaries"),
    "unknown row": (lambda situation: Stub({10**9: 5}, sent=False), "has no such stub"),
    "longer": (lambda situation: Stub({situation.rows[0].seq: 10**6}, sent=False), "has no such stub"),
    "same stubs": (lambda situation: Stub({}, sent=False), "would not become smaller"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NONSENSE)
async def test_an_engine_that_plans_nonsense_is_quarantined(name: str) -> None:
    """For the run: each run asks it again, and `sliding_window` plans for the rest of each."""
    plan, why = NONSENSE[name]
    told = await tell(full, "broken", {"broken": broken(plan, owns_compaction=True)})

    events = told.events_of(EngineQuarantined)
    assert events
    assert {(event.engine, event.takes_over) for event in events} == {("broken", "sliding_window")}
    assert why in events[0].reason
    assert len(events) <= len(told.stop_reasons)
    assert told.events_of(ViewFull)
    stories.every_run_has_ended(told)
    stories.every_request_is_legal_and_fits(told)
    stories.every_request_can_be_rebuilt(told)
    stories.every_message_is_reachable(told)


@pytest.mark.parametrize("plan", [half_an_atom, drops_the_question, pins_half_a_call])
async def test_an_engine_cannot_cut_through_a_call_or_lose_the_question(plan: Callable[[Situation], Any]) -> None:
    """Only where there is such a cut: in the middle of a run with calls."""

    async def calling(stage: Stage) -> None:
        many = [[call("dump", call_id=f"c{number}", chars=900)] for number in range(9)]
        await stage.say(f"look {FILLER}", *many, "seen")

    told = await tell(calling, "broken", {"broken": broken(plan, owns_compaction=True)})

    (event,) = told.events_of(EngineQuarantined)
    assert any(why in event.reason for why in ("cut where calls have", "which the run answers", "a part of a call"))
    stories.every_run_has_ended(told)
    stories.every_request_is_legal_and_fits(told)


async def test_a_run_that_another_process_takes_over_stays_without_the_engine() -> None:
    """What the first process learned of the engine is stored, so the second one does not ask it again."""

    class Raising(ContextEngine):
        def assemble(self, situation: Situation) -> Plan | None:
            raise RuntimeError("no idea")

    async def taken_over(stage: Stage) -> None:
        await stories.be_killed(stage, "look", [call("dump", chars=500)])
        await stage.say("again")

    told = await tell(taken_over, "raising", {"raising": Raising})

    assert len(told.stop_reasons) == 2
    assert len(told.events_of(EngineQuarantined)) == 2
    stories.every_run_has_ended(told)


@pytest.mark.parametrize("how", ["thread", "coroutine"])
async def test_an_engine_that_hangs_is_quarantined_and_holds_nobody_up(how: str) -> None:
    """Others are answered meanwhile: what waits is a thread of its own, not the one that writes."""
    go_on = threading.Event()

    class Hanging(ContextEngine):
        timeout_s = 0.05

        def assemble(self, situation: Situation) -> Plan | None:
            if how == "thread":
                go_on.wait(20)
            return None

        async def ingest(self, conversation: EngineConversation, messages: Sequence[Message]) -> None:
            if how == "coroutine":
                await asyncio.sleep(20)

    async def two_at_once(stage: Stage) -> None:
        other = await stage.perdure.create_agent("other", model=stories.MODEL)
        hanging = asyncio.create_task(stage.say("hello"))
        await other.send("hello")
        await hanging
        await stage.say("again")

    try:
        told = await tell(two_at_once, "hanging", {"hanging": Hanging})
    finally:
        go_on.set()

    reasons = [event.reason for event in told.events_of(EngineQuarantined)]
    assert reasons == [f"{'assemble' if how == 'thread' else 'ingest'} took more than 0.05 s"] * 2
    stories.every_run_has_ended(told)


async def test_an_engine_that_never_stops_planning_is_quarantined() -> None:
    """Each of its plans makes the view smaller, but there are too many for one request."""

    class Nibbling(ContextEngine):
        owns_compaction = True

        def assemble(self, situation: Situation) -> Plan | None:
            row = max(situation.rows, key=lambda row: situation.tokens_of(row))
            chars = situation.stubs.get(row.seq, len(row.text))
            return Stub({row.seq: chars - 40}, sent=True) if chars > 40 else None

    async def long(stage: Stage) -> None:
        await stage.say(FILLER * 150)

    told = await tell(long, "nibbling", {"nibbling": Nibbling})

    (event,) = told.events_of(EngineQuarantined)
    assert event.reason == "it planned 64 times for one request"
    stories.every_run_has_ended(told)


async def test_an_engine_that_cannot_be_made_is_quarantined() -> None:
    """A program that opens the store later may lack what the agent's setting names."""
    made: list[int] = []

    def make() -> ContextEngine:
        if made:
            raise ImportError("no such package")
        made.append(1)
        return ContextEngine()

    async def reopened(stage: Stage) -> None:
        await stage.say("hello")
        await stage.perdure.close()
        stage.perdure = await stage.open()
        stage.agent = await stage.perdure.agent(stage.agent.id)
        await stage.say("again")

    told = await tell(reopened, "gone", {"gone": make})

    (event,) = told.events_of(EngineQuarantined)
    assert "no such package" in event.reason
    stories.every_run_has_ended(told)
    stories.every_request_can_be_rebuilt(told)
