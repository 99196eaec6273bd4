"""What the engine reports of its work."""

from __future__ import annotations

import pytest

from perdure import AsyncPerdure, RunFailed
from perdure.core.telemetry import EmbeddingWork, LeaseTaken, ModelWork, RunRequested, RunWork, ToolWork
from perdure.settings import Settings
from perdure.testing import InlineStore, RecordedTelemetry, ScriptedEmbedder, ScriptedModel, calls, fails, says

MODEL = "test/scripted"
SETTINGS = Settings(model=MODEL, embedding="none")


async def test_a_run_reports_its_models_and_tools() -> None:
    """Each in the order in which it ended, the run last."""
    model = ScriptedModel(calls("memory_insert", label="human", new_string="Ada"), says("Hello Ada"))
    async with await AsyncPerdure.open(settings=SETTINGS, store=InlineStore(), models={MODEL: model}) as perdure:
        perdure.app.telemetry.add(seen := RecordedTelemetry())
        agent = await perdure.create_agent("ada")
        await agent.send("I am Ada")

    assert [type(work) for work in seen.works] == [ModelWork, ToolWork, ModelWork, RunWork]
    (tool,), (run,), (asked,) = seen.of(ToolWork), seen.of(RunWork), seen.of(RunRequested)
    assert (tool.kind, tool.name, tool.error) == ("memory", "memory_insert", "")
    assert (run.stop_reason, run.steps) == ("end_turn", 2)
    assert asked.run_id == run.run.id
    assert [work.reply is not None for work in seen.of(ModelWork)] == [True, True]
    assert not seen.of(LeaseTaken)


async def test_a_failed_call_reports_its_kind() -> None:
    """Of the model, and of the run; no text of the error."""
    model = ScriptedModel(fails("no, Ada", kind="llm_quota"))
    async with await AsyncPerdure.open(settings=SETTINGS, store=InlineStore(), models={MODEL: model}) as perdure:
        perdure.app.telemetry.add(seen := RecordedTelemetry())
        agent = await perdure.create_agent("ada")
        with pytest.raises(RunFailed):
            await agent.send("hello")

    assert [work.error for work in seen.of(RunWork)] == ["llm_quota"]
    assert [work.error for work in seen.of(ModelWork)] == ["ModelError"]


async def test_the_embedder_reports_its_texts() -> None:
    """With what for, not with the texts."""
    settings = Settings(model=MODEL)
    model = ScriptedModel(says("ok"))
    async with await AsyncPerdure.open(
        settings=settings, store=InlineStore(), models={MODEL: model}, embedder=ScriptedEmbedder()
    ) as perdure:
        perdure.app.telemetry.add(seen := RecordedTelemetry())
        agent = await perdure.create_agent("ada", archival=True)
        await agent.send("hello")
        await agent.search("hello")

    assert {work.purpose for work in seen.of(EmbeddingWork)} >= {"query"}
