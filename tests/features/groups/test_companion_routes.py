"""Companions over HTTP: Letta's fields, and groups that name them."""

from __future__ import annotations

import asyncio
from typing import Any

from letta_client.types import AgentState

from perdure.testing import calls, says
from tests.server.routed import Routed, new_agent, routed

QUIET: dict[str, Any] = {"facts": "off", "embedding": "none"}


async def group_of(server: Routed, agent: Any) -> Any:
    """The agent's group as the agent's answer has it."""
    return (await server.get(f"/v1/agents/{agent['id']}"))["managed_group"]


async def test_an_agent_gets_a_companion_by_the_wires_field() -> None:
    """As Letta's server answers; the official client's types take it."""
    async with routed(**QUIET) as server:
        made = await new_agent(server, "st2", enable_sleeptime=True, memory_blocks=[{"label": "human", "value": "x"}])
        group = made["managed_group"]
        (companion_id,) = group["agent_ids"]
        companion = await server.get(f"/v1/agents/{companion_id}")

        AgentState.model_validate(made)
        assert made["enable_sleeptime"] is True
        assert made["multi_agent_group"] == group
        values = {name: value for name, value in group.items() if value is not None and name not in ("id", "agent_ids")}
        assert values == {
            "manager_type": "sleeptime",
            "description": "",
            "shared_block_ids": [],
            "manager_agent_id": made["id"],
            "sleeptime_agent_frequency": 5,
            "turns_counter": -1,
        }
        assert (companion["name"], companion["agent_type"]) == ("st2-sleeptime", "sleeptime_agent")
        assert [block["label"] for block in companion["blocks"]] == ["memory_persona", "human"]
        assert companion["blocks"][1]["id"] == made["blocks"][0]["id"]
        assert {tool["name"] for tool in companion["tools"]} == {
            *("memory_replace", "memory_insert", "memory_rethink", "memory_finish_edits", "store_memories")
        }
        assert companion["model"] == made["model"]


async def test_turns_are_counted_and_a_pass_is_shown() -> None:
    """The counter goes back to 0 with a pass, and the last processed message is the last one read."""
    async with routed(*[says("OK.")] * 9, **QUIET) as server:
        agent = await new_agent(server, enable_sleeptime=True)
        group = agent["managed_group"]
        path = f"/v1/groups/{group['id']}"
        changes = {"manager_config": {"manager_type": "sleeptime", "sleeptime_agent_frequency": 2}}
        assert (await server.patch(path, changes))["sleeptime_agent_frequency"] == 2

        body = {"messages": [{"role": "user", "content": "hello"}]}
        await server.post(f"/v1/agents/{agent['id']}/messages", body)
        assert (await server.get(path))["turns_counter"] == 1
        answer = await server.post(f"/v1/agents/{agent['id']}/messages", body)
        for _ in range(400):
            if (shown := await group_of(server, agent))["last_processed_message_id"] is not None:
                break
            await asyncio.sleep(0.05)

        assert shown["turns_counter"] == 0
        assert shown["last_processed_message_id"] == answer["messages"][-1]["id"]
        assert (await server.get(path)) == shown


async def test_a_companion_goes_when_it_is_switched_off() -> None:
    """And comes by an update of the agent; a voice agent has one of its own kind."""
    async with routed(**QUIET) as server:
        agent = await new_agent(server, "ann")
        path = f"/v1/agents/{agent['id']}"
        assert agent["enable_sleeptime"] is None
        on = await server.patch(path, {"enable_sleeptime": True})
        assert (await server.patch(path, {"enable_sleeptime": True}))["managed_group"] == on["managed_group"]
        off = await server.patch(path, {"enable_sleeptime": False})

        assert (off["enable_sleeptime"], off["managed_group"]) == (False, None)
        assert [one["name"] for one in await server.get("/v1/agents/")] == ["ann"]
        voice = await new_agent(server, "eve", agent_type="voice_convo_agent", enable_sleeptime=True)
        assert voice["managed_group"]["manager_type"] == "voice_sleeptime"
        (companion_id,) = voice["managed_group"]["agent_ids"]
        assert (await server.get(f"/v1/agents/{companion_id}"))["agent_type"] == "voice_sleeptime_agent"


async def test_a_group_makes_an_agent_a_companion() -> None:
    """A sleeptime group that a client creates shares the blocks of its manager."""
    async with routed(**QUIET) as server:
        agent = await new_agent(server, "ann", memory_blocks=[{"label": "human", "value": "x"}])
        other = await new_agent(server, "keeper", agent_type="sleeptime_agent", include_base_tools=True)
        config = {"manager_type": "sleeptime", "manager_agent_id": agent["id"]}
        body = {"agent_ids": [other["id"]], "description": "", "manager_config": config}
        group = await server.post("/v1/groups/", body)

        assert group["turns_counter"] == -1
        assert (await server.get(f"/v1/agents/{agent['id']}"))["enable_sleeptime"] is True
        blocks = (await server.get(f"/v1/agents/{other['id']}"))["blocks"]
        assert [block["label"] for block in blocks] == ["human"]


async def test_a_pass_is_asked_for_and_shows_what_it_changed() -> None:
    """With its reason and the difference; nothing new gives null, and an agent without a companion 404."""
    edit = calls("memory_insert", label="human", new_string="drinks tea")
    script = (says("OK."), edit, calls("memory_finish_edits", reason="She said so."))
    async with routed(*script, **QUIET) as server:
        plain = await new_agent(server, "ben")
        agent = await new_agent(server, "ann", enable_sleeptime=True, memory_blocks=[{"label": "human", "value": "x"}])
        path = f"/v1/agents/{agent['id']}/companion"
        assert await server.post(f"{path}/wake", {}) is None
        body = {"messages": [{"role": "user", "content": "I drink tea"}]}
        await server.post(f"/v1/agents/{agent['id']}/messages", body)
        begun = await server.post(f"{path}/wake", {})
        for _ in range(400):
            (shown,) = await server.get(f"{path}/passes")
            if shown["outcome"] is not None:
                break
            await asyncio.sleep(0.05)

        assert (begun["number"], begun["cause"], begun["run_id"]) == (1, "request", shown["run_id"])
        assert (shown["outcome"], shown["reason"], shown["steps"]) == ("finished", "She said so.", 2)
        assert [(one["label"], one["diff"]) for one in shown["edits"]] == [("human", "@@ -1 +1,2 @@\n x\n+drinks tea")]
        assert await server.get(f"{path}/passes", before=1) == []
        missing = await server.http.post(f"/v1/agents/{plain['id']}/companion/wake")
        assert (missing.status_code, "it has none" in missing.json()["detail"]) == (404, True)
        assert await server.get(f"/v1/agents/{plain['id']}/companion/passes") == []
