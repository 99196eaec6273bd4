"""The context window, as clients see it."""

from __future__ import annotations

import json

import pytest

from perdure import ModelReply, ModelRequest, Text, Usage
from perdure.testing import calls, says
from tests.server.routed import MODEL, new_agent, routed

FIELDS = [
    *("context_window_size_max", "context_window_size_current", "num_messages", "num_archival_memory"),
    *("num_recall_memory", "num_tokens_external_memory_summary", "external_memory_summary", "num_tokens_system"),
    *("system_prompt", "num_tokens_core_memory", "core_memory", "num_tokens_memory_filesystem", "memory_filesystem"),
    *("num_tokens_tool_usage_rules", "tool_usage_rules", "num_tokens_directories", "directories"),
    *("num_tokens_summary_memory", "summary_memory", "num_tokens_functions_definitions", "functions_definitions"),
    *("num_tokens_messages", "messages"),
]
MESSAGE_ROLES = {"user", "assistant", "tool", "system"}


async def test_the_overview_has_all_fields_of_the_wire() -> None:
    """Its parts sum to what the next request takes; what Perdure has no part for is empty."""
    async with routed(calls("conversation_search", query="x"), says("Hello.")) as server:
        agent = await new_agent(
            server, include_base_tools=True, memory_blocks=[{"label": "human", "value": "Name: Ada"}]
        )
        path = f"/v1/agents/{agent['id']}"
        before = await server.get(f"{path}/context")
        await server.post(f"{path}/archival-memory", {"text": "The moon is white"})
        await server.post(f"{path}/messages", {"input": "hello"})
        shape = await server.get(f"{path}/context")

        assert list(shape) == FIELDS
        sizes = {name: shape[name] for name in FIELDS if name.startswith("num_tokens_")}
        assert sum(sizes.values()) == shape["context_window_size_current"] < shape["context_window_size_max"]
        assert {name for name, size in sizes.items() if not size} == {
            *("num_tokens_memory_filesystem", "num_tokens_tool_usage_rules", "num_tokens_directories"),
            "num_tokens_summary_memory",
        }
        for name in ("memory_filesystem", "tool_usage_rules", "directories", "summary_memory"):
            assert shape[name] is None
        assert "Name: Ada" in shape["core_memory"]
        assert "Ada" not in shape["system_prompt"]
        assert '"archival_passages": 1' in shape["external_memory_summary"]
        assert (shape["num_archival_memory"], shape["num_recall_memory"], shape["num_messages"]) == (1, 4, 4)
        assert [message["role"] for message in shape["messages"]] == ["user", "assistant", "tool", "assistant"]
        assert before["messages"] == []
        assert before["num_tokens_messages"] == 0


async def test_messages_and_tools_are_in_the_shapes_that_clients_read() -> None:
    """Each row is one message by role; tools are OpenAI's function shapes."""
    async with routed(calls("conversation_search", query="x"), says("Hello.")) as server:
        agent = await new_agent(server, include_base_tools=True)
        path = f"/v1/agents/{agent['id']}"
        await server.post(f"{path}/messages", {"input": "hello"})
        shape = await server.get(f"{path}/context")

        said, called, returned, answered = shape["messages"]
        assert said["content"] == [{"type": "text", "text": "hello"}]
        assert [call["function"]["name"] for call in called["tool_calls"]] == ["conversation_search"]
        assert returned["tool_call_id"] == called["tool_calls"][0]["id"] == returned["tool_returns"][0]["tool_call_id"]
        assert answered["content"] == [{"type": "text", "text": "Hello."}]
        for tool in shape["functions_definitions"]:
            assert tool["type"] == "function"
            assert {"name", "description", "parameters"} <= set(tool["function"])
        bare = await new_agent(server, "bare")
        empty = await server.get(f"/v1/agents/{bare['id']}/context")
        assert (empty["functions_definitions"], empty["num_tokens_functions_definitions"]) == ([], 0)


async def test_the_size_is_corrected_by_what_was_measured() -> None:
    """As the engine will certify the next request."""

    def measured(request: ModelRequest) -> ModelReply:
        return ModelReply(parts=(Text("Hm."),), usage=Usage(input_tokens=600, output_tokens=1))

    async with routed(measured) as server:
        agent = await new_agent(server)
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hello"})
        shape = await server.get(f"/v1/agents/{agent['id']}/context")
        overview = await (await server.library.agent(agent["id"])).context()

        assert shape["context_window_size_current"] == overview.used_tokens
        assert overview.estimated_tokens != overview.used_tokens


async def test_a_summary_is_told_apart_from_messages() -> None:
    """What left the window stands behind it, and is counted there."""
    async with routed() as server:
        agent = await new_agent(server, context_window_limit=6_000)
        for number in range(12):
            await server.post(f"/v1/agents/{agent['id']}/messages", {"input": f"{number} " + "word " * 400})
        shape = await server.get(f"/v1/agents/{agent['id']}/context")

        assert shape["num_tokens_summary_memory"] > 0
        assert "node-" in shape["summary_memory"]
        assert shape["num_messages"] == len(shape["messages"]) < shape["num_recall_memory"] == 24
        assert {message["role"] for message in shape["messages"]} <= MESSAGE_ROLES
        assert shape["context_window_size_max"] == 6_000


async def test_another_conversation_has_a_window_of_its_own() -> None:
    """By its id; `default` is the agent's first one. What is not there is 404, what is no id 422."""
    async with routed() as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}/context"
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hello"})
        library = await server.library.agent(agent["id"])
        line = await library.new_conversation()
        other = await server.library.create_agent("bob", model=MODEL)
        theirs = await other.new_conversation()

        assert (await server.get(path, conversation_id=line.id))["messages"] == []
        assert (await server.get(path, conversation_id="default"))["num_messages"] == 2
        assert (await server.refused("GET", path, conversation_id=theirs.id))[0] == 404
        assert (await server.refused("GET", path, conversation_id="nonsense"))[0] == 422
        nobody = "agent-00000000-0000-4000-8000-000000000000"
        assert (await server.refused("GET", f"/v1/agents/{nobody}/context"))[0] == 404


@pytest.mark.uses("costs")
async def test_costs_are_answered_request_by_request() -> None:
    """As the library has them; with a `limit` the newest only."""

    def measured(request: ModelRequest) -> ModelReply:
        return ModelReply(parts=(Text("Hm."),), usage=Usage(input_tokens=600, output_tokens=1))

    async with routed(measured, measured) as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}/context/costs"
        for _ in range(2):
            await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hello"})
        costs = await server.get(path)

        ledger = await (await server.library.agent(agent["id"])).costs()
        assert costs == json.loads(json.dumps(ledger.to_dict()))
        assert [request["input_tokens"] for request in costs["requests"]] == [600, 600]
        assert [rewrite["reason"] for rewrite in costs["requests"][0]["rewrites"]] == ["first"]
        newest = await server.get(path, limit=1)
        assert (newest["requests"], newest["left_out"]) == (costs["requests"][1:], 1)
        assert (await server.refused("GET", path, limit=0))[0] == 422
