"""Conversations by the library: several lines of messages of one agent, named, put aside, and deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import BlockNotFound, InvalidInput, NotFound, Perdure
from perdure.core.ids import ConversationId
from perdure.domain.conversations.units import SUMMARY_CHARS
from perdure.testing import calls
from tests.support.library import open_sync


def test_a_conversation_is_named_and_put_aside_and_taken_up_again(tmp_path: Path) -> None:
    """What is not given stays."""
    with open_sync(tmp_path / "a.db") as perdure:
        agent = perdure.create_agent()
        line = agent.new_conversation(summary="the trip")
        renamed = agent.update_conversation(line.id, summary="the trip to Turin")
        archived = agent.update_conversation(line.id, archived=True)
        again = agent.update_conversation(line.id, archived=True)
        back = agent.update_conversation(line.id, archived=False, summary=None)
        listed = agent.conversations()

    assert (line.summary, renamed.summary, archived.summary) == ("the trip", *["the trip to Turin"] * 2)
    assert archived.archived_at is not None
    assert again == archived
    assert (back.archived_at, back.summary) == (None, None)
    assert listed[1] == back


def test_a_conversation_has_a_description_beside_its_summary(tmp_path: Path) -> None:
    """It is kept where clients of the API find it, and taken away by None."""
    with open_sync(tmp_path / "a.db") as perdure:
        agent = perdure.create_agent()
        line = agent.new_conversation(summary="the trip")
        described = agent.update_conversation(line.id, description="Where to go in May.")
        back = agent.update_conversation(line.id, description=None)

    assert (described.summary, described.settings) == ("the trip", {"description": "Where to go in May."})
    assert back.settings == {}


def test_a_deleted_conversation_is_in_no_list_and_no_search(tmp_path: Path) -> None:
    """Its messages neither; the agent's first one can't be deleted."""
    with open_sync(tmp_path / "a.db") as perdure:
        agent = perdure.create_agent()
        line = agent.new_conversation()
        agent.send("I saw a walrus.", conversation=line.id)
        agent.send("I saw a seal.")
        agent.delete_conversation(line.id)
        first = agent.find_conversation()

        assert [one.id for one in agent.conversations()] == [first.id]
        assert [message.text for message in agent.messages()] == ["I saw a seal.", "OK."]
        assert agent.search("walrus") == []
        with pytest.raises(NotFound):
            agent.send("And now?", conversation=line.id)
        with pytest.raises(InvalidInput, match="reset it"):
            agent.delete_conversation(first.id)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"summary": 7}, "summary is 7"),
        ({"summary": "x" * (SUMMARY_CHARS + 1)}, "20,001 characters"),
        ({"description": 7}, "description is 7"),
        ({"archived": "yes"}, "archived is 'yes'"),
        ({"title": "x"}, "no field title"),
    ],
)
def test_what_can_not_be_used_changes_nothing(tmp_path: Path, changes: dict[str, object], what: str) -> None:
    with open_sync(tmp_path / "a.db") as perdure:
        agent = perdure.create_agent()
        line = agent.new_conversation(summary="the trip")
        with pytest.raises(InvalidInput, match=what):
            agent.update_conversation(line.id, **changes)  # type: ignore[arg-type]
        if "summary" in changes:
            with pytest.raises(InvalidInput, match=what):
                agent.new_conversation(**changes)  # type: ignore[arg-type]

        assert agent.conversations()[1:] == [line]


def test_a_conversation_has_copies_of_blocks_for_itself(tmp_path: Path) -> None:
    """Its runs edit them, and other conversations see the agent's."""
    append = calls("memory_insert", label="human", new_string="Likes tea")
    with open_sync(tmp_path / "a.db", append) as perdure:
        agent = perdure.create_agent(human="Ada")
        line = agent.new_conversation(isolated_blocks=["human"])
        agent.send("I like tea.", conversation=line.id)

        [own] = agent.isolated_blocks(line.id)
        assert (own.label, own.value) == ("human", "Ada\nLikes tea")
        assert agent.blocks.get("human").value == "Ada"
        assert perdure.blocks.get(own.id) == own
        assert agent.isolated_blocks(agent.find_conversation().id) == []
        with pytest.raises(BlockNotFound, match="persona"):
            agent.new_conversation(isolated_blocks=["mood"])


def test_another_agents_conversation_is_not_there(tmp_path: Path) -> None:
    with open_sync(tmp_path / "a.db") as perdure:
        agent, other = perdure.create_agent("one"), perdure.create_agent("other")
        line = other.new_conversation()

        for conversation in (line.id, ConversationId("conversation-00000000-0000-4000-8000-000000000000")):
            with pytest.raises(NotFound):
                agent.update_conversation(conversation, summary="mine")
            with pytest.raises(NotFound):
                agent.delete_conversation(conversation)
            with pytest.raises(NotFound):
                agent.isolated_blocks(conversation)
        assert _summaries(perdure, "other") == [None, None]


def _summaries(perdure: Perdure, name: str) -> list[str | None]:
    return [line.summary for line in perdure.agent(name).conversations()]


@pytest.mark.uses("facts")
def test_facts_of_all_conversations_are_extracted(tmp_path: Path) -> None:
    """Also where the first one has nothing new; a conversation that was deleted gives none."""
    with open_sync(tmp_path / "a.db", facts="patterns") as perdure:
        agent = perdure.create_agent()
        other, deleted = agent.new_conversation(), agent.new_conversation()
        agent.send("I live in Oslo.", conversation=other.id)
        agent.send("I like figs.", conversation=deleted.id)
        agent.delete_conversation(deleted.id)
        first = [hit.fact.text for hit in agent.facts.extract()]
        agent.send("I like tea.")
        then = [hit.fact.text for hit in agent.facts.extract()]

        assert (first, then) == (["User lives in Oslo."], ["User likes tea."])
        assert agent.facts.extract() == []
