"""The list of helpers that an agent reads: whose come first, what is cut, and which can't be called."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from perdure import AsyncAgent
from perdure.core.ids import ToolId
from perdure.core.specs import Tool, ToolSpec
from perdure.features.helpers.catalog import LISTED_MAX
from perdure.testing import ScriptedModel, calls, says
from tests.features.helpers.helper_office import define, lead
from tests.features.plugins import files
from tests.support.office import results


def plug_in(home: Path, name: str, count: int) -> None:
    """Install a plug-in with so many helpers."""
    records = home / "plugins" / "plugins.json"
    known = json.loads(records.read_text()) if records.exists() else {}
    files.write(records, json.dumps({**known, name: {}}))
    for number in range(count):
        files.define(home / "plugins" / name, "agents", f"a{number:03}")


async def add_server_tool(agent: AsyncAgent, server: str, name: str) -> None:
    """Give an agent a tool as those of MCP servers are."""
    ports = agent._ports
    spec = ToolSpec(name=name, kind="mcp", description="x", parameters={"type": "object", "properties": {}})
    tool = Tool(id=ToolId(ports.ids.new("tool")), spec=spec, tags=(f"mcp:{server}",))
    await ports.store.write(lambda tx: tx.tools.add(tool, at=ports.clock.now()))
    await agent.tools.attach(name)


async def test_plug_ins_crowd_out_no_others_and_not_each_other(tmp_path: Path) -> None:
    """What is not listed is told of, and found by a word for it."""
    plug_in(tmp_path, "big", 150)
    plug_in(tmp_path, "small", 2)
    files.define(tmp_path / "policy", "agents", "zz-of-policy")
    define(tmp_path, "zz-mine")
    files.define(tmp_path / "plugins" / "big", "agents", "zebra", "x", description="Tames zebras")
    model = ScriptedModel(calls("run_helper", name="zebras", prompt="Go"), says("."), says("."))
    async with lead(tmp_path, {"lead": model}, policy=str(tmp_path / "policy")) as (_, agent):
        reply = await agent.send("Go")
        define(tmp_path, "zz-more")
        await agent.send("Go on")

    section = model.requests[0].system.partition("<helpers>")[2].partition("</helpers>")[0]
    listed = [line for line in section.splitlines() if line.startswith("- ")]
    names = {line[2:].partition(": ")[0] for line in listed}
    assert {"zz-of-policy", "zz-mine", "general", "recall", "small:a000", "small:a001", "big:a000"} <= names
    assert len(listed) == LISTED_MAX + 1 and listed[-1].startswith("- 61 more are not listed: run_helper with a word")
    assert results(reply.messages)[0].text.endswith("did you mean big:zebra?")
    news = model.requests[-1].messages[-1].text + model.requests[-1].messages[-2].text
    assert "zz-more: Helps as zz-more." in news and "62 more are not listed" in news and '"gone": ["big:a' in news


async def test_built_in_helpers_work_with_the_tools_of_an_ordinary_agent(tmp_path: Path) -> None:
    """Each can call some; those that an agent has no tool of are not offered."""
    async with lead(tmp_path, {"lead": ScriptedModel()}) as (_, agent):
        found = {one.name: one for one in await agent.helpers.list()}
        for tool in await agent.tools.list():
            await agent.tools.detach(tool.name)
        without = {one.name: one for one in await agent.helpers.list()}

    assert not any(one.problem for one in found.values())
    assert all("conversation_search" in found[one].tools for one in ("explore", "plan", "recall", "reflect"))
    assert {name for name, one in without.items() if "you have none of its tools" in one.problem} == {
        *("explore", "plan", "recall", "reflect")
    }


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({"tools": "mcp__shop__buy, mcp__wiki"}, ""),
        ({"tools": "mcp__other"}, "mcp__other"),
        ({"tools": "other__find"}, "other__find"),
        ({"mcpServers": "[shop, my shop]"}, ""),
        ({"mcpServers": "shop, other"}, "other"),
        ({"mcpServers": "[{other: {command: touch, args: [x]}}, shop]"}, "other"),
        ({"mcp_servers": "{other: {type: stdio}}"}, "other"),
        ({"tools": "mcp__my_shop__sell"}, ""),
    ],
    ids=str,
)
async def test_a_helper_whose_server_is_missing_can_not_be_called(
    tmp_path: Path, fields: dict[str, str], needs: str
) -> None:
    """Whether its definition names a tool in one way or the other, or the server."""
    define(tmp_path, "buyer", **fields)
    async with lead(tmp_path, {"lead": ScriptedModel()}) as (_, agent):
        await add_server_tool(agent, "shop", "shop__buy")
        await add_server_tool(agent, "wiki", "wiki__find")
        await add_server_tool(agent, "my shop", "my_shop__sell_0123abcd")
        helper = await agent.helpers.get("buyer")

    assert helper.problem == (needs and f"it needs {needs}, and you have no such tools of an MCP server")
    assert not helper.missing or needs


async def test_a_plug_in_names_its_own_servers_without_its_name(tmp_path: Path) -> None:
    """As in Claude Code, also in the long form; another plug-in's names mean others."""
    plug_in(tmp_path, "tidy", 0)
    for name, fields in {
        "short": {"tools": "mcp__mem__find"},
        "long": {"tools": "mcp__plugin_tidy_mem__find"},
        "server": {"mcpServers": "[mem]"},
    }.items():
        files.define(tmp_path / "plugins" / "tidy", "agents", name, "x", **fields)
    define(tmp_path, "other", tools="mcp__mem__find")
    async with lead(tmp_path, {"lead": ScriptedModel()}) as (_, agent):
        await add_server_tool(agent, "tidy-mem", "tidy-mem__find")
        found = {one.name: one for one in await agent.helpers.list()}

    assert found["tidy:short"].tools == found["tidy:long"].tools == ["tidy-mem__find"]
    assert not found["tidy:server"].problem and "mcp__mem__find" in found["other"].problem


async def test_a_name_that_the_policy_holds_is_refused_with_its_file(tmp_path: Path) -> None:
    """Whatever else has the name."""
    define(tmp_path, "reviewer")
    broken = files.write(tmp_path / "policy" / "agents" / "x.md", "---\nname: reviewer\nmax_turns: many\n---\n")
    model = ScriptedModel(calls("run_helper", name="reviewer", prompt="Go"), says("."))
    async with lead(tmp_path, {"lead": model}, policy=str(tmp_path / "policy")) as (_, agent):
        reply = await agent.send("Go")

    assert "reviewer:" not in model.requests[0].system
    assert f"the policy's definition of it can't be used: {broken}:3: max_turns is" in results(reply.messages)[0].text


async def test_long_lists_of_tools_cost_no_time(tmp_path: Path) -> None:
    """Too long ones are refused with their line; what others mean is kept from one message to the next."""
    define(tmp_path, "huge", tools=", ".join(f"a{number}*" for number in range(8_000)))
    define(tmp_path, "wide", tools=f"x{'*x' * 20_000}")
    for number in range(100):
        define(tmp_path, f"many-{number}", tools=", ".join(f"m*{number}-{one}*" for one in range(200)))
    async with lead(tmp_path, {"lead": ScriptedModel()}) as (_, agent):
        problems = {one.path.stem: str(one) for one in (await agent.helpers.roster()).found.problems}
        start = time.process_time()
        await agent.helpers.roster()
        took = time.process_time() - start

    assert "huge.md:4: tools has 8,000 names, the limit is 200" in problems["huge"]
    assert "wide.md:4: tools has the name" in problems["wide"] and len(problems["wide"]) < 400
    assert took < 0.1
