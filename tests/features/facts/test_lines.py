"""Facts of which one is true at a time: in whatever order they are said, read, edited or forgotten, the newest is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import AsyncAgent, AsyncPerdure
from perdure.features.facts.tables import Graphs
from perdure.features.facts.units.graphs import FactFields, add_facts
from perdure.features.facts.values.extraction import ExtractedEntity, ExtractedFact, Extraction, ReadBatch
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, ScriptedModel
from tests.features.facts.test_background import Scribe, opened
from tests.support.library import MODEL

FORMS = {
    "home": ("I live in {}.", ["Oslo", "Bergen", "Turin", "Rome", "Graz"]),
    "job": ("I work at {}.", ["Norvik", "Fiat", "Olivetti", "Ferrari", "Lenovo"]),
    "age": ("I am {} years old.", ["31", "32", "33", "34", "35"]),
    "birthday": ("My birthday is on {} May.", ["3", "4", "5", "6", "7"]),
}
FIRST = datetime(2020, 3, 1, 10, tzinfo=UTC)


def year(number: int) -> datetime:
    return FIRST + timedelta(days=366 * number)


@asynccontextmanager
async def opened_with_patterns() -> AsyncIterator[AsyncPerdure]:
    with_patterns = Settings(model=MODEL, embedding="none", facts="patterns")
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: ScriptedModel()}, settings=with_patterns
    ) as perdure:
        yield perdure


class Mover(Scribe):
    """Hears where somebody lives, and that it is instead of whatever is known, of any time."""

    async def extract(self, batch: ReadBatch) -> Extraction:
        facts: list[ExtractedFact] = []
        entities = [ExtractedEntity(name="User", type="Person")]
        for turn in batch.turns:
            if " in " in turn.text:
                place = turn.text.rpartition(" in ")[2].strip(".!")
                entities.append(ExtractedEntity(name=place, type="Location"))
                fact = ExtractedFact(
                    subject="User",
                    relation="LIVES_IN",
                    object=place,
                    text=f"User lives in {place}.",
                    turns=(turn.number,),
                    decision="SUPERSEDE" if facts or batch.facts else "ADD",
                    known=None if facts else len(batch.facts) or None,
                    replaces=len(facts) or None,
                )
                facts.append(fact)
        return Extraction(entities=entities, facts=facts, model="test/mover")


async def spans(agent: AsyncAgent) -> dict[str, tuple[datetime | None, datetime | None]]:
    """The object of each fact -> from when until when it is true."""
    hits = await agent.facts.list(limit=100)
    assert len({hit.object.name for hit in hits}) == len(hits)
    return {hit.object.name: (hit.fact.valid_at, hit.fact.invalid_at) for hit in hits}


class Teller:
    """Tells an agent, in messages and texts, what was so in which year, and takes it back."""

    def __init__(self, agent: AsyncAgent, form: str, names: list[str]) -> None:
        self.agent, self.form, self.names = agent, form, names
        self.said: dict[int, str] = {}
        self.times: list[datetime] = [year(number) for number in range(len(names))]

    async def say(self, number: int, *, extract: bool = True) -> None:
        text = self.form.format(self.names[number])
        if number in self.said:  # a typo is mended
            text = self.said[number] + "!"
            await self.agent.update_message((await self.message(number)).id, text)
        else:
            self.times[number] += timedelta(seconds=1)  # what was imported once is not imported again
            await self.agent.import_messages([("user", None, text, self.times[number])])
        self.said[number] = text
        if extract:
            await self.agent.facts.extract()

    async def take_back(self, number: int, way: str) -> None:
        message = await self.message(number)
        if way == "edit":
            await self.agent.update_message(message.id, f"Hello, number {number}.")
            await self.agent.facts.extract()
        else:
            await self.agent.forget(message.id, erase=way == "erase")
        del self.said[number]

    async def message(self, number: int):  # type: ignore[no-untyped-def]
        return next(one for one in await self.agent.messages(limit=100) if one.text == self.said[number])

    async def check(self) -> None:
        """The newest is true, and each other one until the next."""
        found, left = await spans(self.agent), sorted(self.said)
        ends = [*(self.times[number] for number in left[1:]), None]
        names = {name: key for name in found for key in self.names if key in name}
        assert {names[name]: end for name, (_, end) in found.items()} == {
            self.names[number]: end for number, end in zip(left, ends, strict=False)
        }
        for name, (begin, _) in found.items():
            assert begin in (None, self.times[self.names.index(names[name])])


steps = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["say", "say", "say", "edit", "forget", "erase", "undo"])),
    min_size=2,
    max_size=9,
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*FORMS, "model"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(steps)
def test_the_newest_of_what_remains_is_true(kind: str, story: list[tuple[int, str]]) -> None:
    """And each other one until the next began; in whatever order they are read, mended, edited away, or forgotten."""

    async def live() -> None:
        form, names = FORMS["home" if kind == "model" else kind]
        async with opened_with_patterns() if kind != "model" else opened(Mover()) as perdure:
            teller = Teller(await perdure.create_agent("x"), form, names)
            undone: tuple[int, str] | None = None
            for number, way in story:
                if way == "say":
                    await teller.say(number)
                    undone = None
                elif way == "undo":
                    if undone is not None:
                        await teller.agent.undo()
                        teller.said[undone[0]], undone = undone[1], None
                elif number in teller.said:
                    undone = (number, teller.said[number]) if way == "forget" else None
                    await teller.take_back(number, way)
                await teller.check()

    asyncio.run(live())


HOMES = ["Oslo", "Bergen", "Turin"]


@pytest.mark.parametrize("kind", ["patterns", "model"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_one_batch_may_be_in_any_order(kind: str, order: tuple[int, ...]) -> None:
    """Passages in any order of their times, read at once; then one of them is deleted."""
    async with opened_with_patterns() if kind == "patterns" else opened(Mover()) as perdure:
        agent = await perdure.create_agent("x")
        ids = {}
        for number in order:
            passage = await agent.archive(f"I live in {HOMES[number]}.", occurred_at=year(number))
            ids[number] = passage.id
        await agent.facts.extract()
        ends = [{name: end for name, (_, end) in (await spans(agent)).items()}]
        await agent.delete_passage(ids[1])
        ends.append({name: end for name, (_, end) in (await spans(agent)).items()})

        assert ends == [{"Oslo": year(1), "Bergen": year(2), "Turin": None}, {"Oslo": year(2), "Turin": None}]


@pytest.mark.parametrize("kind", ["patterns", "model"])
async def test_who_comes_back_lives_there_again(kind: str) -> None:
    async with opened_with_patterns() if kind == "patterns" else opened(Mover()) as perdure:
        agent = await perdure.create_agent("x")
        for number, name in enumerate(["Oslo", "Bergen", "Oslo"]):
            await agent.facts.ingest(f"I live in {name}.", occurred_at=year(number))

        hits = await agent.facts.list()
        found = sorted((hit.object.name, hit.fact.invalid_at) for hit in hits if hit.fact.invalid_at)
        assert found == [("Bergen", year(2)), ("Oslo", year(1))]
        assert [hit.object.name for hit in hits if hit.fact.invalid_at is None] == ["Oslo"]


async def test_a_deleted_fact_ends_nothing_until_it_is_restored() -> None:
    """By a person, from the newest to the oldest and back."""
    async with opened_with_patterns() as perdure:
        agent = await perdure.create_agent("x")
        for number, name in enumerate(HOMES):
            await agent.facts.ingest(f"I live in {name}.", occurred_at=year(number))
        before = await spans(agent)
        ids = {hit.object.name: hit.fact.id for hit in await agent.facts.list()}
        await agent.facts.delete(ids["Bergen"])
        assert (await spans(agent))["Oslo"] == (year(0), year(2))
        await agent.facts.delete(ids["Turin"])
        assert await spans(agent) == {"Oslo": (year(0), None)}
        for name in ("Bergen", "Turin"):
            await agent.facts.restore(ids[name])

        assert await spans(agent) == before


@pytest.mark.parametrize("erase", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_what_is_forgotten_by_its_text_ends_nothing(number: int, erase: bool) -> None:
    async with opened_with_patterns() as perdure:
        teller = Teller(await perdure.create_agent("x"), "I live in {}.", HOMES)
        for one in range(3):
            await teller.say(one)
        await teller.agent.forget(HOMES[number], erase=erase)
        del teller.said[number]

        await teller.check()


async def test_what_was_said_before_is_ended_behind_any_number_of_newer_facts() -> None:
    """Of one relation, or of many."""
    async with opened_with_patterns() as perdure:
        agent = await perdure.create_agent("x")
        await agent.facts.ingest("I live in Oslo.")
        user, thing = (one.seq for one in await agent.facts.entities())
        relations = [f"SAW_{number}" for number in range(300)] + ["LIKES"] * 1_200

        def add(tx: Tx) -> None:
            graph = tx.of(Graphs).find_by_agent(agent.id)
            assert graph is not None
            new = [
                FactFields(text=f"{one} {n}", subject=user, relation=one, object=thing)
                for n, one in enumerate(relations)
            ]
            add_facts(tx, graph, new, origin={"type": "program"}, ids=perdure.app.ports.ids, at=datetime.now(UTC))

        await perdure.app.ports.store.write(add)
        await agent.facts.ingest("I live in Bergen now.")

        hits = await agent.facts.list(relations=["LIVES_IN"])
        assert {hit.object.name: hit.fact.invalid_at is None for hit in hits} == {"Oslo": False, "Bergen": True}


DAY = timedelta(days=1)
MOVES = ("today", "yesterday", "last week", "last month")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["patterns", "model"])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    moves=st.lists(st.sampled_from(MOVES), min_size=1, max_size=3),
    gaps=st.lists(st.integers(1, 80), min_size=3, max_size=3),
    order=st.permutations(range(4)),
    together=st.booleans(),
)
def test_a_move_that_is_told_later_ends_what_was_believed(
    kind: str, moves: list[str], gaps: list[int], order: list[int], together: bool
) -> None:
    """In whatever order the texts are read, and though it began before the old home was named: that one ends where the
    move begins."""

    async def live() -> None:
        names, at, told = ["Oslo", "Bergen", "Turin", "Rome"], FIRST, [("I live in Oslo.", FIRST)]
        begins = [FIRST]
        for name, when, gap in zip(names[1:], moves, gaps, strict=False):
            at += gap * DAY
            told.append((f"I moved to {name} {when}.", at))
            begins.append(begin_of(when, at))
        if begins[1:] != sorted(set(begins[1:])):
            return  # it says itself that they were in another order
        async with opened_with_patterns() if kind == "patterns" else opened(Teacher()) as perdure:
            agent = await perdure.create_agent("x")
            for number in (one for one in order if one < len(told)):
                await agent.archive(told[number][0], occurred_at=told[number][1])
                if not together:
                    await agent.facts.extract()
            await agent.facts.extract()
            found = await spans(agent)

        since = FIRST if kind == "patterns" else begin_of("today", FIRST)
        first = (since if begins[1] >= FIRST else None, begins[1])
        rest = zip(begins[1:], [*begins[2:], None], strict=True)
        assert found == dict(zip(names, [first, *rest], strict=False))

    asyncio.run(live())


def begin_of(when: str, at: datetime) -> datetime:
    """When a period begins that is named at a time."""
    day = at.replace(hour=0)
    first = {"today": day, "yesterday": day - DAY, "last week": day - (7 + day.weekday()) * DAY}
    return first.get(when) or (day.replace(day=1) - DAY).replace(day=1)


class Teacher(Mover):
    """Hears also when somebody moved; who only lives somewhere does from the day of the turn, as models answer."""

    async def extract(self, batch: ReadBatch) -> Extraction:
        said = {turn.number: turn for turn in batch.turns}
        plain = [replace(turn, text=f"I live in {place_of(turn.text)}.") for turn in batch.turns]
        found = await super().extract(replace(batch, turns=plain))
        facts = []
        for fact in found.facts:
            turn = said[fact.turns[0]]
            when = next((one for one in MOVES if one in turn.text), None)
            at = turn.occurred_at.replace(hour=0) if when is None else begin_of(when, turn.occurred_at)
            facts.append(replace(fact, valid_at=at.isoformat()))
        return replace(found, facts=facts)


def place_of(text: str) -> str:
    """The place that a sentence names."""
    return next(word.strip(".") for word in text.split()[1:] if word[0].isupper())


async def test_a_move_that_is_taken_back_ends_nothing() -> None:
    """What it ended is as it was said."""
    async with opened_with_patterns() as perdure:
        agent = await perdure.create_agent("x")
        await agent.facts.ingest("I live in Oslo.", occurred_at=FIRST)
        (move,) = await agent.facts.ingest("I moved to Bergen last week.", occurred_at=FIRST + DAY)
        now = await agent.facts.list(at=datetime.now(UTC))
        assert [hit.object.name for hit in now] == ["Bergen"]
        await agent.facts.delete(move.fact.id)

        assert await spans(agent) == {"Oslo": (FIRST, None)}
