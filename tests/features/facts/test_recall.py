"""Facts in recall: those of the entities that the last messages name, within the budget and with their reasons."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import AnswerOrigin, AsyncAgent, AsyncPerdure
from perdure.context.sections.assemble import parse_recalled
from perdure.core.events import MemoryRecalled, StoredEvent
from perdure.domain.provenance.context import context_sources
from perdure.features.facts.tables import Graphs
from perdure.features.facts.values.facts import Fact
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore, ScriptedModel, says

NOW = datetime(2024, 6, 1, tzinfo=UTC)
MODEL = "test/scripted"
ON = {"auto_recall": True}


@dataclass
class _World:
    """An agent whose facts a test states; its memory is searched before each turn."""

    perdure: AsyncPerdure
    agent: AsyncAgent

    async def know(self, text: str, subject: str, object_: str, **fields: Any) -> Fact:
        hit = await self.agent.facts.add_fact(text, subject=subject, object_=object_, **{"valid_at": NOW, **fields})
        return hit.fact

    async def send(self, text: str, **options: Any) -> tuple[str, list[str]]:
        """The recalled text of a message's request, and the ids of the facts among its sources."""
        sent = [event.event async for event in self.agent.stream(text, **options) if isinstance(event, StoredEvent)]
        step = (await self.agent.steps())[0]
        sources = [source for event in sent if isinstance(event, MemoryRecalled) for source in event.sources]
        recalled = parse_recalled((await self.agent.request(step.id)).tail)
        return recalled, [source["id"] for source in sources if source["kind"] == "fact"]


@pytest.fixture
async def world() -> AsyncIterator[_World]:
    models = {MODEL: ScriptedModel()}
    settings = Settings(model=MODEL, embedding="none", facts="patterns")
    async with await AsyncPerdure.open(
        store=InlineStore(), models=models, settings=settings, clock=FakeClock(NOW)
    ) as perdure:
        yield _World(perdure, await perdure.create_agent("a", settings=ON))


async def test_facts_of_the_entities_in_the_last_messages_are_recalled(world: _World) -> None:
    """Also in an agent's first conversation, from the message itself and the three before; then no more."""
    tea = await world.know("Bea drinks green tea.", "Bea", "tea")
    await world.know("Cleo has a boat.", "Cleo", "boat")

    text, ids = await world.send("What would Bea like?")
    assert "## Facts\n[1] since 1 June 2024: Bea drinks green tea." in text
    assert ids == [tea.id]
    assert (await world.send("Hm."))[1] == [tea.id]
    assert (await world.send("Go on."))[1] == []


async def test_why_names_the_facts_of_an_answer(world: _World) -> None:
    fact = await world.know("Bea drinks green tea.", "Bea", "tea")
    await world.send("What would Bea like?")
    answer = (await world.agent.messages())[-1]

    origin = await world.agent.why(answer.id)
    assert isinstance(origin, AnswerOrigin)
    (recalled,) = origin.recalled

    assert (recalled.kind, recalled.id, recalled.name) == ("fact", fact.id, "fact about Bea")
    assert recalled.text.endswith("Bea drinks green tea.")


async def test_what_ended_is_deleted_or_archived_is_not_recalled(world: _World) -> None:
    await world.know("Bea lived in Rome.", "Bea", "Rome", invalid_at=NOW - timedelta(1), valid_at=None)
    await world.know("Bea likes rye.", "Bea", "rye", state="archived")
    await world.know("Bea likes rum.", "Bea", "rum", state="proposed")
    await world.agent.facts.delete((await world.know("Bea likes gin.", "Bea", "gin")).id)

    assert await world.send("Bea?") == ("", [])


async def test_untrusted_facts_stay_out_unless_a_setting_lets_them_in(world: _World) -> None:
    """Then they bring their source."""
    fact = await world.know("Bea is a spy.", "Bea", "spy", trust="web")

    async def labels() -> list[str]:
        """Of what is in the context from outside."""
        found = await world.perdure.app.store.read(context_sources, world.agent.id, 0, before_seq=1_000)
        return [one.source.label for one in found]

    assert ((await world.send("Bea?"))[1], await labels()) == ([], [])
    await world.agent.update(settings={**ON, "facts": {"use_untrusted": True}})
    assert ((await world.send("Bea!"))[1], await labels()) == ([fact.id], ["web"])
    assert not any(source.kind == "fact" for source in (await world.agent.recall("Bea")).sources)


async def test_settings_say_how_many_and_of_how_many_messages(world: _World) -> None:
    """At most five by default."""
    for number in range(8):
        await world.know(f"Bea likes dish {number}.", "Bea", f"dish {number}")

    assert len((await world.send("Bea"))[1]) == 5
    await world.agent.update(settings={**ON, "facts": {"recall": 2, "recall_messages": 1}})
    assert len((await world.send("Bea and dishes"))[1]) == 2
    assert (await world.send("Hm."))[1] == []
    await world.agent.update(settings={**ON, "facts": {"recall": 0}})
    assert (await world.send("Bea?"))[1] == []
    await world.agent.update(settings={"auto_recall": False})
    assert (await world.send("And Bea?")) == ("", [])


async def test_facts_keep_within_the_budget(world: _World) -> None:
    for number in range(5):
        await world.know(f"Bea likes dish number {number} with a very long name indeed.", "Bea", f"dish {number}")
    await world.agent.update(settings={"auto_recall": {"budget_tokens": 80}})

    text, ids = await world.send("Bea?")

    assert 1 <= len(ids) < 5
    assert world.perdure.app.ports.counter.count(text) <= 80


async def test_what_is_said_in_view_is_not_recalled(world: _World) -> None:
    """The message that says it stands in the request already; another conversation recalls it."""
    await world.agent.send("I live in Lisbon.")
    (fact,) = [hit.fact for hit in await world.agent.facts.extract()]

    assert (await world.send("What is Lisbon like?"))[1] == []
    other = (await world.agent.new_conversation()).id
    assert (await world.send("What is Lisbon like?", conversation=other))[1] == [fact.id]


async def test_a_recalled_fact_counts_as_used(world: _World) -> None:
    fact = await world.know("Bea drinks green tea.", "Bea", "tea")
    await world.send("Bea?")

    def uses(tx: Any) -> list[int]:
        archive_id = tx.of(Graphs).get(fact.graph_id).fact_archive_id
        return [tx.passages.use_counts(archive_id, [fact.text_seq])[fact.text_seq]]

    assert await world.perdure.app.store.read(uses) == [1]


async def test_a_recall_by_hand_has_facts_with_their_sources(world: _World) -> None:
    """Of the entities that the query names; none of them in a recall from named archives."""
    fact = await world.know("Bea drinks green tea.", "Bea", "tea")
    await world.know("Cleo has a boat.", "Cleo", "boat")

    recalled = await world.agent.recall("What does Bea drink?", explain=True)

    (source,) = [source for source in recalled.sources if source.kind == "fact"]
    (episode,) = (await world.agent.facts.history(fact.id)).sources
    assert (source.id, source.score, source.entities) == (fact.id, 1.0, ("Bea", "tea"))
    assert (source.occurred_at, source.refs) == (NOW, (episode.ref,))
    assert source.why is not None
    assert source.why.parts["distance"] > 0
    assert recalled.ran["facts"].rows == 2
    archive = await world.perdure.archives.create("notes")
    assert (await world.agent.recall("What does Bea drink?", archives=[archive.id])).sources == ()


async def test_a_fact_that_an_answer_cites_is_used_once_more() -> None:
    """One that was only recalled counts once, and a part of a word is no name."""
    model = ScriptedModel(says("Bea likes her tea."), says("Teams are fine."))
    settings = Settings(model=MODEL, embedding="none", facts="patterns")
    opening = AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings, clock=FakeClock(NOW))
    async with await opening as perdure:
        world = _World(perdure, await perdure.create_agent("a", settings=ON))
        tea = await world.know("Bea drinks green tea.", "Bea", "tea")
        boat = await world.know("Bea has a boat.", "Bea", "boat")

        async def uses() -> list[int]:
            def load(tx: Tx) -> list[int]:
                graph = tx.of(Graphs).get(tea.graph_id)
                seqs = [tea.text_seq, boat.text_seq]
                counts = tx.passages.use_counts(graph.fact_archive_id, seqs)
                return [counts[seq] for seq in seqs]

            return await perdure.app.store.read(load)

        assert set((await world.send("What would Bea like?"))[1]) == {tea.id, boat.id}
        assert await uses() == [1, 1]
        await world.agent.facts.extract()
        assert await uses() == [2, 1]
        await world.agent.facts.extract()
        await world.send("Tell me of Bea.")
        await world.agent.facts.extract()
        assert await uses() == [3, 2]
