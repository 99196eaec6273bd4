"""The index of skills: a line for each in the prompt, changes as small messages, one index with those of the client."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.features.skills.catalog import INDEX_LINES
from perdure.testing import ScriptedModel, calls
from tests.server.routed import new_agent, routed
from tests.support.library import open_async, open_sync


def write_file(folder: Path, name: str, about: str, **files: str) -> None:
    """Write a skill with a file."""
    place = folder / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {about}\n---\nThe text of {name}.\n")
    for file, text in files.items():
        path = place / file.replace("__", "/").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.uses("facts")
async def test_agents_without_the_tool_see_no_skill(tmp_path: Path) -> None:
    model = ScriptedModel()
    async with await open_async(tmp_path / "perdure.db", model=model) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.facts.add("Ada lives in Turin.")  # so that the agent uses another feature
        await agent.send("hi")
        await agent.skills.enable(learns=False)
        await agent.send("hi again")

        assert "available_skills" not in model.requests[0].system
        assert '{"name": "working-alone", "description": "How to work for long' in model.requests[1].system
        assert "constitution" not in [one.label for one in await agent.blocks.list()]


async def test_what_changes_is_told_by_a_message_and_the_prefix_stays(tmp_path: Path) -> None:
    """A new line, a changed one and one that is gone; the text of a skill that keeps its line is no news."""
    model = ScriptedModel()
    async with await open_async(tmp_path / "perdure.db", model=model) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.skills.enable()
        await agent.send("hi")
        await agent.skills.write("deploy", "Run make.", description="Deploy it")
        await agent.send("one")
        await agent.skills.write("deploy", "Run make twice.", description="Deploy it")
        await agent.send("two")
        await agent.skills.write("deploy", "Run make twice.", description="Deploy the shop")
        await agent.send("three")
        await agent.skills.archive("deploy")
        await agent.send("four")
        before, *rest = model.requests
        told = [[one.text for one in each.messages if "skill_delta" in one.text] for each in rest]

        assert ['"skills": 3' in each.tail for each in model.requests] == [True, False, False, False, True]
        assert all(each.system == before.system for each in rest)
        assert [len(each) for each in told] == [1, 1, 2, 3]
        assert '"skill": "deploy", "op": "added", "description": "Deploy it", "location": "read_skill"' in told[0][0]
        assert '"op": "changed", "description": "Deploy the shop"' in told[2][1]
        assert '"skill": "deploy", "op": "removed"' in told[3][2]


async def test_files_of_the_user_and_project_stand_in_the_index(tmp_path: Path) -> None:
    """The project's one overrides the user's; a broken one is a problem with its path; one with a tool's name, too."""
    home, project = tmp_path / "home", tmp_path / "project"
    write_file(home / "skills", "deploy", "As the user does it")
    write_file(home / "skills", "read_skill", "A trap")
    write_file(project / ".claude" / "skills", "deploy", "As the project does it")
    (project / ".claude" / "skills" / "broken").mkdir()
    (project / ".claude" / "skills" / "broken" / "SKILL.md").write_text("---\nname: broken\n---\nx")
    model = ScriptedModel()
    async with await open_async(tmp_path / "perdure.db", model=model, home=str(home)) as perdure:
        agent = await perdure.create_agent("ann", settings={"project": str(project)})
        await agent.skills.enable()
        await agent.send("hi")
        problems = await agent.skills.problems()

        assert '"name": "deploy", "description": "As the project does it"' in model.requests[0].system
        assert "A trap" not in model.requests[0].system
        assert any("broken/SKILL.md:1: the field `description`" in one for one in problems)
        assert any("read_skill: a tool has its name" in one for one in problems)


async def test_the_index_has_room_for_so_many_and_says_how_many_more(tmp_path: Path) -> None:
    model = ScriptedModel()
    async with await open_async(tmp_path / "perdure.db", model=model) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.skills.enable()
        for number in range(INDEX_LINES):
            await agent.skills.write(f"s{number}", "x", description=f"about {number}")
        files = [one for one in await agent.skills.list() if not one.version]
        await agent.send("hi")
        system = model.requests[0].system

        assert system.count('"location": "read_skill"') == INDEX_LINES + 1
        assert f'"description": "{len(files)} more: search_skills finds them"' in system
        assert all(f'"name": "{one.name}"' in system for one in files)


async def test_skills_of_the_client_stand_in_the_same_index() -> None:
    """They are searched with the others, and reading one says where it is."""
    model = ScriptedModel(calls("search_skills", query="spreadsheets"), calls("read_skill", name="xlsx"))
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "client_skills": [{"name": "xlsx", "description": "Read spreadsheets", "location": "/s/xlsx.md"}],
    }
    async with routed(model=model) as server:
        agent = await new_agent(server)
        await server.post(f"/v1/agents/{agent['id']}/skills/enable", None)
        await server.post(f"/v1/agents/{agent['id']}/messages", body)
        system, found, read = model.requests[0].system, *(one.messages[-1].text for one in model.requests[1:3])

        assert system.count("<available_skills>") == 1
        assert '"name": "xlsx"' in system and '"name": "working-alone"' in system
        assert '"name": "xlsx", "layer": "client"' in found and '"location": "/s/xlsx.md"' in found
        assert "read /s/xlsx.md with your tools" in read


def test_a_skill_is_found_by_its_words_also_in_the_archive(tmp_path: Path) -> None:
    with open_sync(tmp_path / "perdure.db") as perdure:
        agent = perdure.create_agent("ann")
        agent.skills.write("deploy-shop", "Copy the bundle to the harbour server.", description="Bring the shop online")
        agent.skills.write("bake", "Flour and water.", description="Bake bread")
        agent.skills.archive("deploy-shop")

        assert [one.name for one in agent.skills.search("harbour server")] == ["deploy-shop"]
        assert [one.name for one in agent.skills.search("bread")] == ["bake"]
        assert agent.skills.search("zebra") == []


async def test_a_description_does_not_fill_the_window(tmp_path: Path) -> None:
    skill = tmp_path / "skills" / "long"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(f"---\nname: long\ndescription: {'very ' * 10_000}\n---\nDo it.\n")
    model = ScriptedModel()
    async with await open_async(tmp_path / "perdure.db", model=model, home=str(tmp_path)) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.skills.enable()
        await agent.send("hi")

    assert 100 < model.requests[0].system.count("very ") <= 200
