"""What a program wrote down about its user in the third person, as passages hold it, read without a model."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from perdure.features.facts.extraction.patterns import PatternExtractor
from perdure.features.facts.values.extraction import Extraction, ReadBatch, SpokenTurn
from perdure.features.facts.values.facts import EpisodeKind

NOW = datetime(2026, 11, 29, tzinfo=UTC)


async def read(text: str, kind: EpisodeKind = "text") -> Extraction:
    """What is read from one turn of the speaker "user"."""
    turn = SpokenTurn(number=1, speaker="user", text=text, occurred_at=NOW, kind=kind)
    return await PatternExtractor().extract(ReadBatch(turns=(turn,)))


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("The user lives in Ghent.", ["user lives in Ghent."]),
        ("User works at Fiat.", ["user works at Fiat."]),
        ("We met on Monday. The user doesn't like tea.", ["user dislikes tea."]),
        ("The user Ada lives in Ghent and prefers tabs.", ["Ada lives in Ghent."]),
        ("The user Ada lives in Ghent and works at Fiat.", ["Ada lives in Ghent.", "Ada works at Fiat."]),
        (
            "User lives in Ghent, likes tea, and works as a baker.",
            ["user lives in Ghent.", "user likes tea.", "user works as baker."],
        ),
        ("The user Ada Lovelace works at Fiat.", ["Ada Lovelace works at Fiat."]),
        ("My name is Ada and I live in Ghent.", ["Ada lives in Ghent."]),
    ],
)
async def test_it_becomes_facts(text: str, facts: list[str]) -> None:
    assert [fact.text for fact in (await read(text)).facts] == facts


@pytest.mark.parametrize("text", ["The user's name is Ada.", "The user is called Ada.", "the user is named Ada"])
async def test_it_names_the_user(text: str) -> None:
    (entity,) = (await read(text)).entities

    assert (entity.name, entity.aliases, entity.is_new_name) == ("Ada", ("user",), True)


@pytest.mark.parametrize(
    "text",
    [
        "The user Service lives in a container.",
        "The user clicks the button and lives in hope.",
        "Ask the user Bob where he lives.",
        "If the user lives in Italy, show the form in Italian.",
        "Does the user live in Ghent?",
        "The user interface works at 60 Hz.",
        "Users live in the table accounts.",
        "Tests of the user page like fixtures.",
    ],
)
async def test_what_is_said_of_other_users_becomes_none(text: str) -> None:
    assert (await read(text)).facts == []


async def test_a_message_about_a_user_is_not_about_its_speaker() -> None:
    """People who write programs speak of "the user" all day."""
    assert (await read("The user lives in Ghent.", "message")).facts == []
