"""Finding what was said and what was put away."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidInput, NotFound
from tests.support.library import open_sync

HISTORY = ("I planted a quince tree in the garden.", "The train to Torino leaves at nine.", "我喜欢下围棋。")


def test_history_is_searched_over_all_conversations(tmp_path: Path) -> None:
    """Words are found in other forms and other languages, the best match first; roles narrow it down."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        for text in HISTORY:
            agent.send(text, conversation=agent.new_conversation().id)

        assert agent.search("planting trees")[0].message.text == HISTORY[0]
        assert agent.search("when does the train leave?")[0].message.text == HISTORY[1]
        assert agent.search("围棋")[0].message.text == HISTORY[2]
        assert agent.search("quince", roles=["assistant"]) == []
        assert agent.search("dragonfruit") == []
        assert [hit.message.text for hit in agent.search("", roles=["user"], limit=2)] == [HISTORY[2], HISTORY[1]]


def test_search_stays_within_its_agent(tmp_path: Path) -> None:
    """Another agent's history is never found."""
    with open_sync(tmp_path / "agents.db") as perdure:
        one, two = perdure.create_agent("one"), perdure.create_agent("two")
        one.send(HISTORY[0])
        one.archive(HISTORY[0])

        assert two.search("quince") == []
        assert two.search_archive("quince") == []


def test_times_narrow_a_search(tmp_path: Path) -> None:
    """Both ends are included; what happened long ago is found by when it happened."""
    day = datetime(2020, 5, 17, 12, tzinfo=UTC)
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        agent.archive("the quince was planted", occurred_at=day)
        agent.archive("the quince has fruit")

        assert [hit.passage.text for hit in agent.search_archive("quince", until=day)] == ["the quince was planted"]
        assert [hit.passage.text for hit in agent.search_archive("quince", since=datetime.now(UTC))] == []
        assert len(agent.search_archive("quince", since=day)) == 2


def test_passages_are_found_by_words_and_tags(tmp_path: Path) -> None:
    """Any tag or all of them; without words the newest."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        first = agent.archive("quince jam needs lemon", tags=["recipe", "fruit"])
        second = agent.archive("quince trees need sun", tags=["garden", "fruit"])

        def search_ids(text: str, *tags: str, **more: str) -> set[str]:
            return {hit.passage.id for hit in agent.search_archive(text, tags=tags, **more)}  # type: ignore[arg-type]

        assert search_ids("quince") == {first.id, second.id}
        assert search_ids("quince lemon", "recipe", "garden") == {first.id, second.id}
        assert search_ids("quince", "fruit", "garden", tag_match="all") == {second.id}
        assert search_ids("", "recipe") == {first.id}
        assert first.tags == ("recipe", "fruit")
        with pytest.raises(InvalidInput):
            agent.archive("  ")


def test_the_archive_is_read_page_by_page(tmp_path: Path) -> None:
    """Oldest first, narrowed down by tags and times; an agent that put nothing away has no pages."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        assert agent.passages() == ()

        one, two, three = (agent.archive(f"note {number}", tags=[f"t{number}", "all"]) for number in (1, 2, 3))

        assert [passage.id for passage in agent.passages(limit=2)] == [one.id, two.id]
        assert [passage.id for passage in agent.passages(after_seq=two.seq)] == [three.id]
        assert [passage.id for passage in agent.passages(tags=["t2", "t3"])] == [two.id, three.id]
        assert [passage.id for passage in agent.passages(tags=["t2", "all"], tag_match="all")] == [two.id]
        assert agent.passages(until=datetime(2000, 1, 1, tzinfo=UTC)) == []


def test_a_passage_is_deleted_by_its_own_agent_only(tmp_path: Path) -> None:
    """It is then neither listed nor found; another agent's is answered as if it were not there."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent, other = perdure.create_agent("one"), perdure.create_agent("two")
        passage = agent.archive("quince jam recipe")
        other.archive("my own")
        with pytest.raises(NotFound, match="it is in no archive of this agent"):
            other.delete_passage(passage.id)

        agent.delete_passage(passage.id)

        assert (list(agent.passages()), agent.search_archive("quince")) == ([], [])
        with pytest.raises(NotFound):
            agent.delete_passage(passage.id)


def test_a_search_for_what_there_can_not_be_is_refused(tmp_path: Path) -> None:
    """A role or a way to match tags that nobody knows is no empty result."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        with pytest.raises(InvalidInput, match="a role is 'human': it can be 'system', 'user', 'assistant', 'tool'"):
            agent.search("x", roles=["human"])  # type: ignore[list-item]  # wrong on purpose
        asks: list[Callable[..., object]] = [agent.passages, partial(agent.search_archive, "x")]
        for ask in asks:
            with pytest.raises(InvalidInput, match="tag_match is 'some': it can be 'any', 'all'"):
                ask(tag_match="some")
        with pytest.raises(InvalidInput, match="a status is 'done': it can be 'queued'"):
            agent.runs(statuses=["done"])  # type: ignore[list-item]


@pytest.mark.uses("facts")
@pytest.mark.uses("proposals")
def test_a_condition_that_there_can_not_be_is_refused(tmp_path: Path) -> None:
    """Also one whose name is wrong, which would be passed over."""
    wrong: list[dict[str, Any]] = [{"states": ["old"]}, {"trust": ["enemy"]}, {"state": "faded"}]
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        agent.facts.add("Ada likes tea.")
        for conditions in wrong:
            for ask in (agent.facts.list, partial(agent.facts.search, "tea")):
                with pytest.raises(InvalidInput, match="it can be"):
                    ask(**conditions)
        with pytest.raises(InvalidInput, match="state is 'old': it can be 'open'"):
            agent.proposals.list(state="old")  # type: ignore[arg-type]
