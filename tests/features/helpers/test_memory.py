"""What helpers know and may change: their own memory, or that of the agent that calls; and their tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.errors import NotFound
from perdure.testing import ScriptedModel, calls, says
from tests.features.helpers.helper_office import define, lead
from tests.support.office import results

WRITES = calls("memory_insert", label="human", new_string="Likes Go.")


async def helper_agent(perdure: AsyncPerdure, name: str) -> AsyncAgent:
    """The hidden agent of a helper of `Lead`."""
    return await perdure.agent(f"Lead - {name}")


async def labels(agent: AsyncAgent) -> Sequence[str]:
    return sorted(block.label for block in await agent.blocks.list())


async def tool_names(agent: AsyncAgent) -> set[str]:
    return {tool.name for tool in await agent.tools.list()}


async def test_a_memory_of_its_own_lasts_over_calls(tmp_path: Path) -> None:
    """The helper is one agent: what it notes in one task it knows in the next."""
    define(tmp_path, "tester")
    notes = calls("memory_insert", label="notes", new_string="Tests run with make.")
    call = calls("run_helper", name="tester", prompt="Go")
    model = ScriptedModel(call, notes, says("ok"), says("."), call, says("ok"), says("."))
    async with lead(tmp_path, {"lead": model}) as (perdure, agent):
        await agent.send("One")
        await agent.send("Two")
        helper = await helper_agent(perdure, "tester")
        found = await labels(helper)

    assert found == ["notes"]
    assert "Tests run with make." in model.requests[5].system
    assert len(model.requests[5].messages) == 1


async def test_shared_memory_is_that_of_the_agent_that_calls(tmp_path: Path) -> None:
    """What a helper writes there, the agent reads."""
    define(tmp_path, "clerk", memory="shared")
    model = ScriptedModel(calls("run_helper", name="clerk", prompt="Note it"), WRITES, says("Noted."), says("Good."))
    async with lead(tmp_path, {"lead": model}) as (perdure, agent):
        await agent.send("Go")
        block = await agent.blocks.get("human")
        found = await labels(await helper_agent(perdure, "clerk"))

    assert block.value.strip() == "Likes Go."
    assert found == ["human", "persona"]


async def test_read_only_memory_has_no_tool_that_writes(tmp_path: Path) -> None:
    """The helper sees the blocks, and every tool that changes memory is missing, also through helpers of its own."""
    define(tmp_path, "reader", memory="read-only", tools="'*'")
    model = ScriptedModel(calls("run_helper", name="reader", prompt="Note it"), WRITES, says("I can't."), says("Hm."))
    async with lead(tmp_path, {"lead": model}) as (perdure, agent):
        await agent.blocks.update("human", value="Name: Ada")
        await agent.send("Go")
        block = await agent.blocks.get("human")
        tools = await tool_names(await helper_agent(perdure, "reader"))

    assert block.value == "Name: Ada"
    assert "Name: Ada" in model.requests[1].system
    assert "conversation_search" in tools
    writing = {"memory_insert", "memory_replace", "archival_memory_insert", "update_working_checkpoint"}
    assert not tools & {*writing, "run_helper"}


async def test_tools_are_those_of_the_definition_and_of_the_agent(tmp_path: Path) -> None:
    """Claude Code's names count; without a list it is all but `run_helper`; the policy takes some away."""
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "policy.toml").write_text('denied_tools = ["WebFetch"]')
    define(tmp_path, "all")
    define(tmp_path, "some", tools="Bash, WebFetch, WebSearch, Edit", disallowed_tools="web_search")
    calling = [calls("run_helper", name=name, prompt="Go") for name in ("all", "some")]
    model = ScriptedModel(calling[0], says("ok"), calling[1], says("ok"), says("Done."))
    mine = ("run_code", "fetch_webpage", "web_search")
    async with lead(tmp_path, {"lead": model}, tools=mine, policy=str(policy)) as (perdure, agent):
        await agent.send("Go")
        own = await tool_names(agent)
        all_tools, some = [await tool_names(await helper_agent(perdure, name)) for name in ("all", "some")]

    assert all_tools == own - {"run_helper", "fetch_webpage"}
    assert some == {"run_code"}


async def test_a_changed_definition_holds_from_the_next_call_on(tmp_path: Path) -> None:
    """The same agent gets the new prompt, tools and memory, and keeps its notes."""
    define(tmp_path, "one", "Old.", tools="conversation_search")
    call = calls("run_helper", name="one", prompt="Go")
    model = ScriptedModel(call, says("ok"), says("."), call, says("ok"), says("."))
    async with lead(tmp_path, {"lead": model}) as (perdure, agent):
        await agent.send("One")
        before = await helper_agent(perdure, "one")
        define(tmp_path, "one", "Brand new prompt.", tools="memory_insert", memory="shared")
        await agent.send("Two")
        after = await helper_agent(perdure, "one")
        found, tools = await labels(after), await tool_names(after)

    assert before.id == after.id
    assert (found, tools) == (["human", "notes", "persona"], {"memory_insert"})
    assert model.requests[4].system.startswith("Brand new prompt.")


async def test_the_list_reaches_the_agent_without_a_new_prefix(tmp_path: Path) -> None:
    """It stands in the prompt; what changes later is a message behind what was said."""
    define(tmp_path, "one", description="Counts.")
    model = ScriptedModel(otherwise=says("ok"))
    async with lead(tmp_path, {"lead": model}) as (_, agent):
        await agent.send("One")
        define(tmp_path, "two", description="Reads.", tools="memory_insert")
        (tmp_path / "agents" / "one.md").unlink()
        await agent.send("Two")
        await agent.send("Three")
    first, second, third = model.requests

    assert "- one: Counts. (" in first.system
    assert "- general: Does any task" in first.system
    assert first.system == second.system == third.system
    assert first.opening == second.opening == third.opening
    news = [message.text for message in third.messages if message.kind == "memory_delta"]
    assert len(news) == 1
    assert "two: Reads. (memory_insert)" in news[0]
    assert "gone" in news[0]
    assert "one" in news[0]


async def test_a_helper_that_needs_a_missing_server_is_not_listed(tmp_path: Path) -> None:
    """Nor is one whose memory is none; calls of both say why."""
    define(tmp_path, "git", tools="mcp__github__search")
    define(tmp_path, "odd", memory="sometimes")
    model = ScriptedModel(
        calls("run_helper", name="git", prompt="x"), calls("run_helper", name="odd", prompt="x"), says("ok")
    )
    async with lead(tmp_path, {"lead": model}) as (_, agent):
        reply = await agent.send("Go")

    git, odd = (result.text for result in results(reply.messages))
    assert "- git:" not in model.requests[0].system
    assert "- odd:" not in model.requests[0].system
    assert "needs mcp__github__search" in git
    assert "odd.md: memory is 'sometimes': use own, shared, read-only" in odd


async def test_agents_without_the_tool_read_nothing_of_helpers(tmp_path: Path) -> None:
    """Their requests are as before."""
    model = ScriptedModel(otherwise=says("ok"))
    async with lead(tmp_path, {"lead": model}) as (_, agent):
        await agent.tools.detach("run_helper")
        await agent.send("One")

    assert "helper" not in model.requests[0].system


async def test_helpers_are_deleted_with_their_agent(tmp_path: Path) -> None:
    """And those that helpers have called."""
    define(tmp_path, "a", tools="run_helper, conversation_search")
    define(tmp_path, "b", tools="conversation_search")
    model = ScriptedModel(calls("run_helper", name="a", prompt="Go"), calls("run_helper", name="b", prompt="Go"))
    async with lead(tmp_path, {"lead": model}) as (perdure, agent):
        await agent.send("Go")
        before = [one.name for one in await perdure.agents()]
        await agent.delete()
        after = await perdure.agents()
        with pytest.raises(NotFound):
            await perdure.agent("Lead - a")

    assert sorted(before) == ["Lead", "Lead - a", "Lead - a - b"]
    assert after == []


async def test_a_recall_helper_is_the_agent_itself(tmp_path: Path) -> None:
    """It searches the history of the agent, in a new window with the same prompt."""
    model = ScriptedModel(
        says("Hello."),
        calls("run_helper", name="recall", prompt="When did we meet?"),
        calls("conversation_search", query="meet in Turin"),
        says("In Turin."),
        says("There."),
    )
    async with lead(tmp_path, {"lead": model}) as (_, agent):
        await agent.send("We meet in Turin")
        await agent.send("Where?")

    assert model.requests[2].system == model.requests[1].system
    assert len(model.requests[2].messages) == 1
    assert "Search your history" in model.requests[2].messages[0].text
    assert "We meet in Turin" in model.requests[3].messages[-1].text


async def test_a_helper_that_is_the_agent_may_call_the_tools_of_its_definition_only(tmp_path: Path) -> None:
    """`recall` changes nothing, whatever its model calls; and a fork nothing that the policy denies to helpers."""
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "policy.toml").write_text('denied_tools = ["memory_insert"]')
    model = ScriptedModel(
        *(calls("run_helper", name="recall", prompt="Note it"), WRITES, says("I can't.")),
        *(calls("run_helper", name="fork", prompt="Note it"), WRITES, says("Nor can I.")),
        says("Hm."),
    )
    async with lead(tmp_path, {"lead": model}, policy=str(policy)) as (_, agent):
        await agent.send("Go")
        block = await agent.blocks.get("human")

    assert "Likes Go." not in block.value
    for request in (model.requests[2], model.requests[5]):
        assert "[ToolNotAllowed] memory_insert may not be called" in request.messages[-1].text


async def test_a_helper_gives_no_tools_to_its_helpers_that_it_has_not(tmp_path: Path) -> None:
    define(tmp_path, "limited", memory="agent", tools="run_helper")
    model = ScriptedModel(
        *(calls("run_helper", name="limited", prompt="Have it noted"), calls("run_helper", name="general", prompt="x")),
        *(WRITES, says("I can't."), says("Nor can I."), says("Hm.")),
    )
    async with lead(tmp_path, {"lead": model}) as (_, agent):
        await agent.send("Go")
        block = await agent.blocks.get("human")

    assert "Likes Go." not in block.value
