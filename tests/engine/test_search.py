"""Searching for everybody: which arms run, what is said when one can't, and what each hit says of itself."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.blocks import Author
from perdure.core.messages import MessageFilter, Reasoning, Role, Text
from perdure.core.models import ModelReply
from perdure.core.ports import Embedder
from perdure.core.text.words import parse_query
from perdure.domain.archives.embedding import reindex
from perdure.engine.search import search as search_module
from perdure.engine.search.search import Search
from perdure.search.messages import SPAN_CANDIDATES
from perdure.settings import Settings
from perdure.testing import ScriptedEmbedder, ScriptedModel

TALK: tuple[tuple[Role, str, str], ...] = (
    ("user", "Sam", "What did you think of the opera in Verona?"),
    ("assistant", "Ann", "It was magnificent, above all the second act."),
    ("user", "Sam", "I sold my old bicycle to a neighbour."),
    ("assistant", "Ann", "We painted the kitchen green."),
)
START = datetime(2023, 5, 8, 13, tzinfo=UTC)


async def open_library(folder: Path, embedder: Embedder | None = None) -> AsyncPerdure:
    settings = Settings(model="test/scripted", embedding="none")
    models = {"test/scripted": ScriptedModel()}
    return await AsyncPerdure.open(folder / "agents.db", models=models, settings=settings, embedder=embedder)


async def create_talker(perdure: AsyncPerdure) -> AsyncAgent:
    """An agent with `TALK` behind it, a session a day."""
    agent = await perdure.create_agent("ada")
    await agent.import_messages(
        [(role, name, text, START + timedelta(days=index // 2)) for index, (role, name, text) in enumerate(TALK)]
    )
    return agent


async def wait_for_vectors(perdure: AsyncPerdure) -> None:
    """Wait until no text waits for its vector."""
    while await perdure.app.store.read(lambda tx: any(counts.waiting for counts in tx.vectors.counts())):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_without_an_embedder_words_search_alone_and_it_is_said(tmp_path: Path) -> None:
    async with await open_library(tmp_path) as perdure:
        agent = await create_talker(perdure)
        hits = await agent.search("the bicycle")

        assert hits[0].message.text == TALK[2][2]
        assert hits.ran.arms == ("words",)
        assert "PERDURE_EMBEDDING" in hits.ran.left_out["vectors"]
        assert hits.ran.words == ("bicycl",)
        assert hits.ran.rows == len(TALK)


async def test_vectors_find_what_shares_no_word_of_the_index(tmp_path: Path) -> None:
    """Both arms run; a text without a vector yet is said to wait."""
    embedder = ScriptedEmbedder()
    async with await open_library(tmp_path, embedder) as perdure:
        agent = await create_talker(perdure)
        await wait_for_vectors(perdure)
        hits = await agent.search("painted kitchens")
        assert hits[0].message.text == TALK[3][2]
        assert (hits.ran.arms, dict(hits.ran.left_out)) == (("words", "vectors", "late"), {})
        by_tool = await agent.tools.run("conversation_search", {"query": "painted kitchens"})
        relevance = {"search_mode": "hybrid", "score": round(hits[0].score, 3)}
        assert json.loads(by_tool.text)["results"][0]["relevance"] == relevance

        embedder.fail()
        await agent.import_messages([("user", "Sam", "A new text about a walrus.", START + timedelta(days=9))])
        searching = Search(perdure.app.store, perdure.app.ports.clock, embedder=ScriptedEmbedder())
        found = await searching.messages(agent.id, "walrus")
        assert "walrus" in found[0].message.text
        assert found.ran.left_out["vectors"] == "1 of 5 texts wait for their vector"


@pytest.mark.parametrize("failing", ["fail", "hang"])
async def test_a_search_goes_on_without_an_embedder_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """It finds by words and says what did not run, whether the embedder fails or hangs."""
    monkeypatch.setattr(search_module, "QUERY_TIMEOUT_S", 0.05)
    embedder = ScriptedEmbedder()
    async with await open_library(tmp_path, embedder) as perdure:
        agent = await create_talker(perdure)
        await wait_for_vectors(perdure)
        getattr(embedder, failing)()
        hits = await agent.search("bicycle")

        assert hits[0].message.text == TALK[2][2]
        assert hits.ran.arms == ("words",)
        assert hits.ran.left_out["vectors"]
        embedder.recover()
        monkeypatch.setattr(search_module, "QUERY_TIMEOUT_S", 30)  # however busy the machine is
        assert (await agent.search("bicycle")).ran.arms == ("words", "vectors", "late")


async def test_vectors_of_another_model_are_not_compared(tmp_path: Path) -> None:
    """The search says so, and what to type."""
    async with await open_library(tmp_path, ScriptedEmbedder()) as perdure:
        agent = await create_talker(perdure)
        await wait_for_vectors(perdure)
        name = agent.name
    async with await open_library(tmp_path, ScriptedEmbedder(handle="test/other", dimensions=32)) as perdure:
        hits = await (await perdure.agent(name)).search("bicycle")
        assert hits[0].message.text == TALK[2][2]
        assert hits.ran.arms == ("words",)
        assert "test/words" in hits.ran.left_out["vectors"]
        assert "perdure store reindex" in hits.ran.left_out["vectors"]


async def test_each_hit_says_why_it_was_found(tmp_path: Path) -> None:
    """The parts sum to the score; the answer beside the question names it as its neighbour."""
    async with await open_library(tmp_path) as perdure:
        agent = await create_talker(perdure)
        hits = await agent.search("the opera in Verona", explain=True)

        by_text = {hit.message.text: hit for hit in hits}
        for hit in hits:
            assert hit.why is not None
            assert sum(hit.why.parts.values()) == pytest.approx(hit.why.score)
        question, answer = by_text[TALK[0][2]], by_text[TALK[1][2]]
        assert question.why is not None and answer.why is not None
        assert question.why.words > 0.9
        assert answer.why.words == 0
        assert answer.why.neighbours == (question.message.id,)
        assert all(hit.why is None for hit in await agent.search("opera"))


async def test_a_speaker_and_a_time_in_the_query_count(tmp_path: Path) -> None:
    """Who is named comes first among equals, and so does the day that is named; nobody is left out for it."""
    async with await open_library(tmp_path) as perdure:
        agent = await perdure.create_agent("ada")
        words = "the harbour was full of boats"
        await agent.import_messages(
            [
                ("user", "Sam", f"{words}, I counted them", START),
                ("assistant", "Ann", f"{words}, I painted them", START),
                ("user", "Sam", f"{words}, I fed the gulls", START + timedelta(days=70)),
                ("assistant", "Ann", f"{words}, I slept", START + timedelta(days=70)),
            ]
        )
        by_ann = await agent.search("What did Ann say of the harbour?")
        assert {hit.message.name for hit in by_ann[:2]} == {"Ann"}
        assert len(by_ann) == 4
        in_july = await agent.search("the boats in July 2023")
        assert {hit.message.occurred_at.month for hit in in_july[:2]} == {7}
        assert in_july.ran.spans == ("in July 2023",)


async def test_what_a_reset_took_away_leaves_room_for_the_rest_of_a_named_time(tmp_path: Path) -> None:
    """Also in a process that searched before: a time finds its newest rows, and those of a reset are none any more."""
    async with await open_library(tmp_path) as perdure:
        agent = await perdure.create_agent("ada")
        kept: list[tuple[Role, str, str, datetime]] = [
            ("user", "Sam", f"We saw {bird}.", START) for bird in ("a heron", "an egret", "a stork")
        ]
        await agent.import_messages(kept)
        line = await agent.new_conversation()
        await agent.import_messages(
            [("user", "Sam", f"Nothing happened at number {number}.", START) for number in range(SPAN_CANDIDATES)],
            conversation=line.id,
        )
        assert len(await agent.search("Which birds in May 2023?", limit=100)) == SPAN_CANDIDATES
        await agent.reset(conversation=line.id)
        found = await agent.search("Which birds in May 2023?", limit=100)
        assert {hit.message.text for hit in found} == {text for _, _, text, _ in kept}


async def test_late_interaction_compares_words_that_are_stored(tmp_path: Path) -> None:
    """It is an arm of its own, also for passages of several archives, and embeds nothing but the query, once."""
    embedder = ScriptedEmbedder()
    async with await open_library(tmp_path, embedder) as perdure:
        agent = await create_talker(perdure)
        for text in ("The kitchen is green.", "The roof is red."):
            await agent.archive(text)
        shed = await perdure.archives.create("shed")
        for text in ("A green kitchen stands there.", "Nothing else."):
            await shed.insert(text)
        await agent.archives.attach(shed.id)
        await wait_for_vectors(perdure)
        before = len(embedder.requests)
        hits = await agent.search("painted the kitchen", explain=True)
        passages = await agent.search_archive("green kitchen", explain=True)

        assert embedder.requests[before:] == [("painted the kitchen",), ("green kitchen",)]
        assert hits.ran.arms == passages.ran.arms == ("words", "vectors", "late")
        assert hits[0].message.text == TALK[3][2]
        assert hits[0].why is not None and hits[0].why.parts["late"] > 0
        assert {hit.passage.text for hit in passages[:2]} == {"The kitchen is green.", "A green kitchen stands there."}
        assert all(hit.why is not None and hit.why.parts["late"] > 0 for hit in passages[:2])


async def test_texts_without_signs_of_words_keep_their_place_until_they_are_embedded_again(tmp_path: Path) -> None:
    """The search says so, and what to type."""
    async with await open_library(tmp_path, ScriptedEmbedder()) as perdure:
        agent = await create_talker(perdure)
        await wait_for_vectors(perdure)
        with closing(sqlite3.connect(tmp_path / "agents.db")) as file:
            file.execute("UPDATE vectors SET words = NULL WHERE key & 4294967295 < 2")
            file.commit()
        some = await agent.search("painted the kitchen", explain=True)
        with closing(sqlite3.connect(tmp_path / "agents.db")) as file:
            file.execute("UPDATE vectors SET words = NULL")
            file.execute("DELETE FROM embedding_cache")
            file.commit()
        none = await agent.search("painted the kitchen", explain=True)

        assert some.ran.arms == ("words", "vectors", "late")
        assert some.ran.left_out["late"].startswith("2 of 4 texts have no signs of words yet")
        assert none.ran.arms == ("words", "vectors")
        assert "perdure store reindex --again" in none.ran.left_out["late"]
        assert all(hit.why is not None and "late" not in hit.why.parts for hit in none)
        scopes = [counts.scope for counts in await perdure.app.store.read(lambda tx: tx.vectors.counts())]
        again = [(scope.number, scope.owner_kind, scope.owner_id) for scope in scopes]
        await perdure.app.store.write(lambda tx: reindex(tx, again, "test/words", force=True))
        while not (await agent.search("painted the kitchen")).ran.arms[2:]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await wait_for_vectors(perdure)
        hits = await agent.search("painted the kitchen")
        assert (hits.ran.arms, dict(hits.ran.left_out)) == (("words", "vectors", "late"), {})


async def test_a_filter_holds_for_neighbours_too(tmp_path: Path) -> None:
    """What the filter leaves out is not shown as the neighbour of a hit either."""
    async with await open_library(tmp_path) as perdure:
        agent = await create_talker(perdure)
        search = perdure.app.ports.search
        found = await search.messages(agent.id, "opera in Verona", where=MessageFilter(roles=("user",)), limit=9)
        assert {hit.message.role for hit in found} == {"user"}
        early = MessageFilter(until=START)
        assert len(await search.messages(agent.id, "bicycle kitchen opera", where=early, limit=9)) == 2


async def test_a_search_sees_what_was_said_and_removed_since_the_last_one(tmp_path: Path) -> None:
    """What a search keeps in memory never shows: new messages are found at once, removed ones not any more."""
    async with await open_library(tmp_path) as perdure:
        agent = await create_talker(perdure)
        assert len(await agent.search("bicycle")) >= 1
        await agent.import_messages([("user", "Sam", "My new bicycle is red.", START + timedelta(days=5))])
        found = await agent.search("bicycle")
        assert {hit.message.text for hit in found} >= {TALK[2][2], "My new bicycle is red."}

        gone = found[0].message
        author = Author(kind="user", id="ada")
        await perdure.app.store.write(lambda tx: tx.messages.revise(gone.id, None, author=author, at=START))
        assert gone.text not in {hit.message.text for hit in await agent.search("bicycle")}


async def test_texts_that_say_the_same_are_shown_once(tmp_path: Path) -> None:
    """The newest of them stands for the others, which it names."""
    async with await open_library(tmp_path) as perdure:
        agent = await perdure.create_agent("ada")
        for _ in range(3):
            await agent.archive("The boiler is serviced in October, every year, by Mr Hall.")
        hits = await agent.search_archive("boiler", explain=True)
        assert len(hits) == 1
        assert hits[0].why is not None and len(hits[0].why.same) == 2


async def test_a_search_goes_on_behind_its_first_hits(tmp_path: Path) -> None:
    """Pages hold every match once; as many as are asked for are given, however many that is."""
    async with await open_library(tmp_path) as perdure:
        agent = await perdure.create_agent("ada")
        for number in range(150):
            await agent.archive(f"yak number {number} of the herd")
        pages = [await agent.search_archive("yak", limit=40, offset=first) for first in range(0, 200, 40)]
        assert [len(page) for page in pages] == [40, 40, 40, 30, 0]
        assert len({hit.passage.id for page in pages for hit in page}) == 150
        assert len(await agent.search_archive("yak", limit=1_000)) == 150


async def test_last_week_is_counted_from_the_newest_message_wherever_it_stands(tmp_path: Path) -> None:
    """An old history that is imported later does not turn the clock back."""
    async with await open_library(tmp_path) as perdure:
        agent = await perdure.create_agent("ada")
        await agent.import_messages([("user", "Sam", "The walrus was fed.", START)])
        elsewhere = await agent.new_conversation()
        await agent.import_messages(
            [("user", "Sam", "The walrus was washed.", START - timedelta(days=900))], conversation=elsewhere.id
        )
        hits = await agent.search("the walrus today", explain=True)
        assert hits[0].message.text == "The walrus was fed."
        assert hits[0].why is not None and "span" in hits[0].why.parts


async def test_a_query_of_any_length_is_bounded() -> None:
    """Its beginning counts, and no phrase of it is longer than some tokens."""
    query = parse_query("猫" * 50_000 + ' "' + "walrus " * 50_000)
    assert sum(len(clause.tokens) for clause in query.clauses) < 100


async def test_a_search_goes_by_words_as_they_are_now_whatever_was_looked_for_before(tmp_path: Path) -> None:
    async with await open_library(tmp_path) as perdure:
        archive = await perdure.archives.create("notes")

        async def search_texts(tags: Sequence[str] = ()) -> list[str]:
            return sorted(hit.passage.text for hit in await archive.search("harbour", tags=tags))

        assert await search_texts() == []
        old = await archive.insert("The harbour was empty.", tags=["a"])
        assert await search_texts() == await search_texts() == ["The harbour was empty."]
        new = await archive.insert("A second harbour.", tags=["b"])
        assert await search_texts() == ["A second harbour.", "The harbour was empty."]
        assert await search_texts(tags=["b"]) == ["A second harbour."]
        await archive.update_passage(new.id, tags=["a"])
        assert await search_texts(tags=["b"]) == []
        assert await search_texts(tags=["a"]) == ["A second harbour.", "The harbour was empty."]
        await archive.update_passage(old.id, text="A church.")
        assert await search_texts() == ["A second harbour."]
        await archive.delete_passage(new.id)
        assert await search_texts() == []


async def test_what_a_model_thought_makes_its_answer_no_longer(tmp_path: Path) -> None:
    """Length is that of the text that is searched, not of all that is stored with it."""
    thought = ModelReply(parts=(Reasoning("Let me think about this. " * 200), Text("I will look at the boiler.")))
    settings = Settings(model="test/scripted", embedding="none")
    models = {"test/scripted": ScriptedModel(thought)}
    async with await AsyncPerdure.open(tmp_path / "agents.db", models=models, settings=settings) as perdure:
        agent = await perdure.create_agent("ada")
        await agent.send("It leaks.")
        hits = await agent.search("boiler", explain=True)

        assert hits[0].message.text == "I will look at the boiler."
        assert hits[0].why is not None
        assert hits[0].why.parts["length"] < 0


async def test_texts_without_vectors_are_found_by_words_as_if_there_were_no_embedder(tmp_path: Path) -> None:
    """As many candidates are ranked, though with vectors fewer would do."""
    async with await open_library(tmp_path) as perdure:
        agent = await perdure.create_agent("ada")
        await agent.import_messages([("user", None, f"the boiler of flat {flat}", START) for flat in range(140)])
        without = await agent.search("boiler")
    async with await open_library(tmp_path, ScriptedEmbedder()) as perdure:
        hits = await (await perdure.agent("ada")).search("boiler")

        assert "vectors" in hits.ran.left_out
        assert hits.ran.pool == without.ran.pool
        assert [hit.message.text for hit in hits] == [hit.message.text for hit in without]


async def test_words_that_count_from_a_day_are_found_with_its_date(tmp_path: Path) -> None:
    """By the tools for messages and by recall, in the agent's time zone; the message stays as it was said."""
    late = datetime(2023, 5, 8, 22, tzinfo=UTC)
    async with await open_library(tmp_path) as perdure:
        agent = await perdure.create_agent("ada", timezone="Asia/Tokyo")
        await agent.import_messages([("user", "Sam", "I met Bea yesterday.", late)])

        by_tool = await agent.tools.run("conversation_search", {"query": "Bea"})
        recalled = await agent.recall("When did Sam meet Bea?")
        [hit] = await agent.search("Bea")

        assert json.loads(by_tool.text)["results"][0]["content"] == "I met Bea yesterday [8 May 2023]."
        assert "### Tuesday, 9 May 2023\n[1] 07:00 Sam: I met Bea yesterday [8 May 2023]." in recalled.text
        assert hit.message.text == "I met Bea yesterday."


async def test_the_search_tool_names_the_offset_that_it_used(tmp_path: Path) -> None:
    """An offset beyond what a search reaches is bounded, and the model reads the bound, not its own number."""
    async with await open_library(tmp_path) as perdure:
        agent = await perdure.create_agent("ada")
        await agent.import_messages([("user", "Sam", f"note {number}", START) for number in range(952)])

        outcome = await agent.tools.run("conversation_search", {"offset": 5_000})

        assert json.loads(outcome.text)["message"] == "Showing 2 results behind the first 950:"
