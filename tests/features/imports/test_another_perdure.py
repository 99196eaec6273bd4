"""What a second Perdure server says of its agents beyond Letta's API: which settings they have of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.testing import ScriptedModel
from tests.support.library import open_async
from tests.support.servers import served

SETTINGS = {"temperature": 0.5, "compaction": {"mode": "all"}, "top_p": 0.9}


@pytest.mark.uses("manifests")
async def test_settings_that_an_agent_lacks_follow_the_default_here_too(tmp_path: Path) -> None:
    """Those that it has are moved as they are, also ones that Letta's API does not show, but no waived approval."""
    (there := tmp_path / "there").mkdir()
    async with served(there, model=ScriptedModel()) as (url, source):
        plain = await source.create_agent("Ann")
        own = await source.create_agent(
            "Bob", model="test/scripted", settings={**SETTINGS, "approval_waived": ["roll"]}
        )
        async with await open_async(tmp_path / "here.db") as perdure:
            await perdure.imports.run_server(url)
            moved = [(await perdure.agent_of(one.id).state()).agent for one in (plain, own)]

    assert [{**one.settings} for one in moved] == [{}, SETTINGS]
    assert [one.follows_default for one in moved] == [True, False]


@pytest.mark.uses("mcp")
async def test_a_token_that_a_server_hides_is_named(tmp_path: Path) -> None:
    """A Perdure server answers with an empty token where there is one: it has to be set anew, too."""
    (there := tmp_path / "there").mkdir()
    async with served(there, model=ScriptedModel()) as (url, source):
        await source.mcp.add("wx", url="https://mcp.example.org/mcp", token="s3cret-token", check=False)
        async with await open_async(tmp_path / "here.db") as perdure:
            report = await perdure.imports.run_server(url)

    assert report.secrets == ["MCP server 'wx': Authorization"]


@pytest.mark.uses("groups")
async def test_an_agent_with_a_companion_is_taken_and_gets_a_new_one(tmp_path: Path) -> None:
    """The companion has an id of its own, not the one kept for its agent."""
    (there := tmp_path / "there").mkdir()
    async with served(there, model=ScriptedModel()) as (url, source):
        helped = await source.create_agent("sam", sleeptime=True)
        async with await open_async(tmp_path / "here.db") as perdure:
            report = await perdure.imports.run_server(url)
            names = {(await one.state()).agent.name: one.id for one in await perdure.agents()}

    assert report.agents == [("sam", helped.id)]
    assert {*names} == {"sam", "sam-sleeptime"}
    assert names["sam"] == helped.id
