"""Helpers and companions have the skills of the agent that they work for."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.testing import ScriptedModel, calls, says
from tests.features.helpers.helper_office import define, lead
from tests.support.library import open_async

UPDATE = {"layer": "L3", "text": "Look twice.", "evidence": "look"}


def look() -> str:
    """Look."""
    return "there is a way"


@pytest.mark.uses("helpers")
async def test_a_helper_reads_and_writes_the_skills_of_its_agent(tmp_path: Path) -> None:
    """Its use counts as the run that waits for it."""
    define(tmp_path, "scout")
    model = ScriptedModel(
        calls("run_helper", name="scout", prompt="Go"),
        calls("read_skill", name="bake"),
        calls("look"),
        calls("start_long_term_update", name="look-first", **UPDATE),
        says("Done."),
        says("Good."),
    )
    async with lead(tmp_path, {"lead": model}, tools=("look",), functions=[look]) as (_, agent):
        await agent.skills.enable()
        await agent.skills.write("bake", "Flour.", description="Bake bread")
        await agent.send("Go")
        written, used = await agent.skills.get("look-first"), await agent.skills.get("bake")

    assert '"name": "bake"' in model.requests[1].system
    assert "Flour." in model.requests[2].messages[-1].text
    assert (written.text, used.uses.uses, used.uses.successes) == ("Look twice.", 1, 1)


@pytest.mark.uses("groups")
async def test_a_companion_sees_the_skills_of_the_agent_whose_memory_it_keeps(tmp_path: Path) -> None:
    model = ScriptedModel(otherwise=lambda request: says("ok"))
    async with await open_async(tmp_path / "perdure.db", model=model) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.skills.write("bake", "Flour.", description="Bake bread")
        companion = perdure.agent_of((await agent.companion.enable()).agent_id)
        await companion.tools.attach("read_skill")

        assert "Flour." in (await companion.tools.run("read_skill", {"name": "bake"})).text
