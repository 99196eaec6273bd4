"""Which messages facts are extracted from, and who says what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from perdure.core.agents import Agent
from perdure.core.ids import DEFAULT_ORG, AgentId, ArchiveId, PassageId
from perdure.core.messages import Message, Role, unlogged_message
from perdure.core.passages import Passage
from perdure.core.sources import Source, WriteSource
from perdure.features.facts.units.turns import is_turn, trusts_of, turn_of, turn_of_passage
from tests.contracts.base import AT

PAGE = (WriteSource(Source.of("web", "https://example.com"), ()),)


AGENT = Agent(id=AgentId("agent-1"), org_id=DEFAULT_ORG, name="x", model="m", created_at=AT, updated_at=AT)


def rows(*roles: Role) -> Sequence[Message]:
    return [replace(unlogged_message(role, "I like tea."), seq=seq) for seq, role in enumerate(roles)]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (unlogged_message("user", "I like tea."), True),
        (unlogged_message("assistant", "You like tea."), True),
        (unlogged_message("tool", "tea"), False),
        (unlogged_message("user", " \n"), False),
        (replace(unlogged_message("user", "Your tea is late."), kind="compaction"), False),
        (replace(unlogged_message("user", "I like tea."), sender_id="agent-1"), True),
        (replace(unlogged_message("user", "[Bea] I like tea."), sender_id="group-1"), False),
    ],
)
def test_a_turn_is_what_one_speaker_says(row: Message, expected: bool) -> None:
    """What a group passes on holds the words of several."""
    assert is_turn(row) == expected


def test_who_says_a_message_follows_from_what_was_before_it() -> None:
    """Behind a result whose source is unknown the agent may speak for a tool, until the user says something."""
    said = rows("user", "assistant", "tool", "assistant", "user", "assistant")

    assert list(trusts_of(said).values()) == ["user", "agent", "tool", "tool", "user", "agent"]


def test_what_came_from_outside_has_the_trust_of_its_source() -> None:
    """Also a message of the user's."""
    said = rows("user", "assistant", "user")

    assert list(trusts_of(said, {0: PAGE, 1: PAGE}).values()) == ["web", "web", "user"]


@pytest.mark.parametrize(
    ("source", "sources", "expected"),
    [
        ({}, (), ("user", True)),
        ({"run_id": "run-1"}, (), ("agent", False)),
        ({"type": "web"}, (), ("web", True)),
        ({"run_id": "run-1"}, PAGE, ("web", False)),
    ],
)
def test_a_passage_has_the_trust_of_who_stored_it_or_of_what_it_is_from(
    source: Mapping[str, str], sources: tuple[WriteSource, ...], expected: tuple[str, bool]
) -> None:
    passage = Passage(
        id=PassageId("passage-1"),
        archive_id=ArchiveId("archive-1"),
        seq=0,
        text="I like tea.",
        source=source,
        occurred_at=AT,
        created_at=AT,
    )
    turn = turn_of_passage(passage, 1, "Ada", AGENT, sources)

    assert (turn.trust, turn.is_user, turn.speaker) == (*expected, "Ada" if expected[1] else "x")


def test_a_turn_is_read_in_one_form_and_without_credentials() -> None:
    """As patterns and models know its letters."""
    row = unlogged_message("user", "My cafe\u0301 has the key sk-abcdefghijklmnopqrstuvwxyz0123456789.")
    turn = turn_of(row, 1, "Ada", AGENT, "user")

    assert turn.text.startswith("My café has the key ")
    assert "sk-abcdef" not in turn.text
