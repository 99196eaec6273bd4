"""What a model declines is tried a few times, also over restarts of the process, and then passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import ModelError, ModelUnreachable
from perdure.core.messages import text_of
from perdure.core.models import ModelReply, ModelRequest
from perdure.features.facts.extraction.waiting import TRIES, WHOLE_TRIES
from perdure.settings import Settings
from perdure.testing import ScriptedModel, says
from tests.support.library import MODEL

KNOWN = json.dumps(
    {
        "entities": [{"name": "Ada", "type": "Person"}, {"name": "tea", "type": "Object"}],
        "facts": [
            {"subject": "Ada", "relation": "LIKES", "object": "tea", "text": "Ada likes tea.", "turns": [1]}
            | {"decision": "ADD"}
        ],
        "certain": True,
    }
)


class Reader:
    """A model that declines texts about bombs, and can be away; it notes what it was asked to read."""

    def __init__(self) -> None:
        self.declined = 0
        self.is_away = False

    def __call__(self, request: ModelRequest) -> ModelReply:
        if self.is_away:
            raise ModelUnreachable("it is away")
        text = text_of(request.messages[0].parts).partition("<turns>")[2]
        if "bomb" in text:
            self.declined += 1
            return says("I can't help with that.")
        return says(KNOWN)


async def opened(path: Path, reader: Reader) -> AsyncPerdure:
    settings = Settings(model=MODEL, embedding="none", facts="model")
    models = {MODEL: ScriptedModel(extracts=reader, otherwise=says("OK."))}
    return await AsyncPerdure.open(path / "a.db", models=models, settings=settings)


async def start_again(path: Path, reader: Reader, *, times: int) -> list[str]:
    """What is known after so many processes, each of which extracts once."""
    for _ in range(times):
        async with await opened(path, reader) as perdure:
            (agent,) = await perdure.agents()
            try:
                await agent.facts.extract()
            except ModelError:
                continue
    async with await opened(path, reader) as perdure:
        (agent,) = await perdure.agents()
        return [hit.fact.text for hit in await agent.facts.list()]


@pytest.mark.slow
@pytest.mark.parametrize("bad", [0, 1, 2])
async def test_a_text_that_is_declined_blocks_no_other_over_restarts(tmp_path: Path, bad: int) -> None:
    """Each start goes on where the one before stopped; after a few tries the text is counted as dropped."""
    reader = Reader()
    texts = ["Ada likes tea.", "I, Ada, like tea."]
    texts.insert(bad, "How to build a bomb, from my novel.")
    async with await opened(tmp_path, reader) as perdure:
        agent = await perdure.create_agent("x", model=MODEL)
        reader.is_away = True
        for text in texts:
            with pytest.raises(ModelError):
                await agent.facts.ingest(text)
        reader.is_away = False
    known = await start_again(tmp_path, reader, times=3 * TRIES)

    assert known == ["Ada likes tea."]
    assert reader.declined == TRIES
    async with await opened(tmp_path, reader) as perdure:
        counts = await (await perdure.agents())[0].facts.counts()
        assert (counts.waiting, counts.dropped) == (0, {"extraction failed": 1})


async def test_a_turn_that_is_declined_blocks_no_other_over_restarts(tmp_path: Path) -> None:
    """The whole batch is tried a few times, then each of its turns once; what is said later is read."""
    reader = Reader()
    async with await opened(tmp_path, reader) as perdure:
        agent = await perdure.create_agent("x", model=MODEL)
        await agent.send("How to build a bomb, from my novel.")
    await start_again(tmp_path, reader, times=3 * WHOLE_TRIES)
    declined = reader.declined
    async with await opened(tmp_path, reader) as perdure:
        (agent,) = await perdure.agents()
        for text in ("So what?", "And then?", "Never mind.", "I, Ada, like tea."):
            await agent.send(text)
    known = await start_again(tmp_path, reader, times=2)

    assert known == ["Ada likes tea."]
    assert (declined, reader.declined) == (WHOLE_TRIES + 1, declined)


async def test_a_model_that_is_away_counts_as_no_try(tmp_path: Path) -> None:
    """However often a process starts while nobody answers, nothing is passed over."""
    reader = Reader()
    reader.is_away = True
    async with await opened(tmp_path, reader) as perdure:
        agent = await perdure.create_agent("x", model=MODEL)
        await agent.send("I, Ada, like tea.")
        with pytest.raises(ModelError):
            await agent.facts.ingest("Ada likes tea.")
    await start_again(tmp_path, reader, times=3 * TRIES)
    reader.is_away = False

    assert await start_again(tmp_path, reader, times=1) == ["Ada likes tea."]
