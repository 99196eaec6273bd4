"""Helpers and their models on the command line, over HTTP and in the dashboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.cli.commands.agents import load_agents
from perdure.testing import ScriptedModel, calls, says
from tests.features.helpers.helper_office import define, lead
from tests.server.routed import new_agent, routed
from tests.support.library import open_sync
from tests.support.office import ended_runs
from tests.support.programs import run_inside
from tests.ui.browser import dashboard


def test_helpers_are_listed_shown_and_routed(tmp_path: Path) -> None:
    """With what is wrong, where each is from, and why each runs on which model."""
    define(tmp_path, "reviewer", "You review code.", tools="Bash, Nothing", model="opus", max_turns=5)
    define(tmp_path, "odd", memory="sometimes")
    (tmp_path / "agents" / "broken.md").write_text("---\nname: broken\n")
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann", tools=["run_code"])
    listed = run_inside(tmp_path, "helper", "list")
    shapes = {one["name"]: one for one in json.loads(run_inside(tmp_path, "helper", "list", "--json").stdout)}
    shown = run_inside(tmp_path, "helper", "show", "reviewer")
    missing = run_inside(tmp_path, "helper", "show", "reviewr")
    routes = {one["name"]: one for one in json.loads(run_inside(tmp_path, "helper", "routes", "ann", "--json").stdout)}

    assert "memory is 'sometimes'" in " ".join(listed.stdout.split())
    assert "broken.md:1: the frontmatter has no end" in " ".join(listed.stdout.split())
    assert "perdure tool attach run_helper ann" in listed.stderr
    assert (shapes["reviewer"]["layer"], shapes["general"]["layer"]) == ("user", "built-in")
    assert (shapes["reviewer"]["tools"], shapes["reviewer"]["missing"]) == (["run_code"], ["Nothing"])
    assert "max turns: 5" in shown.stdout
    assert shown.stdout.rstrip().endswith("You review code.")
    assert missing.returncode == 1
    assert "did you mean reviewer" in missing.stderr
    assert routes["reviewer"]["model"] == routes["general"]["model"]
    assert routes["reviewer"]["reason"].startswith("the definition says opus, and none of it is known")
    assert routes["odd"]["model"] is None
    assert routes["general"]["source"] == "parent"
    assert "nothing names another one" in " ".join(run_inside(tmp_path, "helper", "routes").stdout.split())


async def test_helpers_over_http() -> None:
    """All fields of a definition, and the models as a table."""
    async with routed() as server:
        agent = await new_agent(server, include_base_tools=True)
        helpers = await server.get(f"/v1/agents/{agent['id']}/helpers")
        routes = await server.get(f"/v1/agents/{agent['id']}/helpers/routes")

    assert [one["name"] for one in helpers] == ["explore", "fork", "general", "plan", "recall", "reflect"]
    assert [one["name"] for one in routes] == [one["name"] for one in helpers]
    assert {one["model"] for one in routes} == {agent["model"]}


@pytest.mark.parametrize("has_tool", [True, False])
async def test_the_page_of_memory_shows_helpers_of_agents_that_can_call_them(has_tool: bool) -> None:
    """With the model of each and why."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        if has_tool:
            await agent.tools.attach("run_helper")
        page = (await client.get(f"/agents/{agent.id}/memory")).text

    assert ("Searches your own history" in page) == has_tool
    assert ("nothing names another one" in page) == has_tool


async def test_the_reason_of_a_model_is_shown_with_the_run(tmp_path: Path) -> None:
    """In the spans of the run, in its origin, and in what `why` prints."""
    define(tmp_path, "small", model="test/small")
    models = {
        "lead": ScriptedModel(calls("run_helper", name="small", prompt="Go"), says("Done.")),
        "small": ScriptedModel(says("Found.")),
    }
    async with lead(tmp_path, models) as (perdure, agent):
        await agent.send("Go")
        _, run = await ended_runs(perdure)
        _, spans = await perdure.runs.spans_of_run(run.id)
        origin = await perdure.agent_of(None).why(run.id)

    assert [span.attributes["model_reason"] for span in spans if span.name == "agent_step"] == [
        "the definition says test/small"
    ]
    assert origin.model_reason == "the definition says test/small"  # type: ignore[union-attr]


async def test_lists_of_people_leave_out_the_agents_of_helpers(tmp_path: Path) -> None:
    """The home page and `perdure agent list` show agents that somebody made."""
    script = (calls("run_helper", name="general", prompt="Go"), says("Found."), says("Done."))
    async with dashboard(*script) as (client, library):
        agent = await library.create_agent("ann", tools=["run_helper"])
        await agent.send("Go")
        names = [one.name for one in await library.agents()]
        page = (await client.get("/", params={"format": "json"})).json()
        rows = await load_agents(library)

    assert sorted(names) == ["ann", "ann - general"]
    assert [one["name"] for one in page["agents"]] == ["ann"]
    assert [row.info.name for row in rows] == ["ann"]
