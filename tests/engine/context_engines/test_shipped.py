"""What the shipped engines do differently from each other."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.context.engines import Evict, Situation
from perdure.context.engines.sliding_window import MessageBuffer, RecursiveSummary, SlidingWindow, begins_turn
from perdure.core.conversations import CompactionSettings
from perdure.core.events import RowsCut, ViewFull
from perdure.core.messages import Message
from tests.engine.context_engines import stories
from tests.engine.context_engines.stories import FILLER, Stage, call, tell

_STUBS = {"name": "stubs", "options": {"keep_results": 1}}
STUBS = {"name": "composition", "options": {"assembler": "recursive_summary", "compressor": _STUBS}}


async def long_talk(stage: Stage) -> None:
    for number in range(12):
        await stage.say(f"message {number} {FILLER * 20}")


async def situation_of(engine: type[SlidingWindow], turns: int, **compaction: Any) -> tuple[Situation, Evict]:
    """The situation of the first request of a conversation that does not fit, and the plan for it."""
    seen: list[tuple[Situation, Any]] = []

    class Watched(engine):  # type: ignore[misc,valid-type]
        def plan(self, situation: Situation) -> Any:
            found = super().plan(situation)
            seen.append((situation, found))
            return found

    async def talk(stage: Stage) -> None:
        for number in range(turns):
            await stage.say(f"message {number} {FILLER * 9}")

    await tell(talk, "watched", {"watched": Watched}, compaction=compaction)
    situation, found = seen[0]
    assert isinstance(found, Evict)
    return situation, found


@pytest.mark.parametrize(("share", "least"), [(None, 0.3), (0.6, 0.6)])
async def test_a_sliding_window_evicts_its_share_up_to_a_turn(share: float | None, least: float) -> None:
    """The rest begins with a user's message, and takes at most the rest of the room."""
    situation, found = await situation_of(SlidingWindow, 16, **({} if share is None else {"evict_share": share}))
    rest = [row for row in situation.rows if row.seq >= found.from_seq]

    assert len(found.messages) >= least * len(situation.rows)
    assert begins_turn(rest[0])
    assert sum(map(situation.tokens_of, rest)) <= (1 - least) * situation.room_tokens
    assert situation.compaction == CompactionSettings(evict_share=share)


async def test_with_the_mode_all_everything_leaves_that_may() -> None:
    """What the run answers stays, and what no model has seen."""
    situation, found = await situation_of(SlidingWindow, 16, mode="all")
    rest: list[Message] = [row for row in situation.rows if row.seq >= found.from_seq]

    assert [row.text.split()[:2] for row in rest] == [["message", situation.rows[-1].text.split()[1]]]


async def test_a_recursive_summary_is_one_and_is_made_from_the_one_before() -> None:
    """It stands second in the request, right behind the system text, and covers all that left."""
    told = await tell(long_talk, "recursive_summary")

    assert len(told.nodes) > 1
    assert max(map(len, told.prefixes)) == 1
    assert told.sent[-1].messages[0].kind == "summary"
    (node,) = told.shown
    assert (node.from_message_seq, node.level) == (0, 0)
    older = [text for text in told.summary_sources if "node-0 (msg-0.." in text]
    assert older, "the second summary was made without the first"


async def test_a_message_buffer_holds_a_number_of_messages() -> None:
    """Whatever the window is: from the eleventh on, all but the newest three leave."""

    async def talk(stage: Stage) -> None:
        await stage.agent.update(settings=dict(stage.agent.info.settings) | {"context_window_tokens": 100_000})
        for number in range(10):
            await stage.say(f"message {number} {FILLER * 4}")

    told = await tell(talk, "message_buffer")
    counts = [sum(one.kind == "message" for one in request.messages) for request in told.sent]

    assert max(counts) == 9
    assert counts[5] == 3
    assert told.by == {"engine"}
    assert {event.by for event in told.events_of(ViewFull)} == {"engine"}
    smaller = MessageBuffer(message_buffer_limit=4, message_buffer_min=1)
    assert smaller.absorbs


async def test_a_composition_shows_old_results_by_handles_before_anything_leaves() -> None:
    """The newest result stays; the assembler comes second."""

    async def look(stage: Stage) -> None:
        for number in range(7):
            await stage.say(f"look {number}", [call("dump", chars=1_800)], "seen")

    told = await tell(look, STUBS, context_window_tokens=8_500)

    assert told.events_of(ViewFull)[0].by == "stub"
    assert told.events_of(RowsCut)
    lengths = [[len(one.text) for one in request.messages if one.role == "tool"] for request in told.sent]
    cut = next(sizes for sizes in lengths if sizes and min(sizes) < 200)
    assert [size < 200 for size in cut] == [True] * (len(cut) - 1) + [False]


async def test_a_compaction_on_request_makes_one_summary_where_the_engine_has_one() -> None:
    async def compacted(stage: Stage) -> None:
        for number in range(2):
            await stage.say(f"message {number} {FILLER * 8}")
            await stage.agent.compact()

    told = await tell(compacted, "recursive_summary")
    plain = await tell(compacted, "sliding_window")

    assert (len(told.shown), len(plain.shown)) == (1, 2)
    stories.every_message_is_reachable(told)
    assert RecursiveSummary.absorbs and not SlidingWindow.absorbs
