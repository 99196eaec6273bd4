"""What waits for extraction is counted: turns of conversations, passages, and texts that were given."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from perdure import AsyncPerdure
from perdure.core.errors import ModelError, ModelUnreachable
from perdure.core.models import ModelReply, ModelRequest
from perdure.settings import Settings
from perdure.testing import ScriptedModel, says
from tests.support.library import MODEL

NOTHING = json.dumps({"entities": [], "facts": [], "certain": True})


class Away:
    """A model that can't be reached until it is back."""

    is_away = True

    def __call__(self, request: ModelRequest) -> ModelReply:
        if self.is_away:
            raise ModelUnreachable("it is away")
        return says(NOTHING)


async def opened(path: Path, model: Away, facts: str = "model") -> AsyncPerdure:
    models = {MODEL: ScriptedModel(extracts=model, otherwise=says("OK."))}
    settings = Settings(model=MODEL, embedding="none", facts=facts)
    return await AsyncPerdure.open(path / "a.db", models=models, settings=settings)


async def test_what_waits_is_counted_until_it_is_extracted(tmp_path: Path) -> None:
    model = Away()
    async with await opened(tmp_path, model) as perdure:
        agent = await perdure.create_agent()
        assert (await agent.facts.counts()).waiting == 0

        await agent.send("I live in Oslo.")
        other = await agent.new_conversation()
        await agent.send("I like figs.", conversation=other.id)
        assert (await agent.facts.counts()).waiting == 4  # with what the agent answered

        await agent.archive("The printer is on floor 3.")
        assert (await agent.facts.counts()).waiting == 5
        with suppress(ModelError):
            await agent.facts.ingest("Ada lives in Turin.")
        assert (await agent.facts.counts()).waiting == 6
        await agent.facts.pause()
        assert (await agent.facts.counts()).waiting == 6
        await agent.facts.resume()

        model.is_away = False
        await agent.facts.extract()
        assert (await agent.facts.counts()).waiting == 0


async def test_nothing_waits_where_nothing_is_extracted(tmp_path: Path) -> None:
    async with await opened(tmp_path, Away()) as perdure:
        agent = await perdure.create_agent(settings={"facts": False})
        await agent.send("I live in Oslo.")
        quiet = await perdure.create_agent(settings={"bypass_session_patterns": ["*"]})
        await quiet.send("I live in Oslo.")

        assert [(await one.facts.counts()).waiting for one in (agent, quiet)] == [0, 0]
    (tmp_path / "off").mkdir()
    async with await opened(tmp_path / "off", Away(), "off") as perdure:
        agent = await perdure.create_agent()
        await agent.send("I live in Oslo.")

        assert (await agent.facts.counts()).waiting == 0
