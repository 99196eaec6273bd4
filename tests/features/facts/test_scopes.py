"""A fact's scope says whose it is: names and ids, in bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure import AsyncPerdure, InvalidInput, TooMany
from perdure.adapters.mem0 import AsyncMemory
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, says

MODEL = "test/scripted"


@pytest.fixture
async def perdure() -> AsyncIterator[AsyncPerdure]:
    """An open store whose facts are found by patterns."""
    settings = Settings(model=MODEL, embedding="none", facts="patterns")
    model = ScriptedModel(otherwise=says("OK."))
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings) as opened:
        yield opened


LONG = "x" * 600_000


@pytest.mark.parametrize("scope", [{"user_id": LONG[:1_001]}, {LONG[:1_001]: "x"}, {"metadata": LONG}])
async def test_a_scope_has_a_limit(perdure: AsyncPerdure, scope: dict[str, str]) -> None:
    """Of its names, the ids in it and its size, wherever it is given."""
    agent = await perdure.create_agent("ada")
    fact = await agent.facts.add("Ann likes tea.")
    refused = (
        lambda: agent.facts.ingest("I like tea.", scope=scope),
        lambda: agent.facts.add_fact("Ann likes tea.", scope=scope),
        lambda: perdure.facts.edit(fact.fact.id, {"scope": scope}),
        lambda: agent.facts.list(scope=scope),
        lambda: AsyncMemory(perdure).add("I like tea.", user_id="ann", infer=False, metadata={"note": LONG}),
    )

    for call in refused:
        with pytest.raises(TooMany):
            await call()
    with pytest.raises(InvalidInput, match="names with texts"):
        await agent.facts.ingest("I like tea.", scope={"user_id": 5})  # type: ignore[dict-item]
    kept = await agent.facts.add_fact("Ann likes tea.", scope={"user_id": LONG[:1_000]})
    assert kept.fact.scope == {"user_id": LONG[:1_000]}
