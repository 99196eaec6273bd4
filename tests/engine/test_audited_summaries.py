"""Summaries by a model are audited: one repair, then the extract stands in, and the event says which it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure, StoredEvent
from perdure.core.events import ViewCompacted
from perdure.core.models import ModelReply, ModelRequest
from perdure.core.nodes import SummaryNode
from perdure.testing import FakeClock, InlineStore, ScriptedModel, SequentialIds, says

MODEL, SUMMARISER = "test/scripted", "test/summariser"
GOOD = "They said message after message, word after word."
STORY = [
    "My ticket is TKT-48151, please look at /srv/app/errors.log.",
    "tea bread cheese olives plums garden house evening lamps voice hall rained weather company people noon laughed",
    *(f"message {number} {'word ' * 300}" for number in range(20)),
]


@dataclass
class Answers:
    """A script for requests for summaries: one line for first calls, one for repairs."""

    first: Callable[[ModelRequest], str]
    repaired: Callable[[ModelRequest], str]
    requests: list[tuple[ModelRequest, bool]] = field(default_factory=list)

    def __call__(self, request: ModelRequest) -> ModelReply:
        is_repair = request.messages[-1].text.startswith("This record can't be used")
        self.requests.append((request, is_repair))
        return says((self.repaired if is_repair else self.first)(request))


async def first_compaction(answers: Answers, **compaction: Any) -> tuple[ViewCompacted, SummaryNode]:
    """The first compaction of a conversation whose first message has an identifier and a path."""
    model = ScriptedModel(summarises=answers)
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model, SUMMARISER: model}, clock=FakeClock(), ids=SequentialIds()
    ) as perdure:
        settings = {
            "context_window_tokens": 20_000,
            "auto_recall": False,
            "summaries": {"background": False},
            "compaction": compaction,
        }
        agent = await perdure.create_agent("a", model=MODEL, settings=settings)
        event = await compact(agent)
        (node,) = await perdure.app.store.read(lambda tx: tx.nodes.list_by_seqs(agent.id, 0, [event.node_seq]))
    return event, node


async def compact(agent: AsyncAgent) -> ViewCompacted:
    while True:
        for text in STORY:
            async for sent in agent.stream(text):
                if isinstance(sent, StoredEvent) and isinstance(sent.event, ViewCompacted):
                    return sent.event


async def test_a_good_first_answer_is_used() -> None:
    """What it lacks stands behind it, with the message that it is from."""
    answers = Answers(lambda _: GOOD, lambda _: GOOD)
    event, node = await first_compaction(answers)

    assert (event.method, event.made_by, event.rejected) == ("normal", "model", None)
    assert [is_repair for _, is_repair in answers.requests] == [False]
    assert node.text.startswith(GOOD)
    assert "msg-0: /srv/app/errors.log; TKT-48151" in node.text or "msg-0 user" in node.text
    assert "TKT-48151" in node.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "reason", "complaint"),
    [
        ("", "empty", "It says nothing."),
        ("I'm sorry, but I can't help with that.", "apology", "It is a refusal"),
        ("The ticket is TKT-48516, message after message.", "invented", "The source does not have:\nTKT-48516"),
        ("They spoke of message after message, word by word, see msg-900.", "invented", "msg-900"),
        ("They spoke of words and messages without end. " * 400, "too_long", "It is too long."),
    ],
)
async def test_a_bad_first_answer_is_repaired_once(bad: str, reason: str, complaint: str) -> None:
    """The model reads its answer again, and what is wrong with it; the event says why."""
    answers = Answers(lambda _: bad, lambda _: GOOD)
    event, node = await first_compaction(answers)
    (first, _), (repair, _) = answers.requests

    assert (event.method, event.made_by, event.rejected) == ("aggressive", "model", reason)
    assert node.text.startswith(GOOD)
    assert repair.messages[0] == first.messages[0]
    assert complaint in repair.messages[-1].text


async def test_a_summary_without_room_for_what_it_lacks_is_repaired_then_cut() -> None:
    """The repair names what is missing; what code cuts off gives way to it."""
    tale = (
        "They said message after message about many a word. Some came early and others late, one by one, as people talk"
        " who like each other's company. Nobody minded how long that went on, because the weather was fine outside and"
        " there was tea. At noon somebody brought bread, cheese, olives and a bowl of plums from the garden behind the"
        " house. In the evening they counted what had been spoken, found it long, laughed, and went on with more of it."
        " Late at night all lamps but two were put out, yet a voice could still be heard from the hall. Then it rained,"
        " and those who had no coat stayed for the night, which nobody had foreseen. Breakfast was late for that."
    )

    def fill(request: ModelRequest) -> str:
        return tale

    answers = Answers(fill, fill)
    event, node = await first_compaction(answers)

    assert (event.method, event.rejected) == ("capped", "missing")
    assert "It must have, letter by letter:\nmsg-" in answers.requests[1][0].messages[-1].text
    assert "TKT-48151" in node.text
    assert node.text.startswith("They said message after message about many a word.")


async def test_after_a_bad_repair_the_extract_stands_in() -> None:
    answers = Answers(lambda _: "", lambda _: "See node-77 for TKT-11111: message after message, word after word.")
    event, node = await first_compaction(answers)

    assert (event.method, event.made_by, event.rejected) == ("fallback", "extract", "empty; invented")
    assert len(answers.requests) == 2
    assert "TKT-48151" in node.text


async def test_the_settings_name_the_model_that_writes_and_cut_what_it_writes() -> None:
    event, node = await first_compaction(Answers(lambda _: GOOD, lambda _: GOOD), model=SUMMARISER, clip_chars=20)

    assert event.method == "capped"
    assert node.model == SUMMARISER
    assert node.text == GOOD[:20]
