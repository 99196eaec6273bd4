"""A store opened with an embedder: what is said and stored is found by meaning, and it closes without waiting."""

from __future__ import annotations

import asyncio
from pathlib import Path

from perdure.library.perdure import AsyncPerdure
from perdure.testing import ScriptedEmbedder, ScriptedModel, says


async def test_what_is_said_and_stored_is_embedded(tmp_path: Path) -> None:
    """Both sides of the talk and passages, without anybody asking for it; opened lexical-only, nothing is queued."""
    embedder, model = ScriptedEmbedder(), ScriptedModel(says("I am well."))
    async with await AsyncPerdure.open(tmp_path / "p.db", models={"test/model": model}, embedder=embedder) as perdure:
        agent = await perdure.create_agent("ada", model="test/model")
        await agent.send("How are you?")
        for _ in range(500):
            counts = await perdure.app.store.read(lambda tx: tx.vectors.counts())
            if sum(one.scope.row_count for one in counts) == 2:
                break
            await asyncio.sleep(0.01)
        assert embedder.closed is False

    assert sorted(text for asked in embedder.requests for text in asked) == ["How are you?", "I am well."]
    assert embedder.closed
    async with await AsyncPerdure.open(tmp_path / "p.db", models={"test/model": model}) as perdure:
        await perdure.create_agent("bob", model="test/model")
        counts = await perdure.app.store.read(lambda tx: tx.vectors.counts())
        assert len(counts) == 1 and perdure.app.worker is None
