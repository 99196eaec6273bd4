"""A context for other agents: what is remembered for a query, within a budget."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import InvalidInput, NotFound, Perdure
from perdure.testing import InlineStore, ScriptedModel
from tests.server.routed import new_agent, routed
from tests.support.library import MODEL, open_sync

HISTORY = ("I saw a walrus at the pier.", "The train to Torino leaves at nine.", "My sister is called Bea.")
DAY = datetime(2024, 5, 17, 12, tzinfo=UTC)


def test_blocks_passages_and_turns_stand_in_one_text_with_their_sources(tmp_path: Path) -> None:
    """In reading order; a turn that no search found is there beside one that was found."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent(human="Name: Ada")
        for text in HISTORY:
            agent.send(text)
        agent.archive("Walruses eat clams.", occurred_at=DAY)

        found = agent.recall("What do I know of the walrus?", budget_tokens=400, explain=True)

        kinds = [source.kind for source in found.sources]
        assert kinds == sorted(kinds, key=["block", "passage", "turn"].index)
        assert all(text in found.text for text in ("Name: Ada", "Walruses eat clams.", "I saw a walrus at the pier."))
        assert 0 < found.tokens <= 400
        passage = next(source for source in found.sources if source.kind == "passage")
        assert (passage.archive_name, passage.occurred_at) == ("agent's archive", DAY)
        assert passage.why is not None
        turn = next(source for source in found.sources if source.kind == "turn" and not source.beside)
        assert (turn.role, turn.seq) == ("user", agent.messages()[0].seq)
        beside = [source for source in found.sources if source.beside]
        assert beside and all(source.beside == (turn.id,) for source in beside)
        assert set(found.ran) == {"messages", "passages"}
        assert found.ran["messages"].arms == ("words",)

        without = agent.recall("walrus", blocks=False, messages=False, archives=[])
        assert (without.text, without.sources) == ("", ())


def test_passages_and_turns_are_on_one_scale(tmp_path: Path) -> None:
    """What holds all of the query's words comes before what holds some of them, whichever search found it."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        agent.send("The quince tree has fruit.")
        agent.archive("The quince tree in the old garden was planted by Ada.")
        for number in range(20):
            agent.archive(f"An invoice of month {number}.")

        scores = {
            source.kind: source.score
            for source in agent.recall("who planted the quince tree in the old garden", blocks=False).sources
            if not source.beside
        }

        assert 0 < scores["turn"] < scores["passage"] <= 1
        floored = agent.recall("who planted the quince tree in the old garden", blocks=False, floor=scores["passage"])
        assert [source.kind for source in floored.sources] == ["passage"]


def test_archives_are_recalled_from_without_an_agent(tmp_path: Path) -> None:
    """By name or id; nothing of an agent is in it."""
    with open_sync(tmp_path / "agents.db") as perdure:
        perdure.create_agent().send("The boiler is loud.")
        house = perdure.archives.create("house")
        house.insert("The boiler is a Vaillant of 2019.")

        found = perdure.recall("boiler", archives=["house"])

        assert [(source.kind, source.archive_id) for source in found.sources] == [("passage", house.id)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query": "  "}, "query is empty"),
        ({"budget_tokens": 0}, "budget_tokens is 0: give a number from 1 to 200,000"),
        ({"budget_tokens": 200_001}, "budget_tokens is 200001"),
        ({"floor": 1.5}, "floor is 1.5: give a number from 0 to 1"),
        ({"archives": "house"}, "archives is 'house': give a list"),
        ({"archives": None}, "name an agent, archives, or both"),
    ],
)
def test_what_can_not_be_recalled_is_refused(arguments: dict[str, Any], message: str) -> None:
    """Before anything is looked for."""
    with Perdure(store=InlineStore(), models={MODEL: ScriptedModel()}) as perdure:
        perdure.archives.create("house")
        with pytest.raises(InvalidInput, match=message):
            perdure.recall(**{"query": "boiler", "archives": ["house"], **arguments})
        with pytest.raises(NotFound):
            perdure.recall("boiler", archives=["nowhere"])
        with pytest.raises(NotFound):
            perdure.recall("boiler", agent="nobody")


WORDS = st.sampled_from(["quince", "tree", "garden", "Ada", "樱桃树", "planted", "the", "\n", "🙂", "old"])
TEXT = st.lists(WORDS, min_size=1, max_size=60).map(" ".join).filter(str.strip)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    turns=st.lists(TEXT, max_size=6),
    passages=st.lists(TEXT, max_size=6),
    query=TEXT,
    budget=st.integers(1, 400),
    human=TEXT,
)
def test_a_recalled_text_never_exceeds_its_budget(
    turns: list[str], passages: list[str], query: str, budget: int, human: str
) -> None:
    """Counted by the store's own counter over the whole text, for any history, archive and block."""
    with Perdure(store=InlineStore(), models={MODEL: ScriptedModel()}) as perdure:
        agent = perdure.create_agent(model=MODEL, human=human)
        for text in turns:
            agent.send(text)
        for text in passages:
            agent.archive(text)

        found = agent.recall(query, budget_tokens=budget)

        count = perdure._inner.app.ports.counter.count
        assert found.tokens == (count(found.text) if found.text else 0) <= budget
        assert [source.number for source in found.sources] == list(range(1, len(found.sources) + 1))


async def test_recall_over_http_answers_with_text_and_sources() -> None:
    """Of an agent, of archives; what can't be asked is refused with a status that says so."""
    async with routed() as server:
        agent = await new_agent(server, memory_blocks=[{"label": "human", "value": "Name: Ada"}])
        await server.post(f"/v1/agents/{agent['id']}/archival-memory", {"text": "Walruses eat clams."})
        path = f"/v1/agents/{agent['id']}/recall"

        found = await server.post(path, {"query": "walruses", "budget_tokens": 300, "explain": True})

        assert [source["kind"] for source in found["sources"]] == ["block", "passage"]
        assert "Walruses eat clams." in found["text"]
        assert found["tokens"] <= found["budget_tokens"] == 300
        archive_id = found["sources"][1]["archive_id"]
        assert found["sources"][1]["why"]["words"] > 0.5
        same = await server.post("/v1/recall", {"query": "walruses", "archive_ids": [archive_id]})
        assert [source["id"] for source in same["sources"]] == [found["sources"][1]["id"]]

        nobody = "agent-00000000-0000-4000-8000-000000000000"
        nowhere = "archive-00000000-0000-4000-8000-000000000000"
        for where, body, status in (
            (path, {"query": " "}, 422),
            (path, {}, 422),
            (path, {"query": "x", "budget_tokens": 0}, 422),
            (path, {"query": "x", "budget_tokens": 10**9}, 422),
            (path, {"query": "x", "archive_ids": [nowhere]}, 404),
            (path.replace(agent["id"], nobody), {"query": "x"}, 404),
            ("/v1/recall", {"query": "x"}, 422),
            ("/v1/recall", {"query": "x", "agent_id": nobody}, 404),
            ("/v1/recall", {"query": "x", "agent_id": "ann"}, 422),
        ):
            assert (await server.refused("POST", where, body))[0] == status, (where, body)
