"""Forgetting of passages: by the policy of facts, in the same passes, and taken back by the same command."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import AnswerOrigin, AsyncAgent, AsyncPerdure, MemoryOrigin, Passage, Settings
from perdure.context.sections.assemble import parse_recalled
from perdure.domain.archives.passages import NewPassage
from perdure.features.facts.extraction.worker import Extractions
from perdure.features.facts.fading.passages import COMPARED_CHARS
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore, ScriptedModel, calls, says
from perdure.testing.clock import START

MODEL = "test/scripted"
FADING = {"half_life_days": 10, "min_score": 0.2, "min_age_days": 5}
ON = {"auto_recall": {"floor": 0.0}, "facts": {"forgetting": FADING}}


class World:
    """An agent whose clock stands still until it is moved."""

    def __init__(self, perdure: AsyncPerdure, agent: AsyncAgent, clock: FakeClock, model: ScriptedModel) -> None:
        self.perdure, self.agent, self.clock, self.model = perdure, agent, clock, model

    async def wait(self, days: float) -> None:
        self.clock.advance(timedelta(days=days).total_seconds())

    async def texts(self, *states: str) -> list[str]:
        return [one.text for one in await self.agent.passages(states=states)]  # type: ignore[arg-type]

    async def tidy(self, *, dry_run: bool = False) -> list[tuple[str, str]]:
        return [(one.memory.text, one.reason) for one in await self.agent.facts.tidy(dry_run=dry_run)]

    async def found(self, query: str) -> list[str]:
        return [hit.passage.text for hit in await self.agent.search_archive(query)]


@asynccontextmanager
async def open_world(*answers: object, facts: str = "off") -> AsyncIterator[World]:
    clock, model = FakeClock(START), ScriptedModel(*answers)  # type: ignore[arg-type]
    settings_ = Settings(model=MODEL, embedding="none", facts=facts)
    opening = AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings_, clock=clock)
    async with await opening as perdure:
        agent = await perdure.create_agent("a", settings=ON, tools=["archival_memory_search"])
        yield World(perdure, agent, clock, model)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_world() as world:
        yield world


async def test_passages_fade_are_archived_and_come_back(world: World) -> None:
    """A dry run changes nothing; lists always have all of them, searches all but those that are archived."""
    await world.agent.archive("Walruses eat clams.")
    await world.wait(6)
    await world.agent.archive("Walruses sleep on ice.")
    await world.wait(10)

    assert await world.tidy(dry_run=True) == await world.tidy() == [("Walruses eat clams.", "faded")]
    assert await world.texts("faded") == ["Walruses eat clams."]
    assert len(await world.found("walruses")) == 2
    assert await world.tidy() == []
    await world.wait(5)
    assert await world.tidy() == [("Walruses sleep on ice.", "faded"), ("Walruses eat clams.", "unused")]
    assert await world.found("walruses") == ["Walruses sleep on ice."]
    archived = await world.agent.search_archive("walruses", states=["archived"])
    assert [hit.passage.text for hit in archived] == await world.texts("archived") == ["Walruses eat clams."]
    assert len(await world.texts()) == 2
    restored = await world.agent.facts.restore_last()
    assert {one.text: one.state for one in restored} == {
        "Walruses sleep on ice.": "active",
        "Walruses eat clams.": "faded",
    }
    assert len(await world.found("walruses")) == 2
    assert [one.state for one in await world.agent.facts.restore_last()] == ["active"]
    assert await world.agent.facts.restore_last() == []
    assert await world.tidy() == []


async def test_one_passage_is_brought_back_or_edited(world: World) -> None:
    """Both make it active; its age counts from then on, and the pass can't be taken back for it any more."""
    passages = [await world.agent.archive(text) for text in ("Walruses eat clams.", "Seals swim.", "Otters play.")]
    await world.wait(20)
    assert len(await world.tidy()) == 3
    assert (await world.agent.restore_passage(passages[0].id)).state == "active"
    assert (await world.agent.update_passage(passages[1].id, text="Seals dive.")).state == "active"

    assert await world.texts("faded") == ["Otters play."]
    assert await world.tidy() == []
    assert [one.text for one in await world.agent.facts.restore_last()] == ["Otters play."]
    assert (await world.agent.undo()).conflicts == []
    assert await world.texts("active") == ["Walruses eat clams.", "Seals swim.", "Otters play."]


async def test_importance_is_a_passages_own(world: World) -> None:
    (archive,) = [await world.perdure.archives.create("notes")]
    await world.agent.archives.attach(archive.id)
    for text, value in (("One.", 1), ("Two.", 0.1), ("Three.", "much"), ("Four.", 7)):
        await archive.insert(text, metadata={"importance": value})
    await world.wait(15)

    assert await world.tidy() == [("Two.", "faded"), ("Three.", "faded"), ("Four.", "faded")]


async def test_passages_that_others_have_too_stay(world: World) -> None:
    """Another agent did not ask for it; what a folder's files say stays as well."""
    await world.agent.archive("Walruses eat clams.")
    (archive,) = await world.agent.archives.list()
    other = await world.perdure.create_agent("other")
    await other.archives.attach(archive.id)
    await world.wait(50)

    assert await world.tidy() == []
    await other.archives.detach(archive.id)
    assert len(await world.tidy()) == 1


async def test_a_faded_passage_is_not_recalled_until_it_is_used() -> None:
    """A search that shows it is a use: the next pass lets it be recalled again."""
    answers = (says("Yes."), says("Yes."), calls("archival_memory_search", query="clams"), says("Yes."))
    async with open_world(*answers) as world:
        await world.agent.archive("Walruses eat clams.")
        await world.wait(60)
        reply = await world.agent.send("What do walruses eat?")
        assert "clams" in parse_recalled(world.model.requests[-1].tail)
        assert await world.tidy() == [("Walruses eat clams.", "faded")]
        await world.agent.send("What do walruses eat?", conversation=(await world.agent.new_conversation()).id)
        assert "clams" not in parse_recalled(world.model.requests[-1].tail)
        assert "clams" not in (await world.agent.recall("What do walruses eat?")).text

        origin = await world.agent.why(reply.run_id)  # it builds the request again
        assert isinstance(origin, AnswerOrigin)
        assert origin.problem is None
        assert [one.text for one in origin.recalled] == ["20 November 2026: Walruses eat clams."]
        await world.agent.send("Search.")
        assert await world.tidy() == [("Walruses eat clams.", "used")]
        assert "clams" in (await world.agent.recall("What do walruses eat?")).text


async def test_recalls_and_citations_count_and_change_no_ranking() -> None:
    """An answer cites a passage if it repeats a sentence, in more than the words of the question."""
    answers = (says("Clams, mostly."), says("Walruses eat."))
    async with open_world(*answers, facts="patterns") as world:
        one = await world.agent.archive("Walruses eat clams.")
        other = await world.agent.archive("Walruses eat little in winter.")
        before = await world.agent.search_archive("walruses eat", explain=True)

        async def uses() -> list[int]:
            def load(tx: Tx) -> list[int]:
                counts = tx.passages.use_counts(one.archive_id, [one.seq, other.seq])
                return [counts[passage.seq] for passage in (one, other)]

            return await world.perdure.app.store.read(load)

        await world.agent.send("What do walruses eat?")
        assert await uses() == [1, 1]
        await world.agent.facts.extract()
        assert await uses() == [2, 1]
        await world.agent.send("Do walruses eat?", conversation=(await world.agent.new_conversation()).id)
        await world.agent.facts.extract()
        assert await uses() == [3, 2]
        assert await world.agent.search_archive("walruses eat", explain=True) == before


async def test_an_answer_after_an_approved_search_cites_what_it_found() -> None:
    """The run that goes on has one step, and begins with the result."""
    answers = (calls("archival_memory_search", query="walruses"), says("Clams, mostly: walruses eat clams."))
    async with open_world(*answers, facts="patterns") as world:
        rule = {"type": "requires_approval", "tool_name": "archival_memory_search"}
        await world.agent.update(settings={"auto_recall": None, "tool_rules": [rule]})
        one = await world.agent.archive("Walruses eat clams.")
        assert (await world.agent.send("What do they like?")).stop_reason == "requires_approval"
        await world.agent.approve()

        async def uses() -> int:
            return await world.perdure.app.store.read(
                lambda tx: tx.passages.use_counts(one.archive_id, [one.seq])[one.seq]
            )

        before = await uses()
        await world.agent.facts.extract()
        assert await uses() == before + 1


async def test_near_duplicates_become_one(world: World) -> None:
    """The fullest stays. Other tags, a named time, a number or a negation make another passage of it."""
    archive = await world.perdure.archives.create("notes")
    await world.agent.archives.attach(archive.id)
    same = [
        NewPassage(text="Ada likes green tea in the morning."),
        NewPassage(text="Ada likes green tea in the mornings."),
    ]
    others = [
        replace(same[0], tags=("food",)),
        replace(same[0], occurred_at=START - timedelta(days=1)),
        replace(same[0], metadata={"importance": 0.4}),
        NewPassage(text="Ada likes no green tea in the morning."),
        NewPassage(text="Ada likes 2 green tea in the morning."),
        NewPassage(text="Ben likes coffee in the evening."),
        *(NewPassage(text="x" * COMPARED_CHARS + " end") for _ in range(2)),
    ]
    kept = NewPassage(text="Ada really likes green tea in the morning.")
    await archive.insert_many([*same, kept, *others])

    (item,) = await world.agent.facts.tidy()

    assert (item.memory.text, item.reason, item.into and item.into.text) == (same[0].text, "duplicate", kept.text)
    (archived,) = await archive.passages(states=["archived"])
    origin = await world.agent.why(archived.state_origin["into"])
    assert isinstance(origin, MemoryOrigin)
    assert [write.text for write in origin.writes] == [kept.text, same[0].text]
    assert [one.text for one in await world.agent.facts.restore_last()] == [same[0].text]
    assert len(await archive.passages(states=["active"])) == 11


async def test_passes_begin_by_themselves_without_extraction() -> None:
    """Where facts are off, after a run."""
    async with open_world(says("Yes.")) as world:
        await world.agent.update(settings={"facts": {"capture": "off", "forgetting": {**FADING, "on": True}}})
        await world.agent.archive("Walruses eat clams.")
        await world.wait(50)
        await world.agent.send("Hello.")
        for task in world.perdure.app.service(Extractions).tasks:
            await task

        assert await world.texts("faded") == ["Walruses eat clams."]


async def test_a_deleted_passage_comes_back_in_its_state(world: World) -> None:
    passage = await world.agent.archive("Walruses eat clams.")
    await world.wait(50)
    await world.tidy()
    await world.agent.delete_passage(passage.id)
    assert await world.agent.facts.restore_last() == []

    assert (await world.agent.undo()).conflicts == []
    assert await world.texts("faded") == ["Walruses eat clams."]
    assert [one.state for one in await world.agent.facts.restore_last()] == ["active"]


WORDS = ("walrus", "clam", "ice", "tea", "green", "Ada", "Ben", "likes", "eats", "not", "7", "茶")


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=12),
    waits=st.lists(st.sampled_from((0.0, 3.0, 6.0, 40.0)), min_size=1, max_size=4),
    query=st.sampled_from(("walrus clam", "Ada likes tea", "茶", "")),
)
async def test_passes_delete_nothing_and_are_taken_back_exactly(
    texts: Sequence[str], waits: Sequence[float], query: str
) -> None:
    """A dry run is what happens. Taking back all passes restores lists and search results, with their scores."""
    async with open_world() as world:
        passages = [await world.agent.archive(text) for text in texts]
        ids = [one.id for one in passages]
        for days in waits:
            await world.wait(days)
            planned = await world.agent.facts.tidy(dry_run=True)
            before = await find(world, query)
            assert await world.agent.facts.tidy() == planned
            assert [one.id for one in await world.agent.passages()] == ids
            if all(item.reason in ("faded", "used") for item in planned):
                assert await find(world, query) == before
            archived = {one.seq for one in await world.agent.passages(states=["archived"])}
            assert archived.isdisjoint(seq for seq, _ in await find(world, query))
        while await world.agent.facts.restore_last():
            pass
        assert [plain(one) for one in await world.agent.passages()] == passages
        found = await find(world, query)
    async with open_world() as other:
        for text in texts:
            await other.agent.archive(text)
        await other.wait(sum(waits))

        assert found == await find(other, query)


async def find(world: World, query: str) -> list[tuple[int, float]]:
    """The numbers of the passages that a search finds, with their scores."""
    return [(hit.passage.seq, hit.score) for hit in await world.agent.search_archive(query, limit=50)]


def plain(passage: Passage) -> Passage:
    """The passage without the time since which it is active again."""
    assert (passage.state, set(passage.state_origin) <= {"at"}) == ("active", True)
    return replace(passage, state_origin={})


async def test_the_same_words_in_another_order_are_no_duplicate(world: World) -> None:
    """Who owes whom is what the sentence says."""
    texts = ["Anna owes Ben 50 euros for the tickets.", "Ben owes Anna 50 euros for the tickets."]
    for text in texts:
        await world.agent.archive(text)

    assert await world.tidy() == []
    assert sorted(await world.texts("active")) == texts
