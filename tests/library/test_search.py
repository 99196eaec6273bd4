"""Finding what was said and what was put away."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure import InvalidInput
from tests.library.opened import open_sync

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

        def found(text: str, *tags: str, **more: str) -> set[str]:
            return {hit.passage.id for hit in agent.search_archive(text, tags=tags, **more)}  # type: ignore[arg-type]

        assert found("quince") == {first.id, second.id}
        assert found("quince lemon", "recipe", "garden") == {first.id, second.id}
        assert found("quince", "fruit", "garden", tag_match="all") == {second.id}
        assert found("", "recipe") == {first.id}
        assert first.tags == ("recipe", "fruit")
        with pytest.raises(InvalidInput):
            agent.archive("  ")
