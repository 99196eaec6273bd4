"""The tools that write to agents, over HTTP."""

from __future__ import annotations

import json

from perdure.testing import says
from tests.server.routed import new_agent, routed

MULTI_AGENT = [
    "send_message_to_agent_and_wait_for_reply",
    "send_message_to_agent_async",
    "send_message_to_agents_matching_tags",
]


async def test_an_agent_is_made_with_the_tools_that_write_to_agents() -> None:
    """Beside its base tools, or alone; each can be taken away and given back."""
    async with routed() as server:
        both = await new_agent(server, include_multi_agent_tools=True, include_base_tools=True)
        alone = await new_agent(server, include_multi_agent_tools=True, include_base_tools=False)
        listed = await server.get("/v1/tools/", tool_types="letta_multi_agent_core", order="asc")
        base = await server.post("/v1/tools/add-base-tools", None)

        assert sorted(tool["name"] for tool in alone["tools"]) == MULTI_AGENT
        assert {tool["name"] for tool in both["tools"]} == {
            *MULTI_AGENT,
            *("conversation_search", "memory_insert", "memory_replace"),
        }
        assert {tool["name"] for tool in listed} == {*MULTI_AGENT, "send_message_to_agents_matching_all_tags"}
        assert {tool["name"] for tool in listed} <= {tool["name"] for tool in base}
        assert all(tool["tags"] == ["letta_multi_agent_core"] for tool in listed)
        waiting = next(tool for tool in listed if tool["name"] == MULTI_AGENT[0])
        assert waiting["json_schema"]["parameters"]["required"] == ["message", "other_agent_id"]
        path = f"/v1/agents/{alone['id']}/tools"
        assert len((await server.patch(f"{path}/detach/{waiting['id']}"))["tools"]) == 2
        assert len((await server.patch(f"{path}/attach/{waiting['id']}"))["tools"]) == 3


async def test_a_message_to_an_agent_is_sent_by_hand() -> None:
    """In the agent's name; the other agent shows who wrote."""
    async with routed(says("Blue.")) as server:
        ann = await new_agent(server, include_multi_agent_tools=True)
        bob = await new_agent(server)
        ran = await server.post(
            f"/v1/agents/{ann['id']}/tools/{MULTI_AGENT[0]}/run",
            {"args": {"message": "Which colour?", "other_agent_id": bob["id"]}},
        )
        messages = await server.get(f"/v1/agents/{bob['id']}/messages")

        assert ran["status"] == "success"
        assert json.loads(ran["func_return"]) == {"agent_id": bob["id"], "response": ["Blue."]}
        (sent,) = [one for one in messages if one["message_type"] == "user_message"]
        assert sent["sender_id"] == ann["id"]
        assert sent["content"].startswith(f"[Incoming message from agent with ID '{ann['id']}'")
