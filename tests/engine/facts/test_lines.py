"""Facts of which one is true at a time: in whatever order they are said, read, edited or forgotten, the newest is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.facts.extraction import Batch, ExtractedEntity, ExtractedFact, Extraction
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel
from tests.engine.facts.test_background import Scribe, opened
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

    async def extract(self, batch: Batch) -> Extraction:
        facts: list[ExtractedFact] = []
        entities = [ExtractedEntity(name="User", type="Person")]
        for turn in batch.turns:
            if " in " in turn.text:
                place = turn.text.rpartition(" in ")[2].strip(".!")
                entities.append(ExtractedEntity(name=place, type="Location"))
                of_known = {"known": len(batch.facts)} if batch.facts and not facts else {}
                of_batch = {"replaces": len(facts)} if facts else {}
                fact = ExtractedFact(
                    subject="User",
                    relation="LIVES_IN",
                    object=place,
                    text=f"User lives in {place}.",
                    turns=(turn.number,),
                    decision="SUPERSEDE" if of_known or of_batch else "ADD",
                    **of_known,
                    **of_batch,
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
