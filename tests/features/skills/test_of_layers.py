"""Skills with files beside those that agents and people write: whose name it is, and whose line comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.core.errors import AlreadyExists, NotFound
from perdure.features.skills.catalog import INDEX_LINES
from perdure.testing import ScriptedModel
from tests.features.plugins.files import define, write
from tests.support.library import open_async


async def test_plug_ins_do_not_crowd_out_what_an_agent_has_written(tmp_path: Path) -> None:
    """Neither the built-in ones; the last line says how many are left out."""
    model, home = ScriptedModel(), tmp_path / "home"
    write(home / "plugins" / "plugins.json", '{"big": {}}')
    for number in range(INDEX_LINES + 10):
        define(home / "plugins" / "big", "skills", f"a{number:03}")
    async with await open_async(tmp_path / "perdure.db", model=model, home=str(home)) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.skills.enable()
        await agent.skills.write("zz-own", "x", description="What I learned")
        await agent.send("hi")
        system = model.requests[0].system

    assert all(f'"name": "{one}"' in system for one in ("zz-own", "working-alone", "big:a000"))
    assert '"name": "big:a069"' not in system and '"description": "14 more: search_skills finds them"' in system


@pytest.mark.parametrize("name", ["deploy", "Deploy"])
async def test_a_broken_file_of_the_policy_keeps_its_name_from_what_an_agent_writes(tmp_path: Path, name: str) -> None:
    """What it wrote before is hidden, in whatever form its name is, and nothing new is taken."""
    policy = tmp_path / "policy"
    policy.mkdir()
    model = ScriptedModel()
    async with await open_async(tmp_path / "perdure.db", model=model, policy=str(policy)) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.skills.enable()
        await agent.skills.write(name, "Do it my way", description="How I do it")
        file = write(policy / "skills" / "x" / "SKILL.md", "---\nname: deploy\ndescription: [\n")
        await agent.send("hi")
        with pytest.raises(NotFound, match=f"the policy's definition of it can't be used: {file}:1"):
            await agent.skills.get(name)
        with pytest.raises(AlreadyExists, match="has a file"):
            await agent.skills.write(name, "Again", description="x")
        names = [one.name for one in await agent.skills.list()]

    assert name not in names and "How I do it" not in model.requests[0].system
