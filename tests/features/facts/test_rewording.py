"""What others say better, or say again, of a fact that a user said or a person decided about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from perdure.core.errors import ModelUnreachable
from perdure.features.facts.values.extraction import Extraction, ReadBatch
from tests.features.facts.test_background import Scribe, opened
from tests.features.facts.test_decisions import Reviser, texts

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Rewords(Reviser):
    """Finds nothing known in what is said, and adds it as it is said."""

    async def extract(self, batch: ReadBatch) -> Extraction:
        extraction = await super().extract(batch)
        return replace(extraction, facts=[replace(one, decision="ADD", known=None) for one in extraction.facts])


async def test_a_fact_that_the_user_said_stays_theirs_when_the_agent_says_it_better() -> None:
    """It counts as what the user said, with the new words."""
    async with opened(Reviser()) as perdure:
        agent = await perdure.create_agent("x")
        await agent.import_messages([("user", None, "In Oslo.", AT)])
        await agent.facts.extract()
        await agent.import_messages([("assistant", None, "In Oslo, by the sea.", AT)])
        await agent.facts.extract()
        (hit,) = await agent.facts.list()

        assert (hit.fact.text, hit.fact.trust) == ("In Oslo, by the sea.", "user")


async def test_a_deleted_fact_stays_deleted_in_other_words() -> None:
    """Of the same relation between the same two."""
    async with opened(Rewords()) as perdure:
        agent = await perdure.create_agent("x")
        await agent.import_messages([("user", None, "In Oslo.", AT)])
        await agent.facts.extract()
        (hit,) = await agent.facts.list()
        await agent.facts.delete(hit.fact.id)
        await agent.import_messages([("assistant", None, "Oslo is their home.", AT)])
        await agent.facts.extract()

        assert await texts(agent) == []
        assert (await agent.facts.counts()).dropped == {"deleted by a person": 1}


async def test_a_text_that_waits_is_forgotten_with_the_others() -> None:
    """No model reads it later, unless that is undone."""
    async with opened(scribe := Scribe(ModelUnreachable("down"))) as perdure:
        agent = await perdure.create_agent("x")
        with pytest.raises(ModelUnreachable):
            await agent.facts.ingest("Zorblatt is a cheese.")
        forgotten = await agent.forget("Zorblatt")
        await agent.facts.ingest("Rowing is fun.")

        assert forgotten.counts == {"fact": 1}
        assert scribe.texts == [["Zorblatt is a cheese."], ["Rowing is fun."]]
        await agent.undo()
        await agent.facts.ingest("Tea is green.")
        assert "Zorblatt is a cheese." in [text for batch in scribe.texts[2:] for text in batch]
