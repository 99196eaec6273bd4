"""Beginnings, ends and corrections of a fact, in any order: none is refused, and none takes another fact with it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import AsyncPerdure, Perdure
from perdure.core.messages import text_of
from perdure.core.models import ModelReply, ModelRequest
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, says
from tests.support.library import MODEL
from tests.support.strategies import effort

YEARS = st.sampled_from([None, 2015, 2020])


@dataclass(frozen=True)
class Said:
    """What a text says of where Ada works: a decision about what is known of it, or about what the same text said."""

    decision: str
    begin: int | None
    end: int | None
    place: int
    is_inner: bool


SAID = st.builds(
    Said,
    st.sampled_from(["UPDATE", "SUPERSEDE", "ADD", "DELETE", "NONE"]),
    YEARS,
    YEARS,
    st.integers(0, 1),
    st.booleans(),
)


def answer(request: ModelRequest, texts: Sequence[Sequence[Said]]) -> ModelReply:
    """What a model says of a text, which holds its number."""
    prompt = text_of(request.messages[0].parts)
    turns = prompt.split("<turns>")[1]
    number = int(turns.split("Text ")[1].split(":")[0])
    facts: list[dict[str, Any]] = []
    known = re.search(r"(?m)^(\d+)\. .*works at Norvik", prompt.split("<turns>")[0])
    for one in texts[number]:
        fact: dict[str, Any] = {"subject": "Ada", "relation": "WORKS_AT", "object": f"Norvik {one.place}", "turns": [1]}
        fact |= {"text": f"Ada works at Norvik {one.place}.", "decision": one.decision}
        fact |= {"valid_at": one.begin and f"{one.begin}-01-01", "invalid_at": one.end and f"{one.end}-01-01"}
        if one.is_inner and facts:
            fact["replaces"] = len(facts)
        elif known is not None:
            fact["known"] = int(known[1])
        else:
            fact["decision"] = "ADD"
        facts.append({name: value for name, value in fact.items() if value is not None})
    beside = {"subject": "Ada", "relation": "HAS", "object": f"cat {number}", "text": f"Ada has cat {number}."}
    facts.append({**beside, "turns": [1], "decision": "ADD"})
    names = ["Ada", "Norvik 0", "Norvik 1", f"cat {number}"]
    return says(json.dumps({"entities": [{"name": name, "type": "Concept"} for name in names], "facts": facts}))


@pytest.mark.slow
@effort(few=60, many=2_000)
@given(st.lists(st.lists(SAID, min_size=1, max_size=3), min_size=2, max_size=5))
def test_no_order_of_beginnings_and_ends_is_refused(texts: list[list[Said]]) -> None:
    """Each text is extracted, with the fact beside; what is known never ends before it begins."""

    async def tell() -> None:
        model = ScriptedModel(extracts=lambda request: answer(request, texts))
        settings = Settings(model=MODEL, embedding="none", facts="model")
        async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings) as perdure:
            agent = await perdure.create_agent("x")
            for number, said in enumerate(texts):
                years = " ".join(str(year) for one in said for year in (one.begin, one.end) if year)
                await agent.facts.ingest(f"Text {number}: Ada, cat {number}, Norvik 0, Norvik 1. {years}")
            known = [hit.fact for hit in await agent.facts.list(limit=200)]

            assert {f"Ada has cat {number}." for number in range(len(texts))} <= {fact.text for fact in known}
            for fact in known:
                assert fact.valid_at is None or fact.invalid_at is None or fact.valid_at <= fact.invalid_at
            counts = await agent.facts.counts()
            assert (counts.waiting, counts.dropped.get("it can't be stored", 0)) == (0, 0)

    asyncio.run(tell())


@pytest.mark.parametrize(
    ("texts", "begin", "end"),
    [
        (["I work at Norvik.", "I quit my job at Norvik yesterday."], None, "2026-11-19"),
        (["我在北新公司工作。", "我昨天离开了北新公司。"], None, "2026-11-19"),
        (["I work at Norvik.", "I left Norvik in 2020."], None, "2020-01-01"),
        (["I work at Norvik. I quit my job at Norvik last week."], None, "2026-11-09"),
        (["I live in Rome.", "I lived in Rome until 2019."], None, "2020-01-01"),
    ],
)
def test_an_end_before_the_time_of_saying_leaves_the_beginning_open(
    texts: list[str], begin: str | None, end: str
) -> None:
    """And what is said next is extracted, too."""
    with Perdure(store=InlineStore(), models={MODEL: ScriptedModel()}, settings=Settings(embedding="none")) as perdure:
        agent = perdure.create_agent("x", model=MODEL)
        for text in (*texts, "I like tea."):
            agent.facts.ingest(text, occurred_at=datetime(2026, 11, 20, 10, tzinfo=UTC))
        tea, work = (hit.fact for hit in agent.facts.list())

        assert (work.valid_at, str(work.invalid_at)[:10], tea.invalid_at) == (begin, end, None)
