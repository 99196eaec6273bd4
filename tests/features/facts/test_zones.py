"""The days of facts are those of who says them: how "yesterday" is read, what a model is told, and what is shown."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import AsyncPerdure
from perdure.adapters.mem0 import AsyncMemory
from perdure.adapters.zep import AsyncSessions
from perdure.core.errors import InvalidInput
from perdure.core.models import ModelReply, ModelRequest
from perdure.core.text.zones import local
from perdure.features.facts.extraction.patterns import PatternExtractor
from perdure.features.facts.extraction.plan import PlannedFact, plan_extraction
from perdure.features.facts.units.context import fact_line
from perdure.features.facts.values.extraction import ExtractedEntity, ExtractedFact, Extraction, ReadBatch, SpokenTurn
from perdure.features.facts.values.facts import Fact
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, says
from tests.features.facts.test_plan_rules import ADA, TURIN, known_fact
from tests.server.routed import new_agent, routed
from tests.support.library import MODEL
from tests.ui.browser import dashboard

ZONES = (
    *("Pacific/Pago_Pago", "Pacific/Honolulu", "America/Los_Angeles", "America/St_Johns", "UTC", "Europe/Rome"),
    *("Asia/Kolkata", "Asia/Shanghai", "Pacific/Auckland", "Pacific/Kiritimati"),
)
TURN_OF_THE_MONTH = datetime(2026, 2, 28, 23, 30, tzinfo=UTC)  # half past seven of 1 March in Shanghai
OFFSETS = ("", "T00:00:00", "T00:00:00Z", "own")


def month_before(day: date) -> date:
    """The first day of the month before."""
    return (day.replace(day=1) - timedelta(days=1)).replace(day=1)


SENTENCES: dict[str, Callable[[date], date]] = {
    "I moved to Turin yesterday.": lambda day: day - timedelta(days=1),
    "I moved to Turin today.": lambda day: day,
    "I moved to Turin last month.": month_before,
    "I have lived in Turin since Monday.": lambda day: day - timedelta(days=day.weekday()),
    "I moved to Turin last year.": lambda day: date(day.year - 1, 1, 1),
    "我昨天搬到了都灵。": lambda day: day - timedelta(days=1),
    "我上个月搬到了都灵。": month_before,
    "我去年搬到了都灵。": lambda day: date(day.year - 1, 1, 1),
}
"""A sentence -> the day that it says, by the day on which it is said."""


def around_midnight() -> st.SearchStrategy[datetime]:
    """Times near the ends of days, months and years."""
    days = st.one_of(
        st.dates(date(2020, 1, 2), date(2030, 12, 30)),
        st.builds(
            lambda year, month, back: date(year, month, 1) - timedelta(days=back),
            st.integers(2020, 2030),
            st.integers(1, 12),
            st.integers(0, 1),
        ),
    )
    minutes = st.one_of(st.integers(0, 1439), st.sampled_from([0, 1, 59, 1380, 1439]))
    return st.builds(
        lambda day, minute: datetime.combine(day, time(), tzinfo=UTC) + timedelta(minutes=minute), days, minutes
    )


def read(text: str, at: datetime, zone: str) -> PlannedFact:
    """The fact that patterns find in a sentence that somebody says there."""
    turn = SpokenTurn(number=1, speaker="User", text=text, occurred_at=local(at, ZoneInfo(zone)))
    batch = ReadBatch(turns=[turn])
    (found,) = plan_extraction(batch, asyncio.run(PatternExtractor().extract(batch))).facts
    return found


@given(text=st.sampled_from(sorted(SENTENCES)), zone=st.sampled_from(ZONES), at=around_midnight())
def test_a_day_is_that_of_who_says_it_and_is_shown_so(text: str, zone: str, at: datetime) -> None:
    """Whatever the day is elsewhere."""
    home = ZoneInfo(zone)
    said = SENTENCES[text](at.astimezone(home).date())
    found = read(text, at, zone)
    shown = known_fact(1, ADA, "LIVES_IN", TURIN, valid_at=found.valid_at)

    assert found.valid_at is not None and found.valid_at.tzinfo is UTC
    assert found.valid_at.astimezone(home).date() == said
    assert fact_line(shown, home).endswith(f"(since {said})")


@given(zone=st.sampled_from(ZONES), at=around_midnight(), offset=st.sampled_from(OFFSETS))
def test_a_day_that_a_model_answers_is_one_of_the_speaker(zone: str, at: datetime, offset: str) -> None:
    """However it writes the midnight."""
    home = ZoneInfo(zone)
    now = local(at, home)
    day = now.date() - timedelta(days=1)
    midnight = datetime.combine(day, time(), tzinfo=home)
    answer = midnight.isoformat() if offset == "own" else f"{day}{offset}"
    entities = [ExtractedEntity(name="User", type="Person"), ExtractedEntity(name="Turin", type="Location")]
    names = {"subject": "User", "relation": "LIVES_IN", "object": "Turin", "text": "User lives in Turin."}
    fact = ExtractedFact(**names, turns=(1,), valid_at=answer)  # type: ignore[arg-type]
    turn = SpokenTurn(number=1, speaker="User", text="I moved to Turin yesterday.", occurred_at=now)
    planned = plan_extraction(ReadBatch(turns=[turn]), Extraction(entities=entities, facts=[fact])).facts

    assert [one.valid_at and one.valid_at.astimezone(home).date() for one in planned] == [day]


async def opened(**settings: Any) -> AsyncPerdure:
    return await AsyncPerdure.open(store=InlineStore(), settings=Settings(model="", embedding="none", **settings))


async def days(perdure: AsyncPerdure, zone: str, text: str = "I moved to Turin last month.") -> set[date | None]:
    """The days there from which the facts are true that a new agent in a zone is told at the turn of the month."""
    agent = await perdure.create_agent(timezone=zone)
    await agent.import_messages([("user", None, text, TURN_OF_THE_MONTH)])
    return {day_of(hit.fact, zone) for hit in await agent.facts.extract()}


def day_of(fact: Fact, zone: str) -> date | None:
    return None if fact.valid_at is None else fact.valid_at.astimezone(ZoneInfo(zone)).date()


async def test_each_agent_of_a_shared_graph_is_read_by_its_own_clock() -> None:
    """Of messages, of passages and of texts that are given."""
    async with await opened() as perdure:
        assert await days(perdure, "Asia/Shanghai") == {date(2026, 2, 1)}
        assert await days(perdure, "America/Los_Angeles") == {date(2026, 1, 1)}

        east = await perdure.create_agent(timezone="Asia/Shanghai")
        west = await perdure.create_agent(timezone="America/Los_Angeles")
        found = []
        for agent, zone in ((east, "Asia/Shanghai"), (west, "America/Los_Angeles")):
            graph = await perdure.agent_of(east.id).facts.find_graph()
            if agent is west and graph is not None:
                await perdure.agent_of(west.id).facts.attach_graph(graph.id)
            (hit,) = await agent.facts.ingest(
                f"I moved to {'Turin' if agent is east else 'Milan'} last month.", occurred_at=TURN_OF_THE_MONTH
            )
            found.append(day_of(hit.fact, zone))

        assert found == [date(2026, 2, 1), date(2026, 1, 1)]
        assert "(since 2026-02-01)" in (await east.facts.context()).text


async def test_what_no_agent_has_is_read_by_the_clock_of_the_setting() -> None:
    """So are agents that are created without a zone."""
    async with await opened(timezone="Asia/Shanghai") as perdure:
        agent = await perdure.create_agent()
        assert agent.info.timezone == "Asia/Shanghai"

        memory = AsyncMemory(perdure)
        said: dict[str, Any] = {
            "user_id": "ada",
            "timestamp": TURN_OF_THE_MONTH.isoformat(),
            "expiration_date": "2030-12-31",
        }
        (added,) = (await memory.add("I moved to Turin last month.", **said))["results"]
        (fact,) = [(await perdure.facts.get(added["id"])).fact]
        sessions = AsyncSessions(perdure)
        message = {"content": "I moved to Turin last month.", "role_type": "user", "created_at": "2026-03-01T07:30"}
        await sessions.add("s", messages=[message])

        assert (fact.valid_at, fact.invalid_at) == (
            datetime(2026, 1, 31, 16, tzinfo=UTC),
            datetime(2030, 12, 31, 16, tzinfo=UTC),
        )
        assert (await memory.get(added["id"]) or {})["expiration_date"] == "2030-12-31"
        assert "(2026-02-01 - present)" in (await sessions.get("s")).context
    with pytest.raises(InvalidInput, match="PERDURE_TIMEZONE"):
        Settings(timezone="Mars/Base")


async def test_a_model_is_told_the_time_of_the_speaker() -> None:
    """With its offset, in which it answers."""
    asked: list[str] = []

    def answer(request: ModelRequest) -> ModelReply:
        asked.append(request.messages[0].text)
        return says('{"entities": [], "facts": [], "certain": true}')

    settings = Settings(model=MODEL, embedding="none", facts="model")
    models = {MODEL: ScriptedModel(extracts=answer)}
    async with await AsyncPerdure.open(store=InlineStore(), models=models, settings=settings) as perdure:
        await days(perdure, "Asia/Shanghai")

    assert re.findall(r"\[(2026\S+)\] ", asked[0]) == ["2026-03-01T07:30:00+08:00"]


async def test_days_of_requests_are_those_of_the_agent() -> None:
    """A fact of 1 March in Shanghai is there from that day's first moment."""
    async with routed() as server:
        agent_id = (await new_agent(server, timezone="Asia/Shanghai"))["id"]
        body = {"agent_id": agent_id, "text": "Ada lives in Turin.", "valid_at": "2026-03-01"}
        fact = await server.post("/v1/facts", body)
        changed = await server.patch(f"/v1/facts/{fact['id']}", {"valid_at": "2026-03-02T08:00"})
        listed = [
            len(await server.get("/v1/facts", agent_id=agent_id, at=at))
            for at in ("2026-03-02", "2026-03-02T07:59", "2026-03-02T08:00", "2026-03-02T00:00Z")
        ]
        events = await server.get("/v1/facts/timeline", agent_id=agent_id, until="2026-03-02")

        assert (fact["valid_at"], changed["valid_at"]) == ("2026-02-28T16:00:00.000000Z", "2026-03-02T00:00:00.000000Z")
        assert (listed, len(events)) == ([0, 0, 1, 1], 1)
        assert (await server.refused("POST", "/v1/facts", body={**body, "valid_at": "soon"}))[0] == 422


async def test_the_page_of_facts_has_the_days_of_the_agent() -> None:
    """What it shows is what its form takes: a day that stays keeps its time."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann", timezone="Asia/Shanghai")
        path = f"/agents/{agent.id}/facts"
        await client.post(path, data={"text": "Ada lives in Turin", "since": "2026-03-01", "until": ""})
        (hit,) = await agent.facts.list()
        page, when = (await client.get(path)).text, hit.fact.valid_at
        await client.post(f"{path}/{hit.fact.id}", data={"text": "Ada is in Turin", "since": "2026-03-01"})
        timeline = (await client.get(f"{path}/timeline")).text
        why = (await client.get("/why", params={"of": hit.fact.id})).text
        (after,) = await agent.facts.list()

        assert when == datetime(2026, 2, 28, 16, tzinfo=UTC)
        assert 'value="2026-03-01"' in page and "since 1 Mar 2026" in page and "1 Mar 2026" in timeline
        assert ">2026-03-01 00:00<" in why
        assert (after.fact.text, after.fact.valid_at) == ("Ada is in Turin", when)
