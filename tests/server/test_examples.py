"""The examples of the OpenAPI document: all have the shape that they are examples of, and bodies can be sent."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import pytest

from perdure.server.serving.examples import BODIES
from tests.server.contract import create_things
from tests.server.routed import JSON, routed
from tests.server.test_openapi import operations

EVENTS = "text/event-stream"
SKIPPED = ("/mcp", "/v1/sources", "/providers/check")
"""In the path of an operation that asks a server which is not there; and the older name of folders."""

AGENT = "agent-123e4567-e89b-42d3-a456-426614174000"
NOTHING_TO_DO = {
    "POST /v1/agents/{agent_id}/messages/cancel": 409,
    "POST /v1/groups/{group_id}/messages/cancel": 409,
    "POST /v1/conversations/{conversation_id}/stream": 400,
    "POST /v1/runs/{run_id}/stream": 400,
    "PATCH /v1/agents/{agent_id}/messages/{message_id}": 422,
    "PATCH /v1/groups/{group_id}/messages/{message_id}": 404,
    "POST /v1/conversations/{conversation_id}/compact": 400,
    "POST /v1/agents/{agent_id}/memory-sources/revert-writes": 404,
    "POST /v1/agents/{agent_id}/proposals/{number}/refuse": 404,
    "POST /v1/agents/{agent_id}/proposals/protect": 404,
    "POST /v1/agents/{agent_id}/snapshots": 409,
    "POST /v1/agents/{agent_id}/snapshots/restore": 422,
    "POST /v1/agents/{agent_id}/clone": 409,
    "POST /v1/snapshots/load": 422,
    "POST /v1/entities/{entity_id}/merge": 404,
}
"""Operation -> its answer where there is nothing to do, or nothing that does it."""


@pytest.mark.slow
async def test_every_example_has_its_shape() -> None:
    """Each body and each answer with content has one."""
    async with routed() as server:
        document = await server.get("/openapi.json")
        for name, operation in operations(document):
            contents = [*operation.get("requestBody", {}).get("content", {}).items()]
            contents += operation["responses"].get("200", {}).get("content", {}).items()
            for media_type, content in contents:
                if media_type == "multipart/form-data":
                    continue
                validator = jsonschema_rs.validator_for({**content["schema"], "components": document["components"]})
                assert not [error.message for error in validator.iter_errors(content["example"])], name


@pytest.mark.uses("groups")
@pytest.mark.uses("openai_front")
async def test_examples_of_streams_are_chunks_to_their_end() -> None:
    """Of the chunks' shapes; those of a stream that was resumed are numbered behind where it begins."""
    async with routed() as server:
        document = server.app.openapi()
        chunk = {"$ref": "#/components/schemas/Chunk", "components": document["components"]}
        validator = jsonschema_rs.validator_for(chunk)
        seen: dict[str, list[Any]] = {}
        for name, operation in operations(document):
            content = operation["responses"].get("200", {}).get("content", {}).get(EVENTS)
            if content is None:
                continue
            lines = [event["data"] for event in content["example"]]
            seen[name] = [json.loads(line) for line in lines if line != "[DONE]"]
            assert (lines[-1] == "[DONE]") == ("/connect" not in name), name
            if "StreamEvent" in str(content["schema"]):
                assert all(validator.is_valid(one) for one in seen[name]), name
                assert [one["message_type"] for one in seen[name]][-2:] == ["stop_reason", "usage_statistics"], name

        numbers = {name: chunks[0].get("seq_id") for name, chunks in seen.items() if "/stream" in name}
        assert numbers == {
            "POST /v1/agents/{agent_id}/messages/stream": None,
            "POST /v1/groups/{group_id}/messages/stream": None,
            "POST /v1/conversations/{conversation_id}/stream": 6,
            "POST /v1/runs/{run_id}/stream": 6,
        }
        assert seen["POST /v1/chat/completions"][-1]["choices"][0]["finish_reason"] == "stop"
        for path in ("POST /v1/tools/mcp/servers/connect", "GET /v1/mcp-servers/connect/{mcp_server_id}"):
            assert [one["event"] for one in seen[path]] == ["connection_attempt", "success"]


@pytest.mark.slow
@pytest.mark.uses("groups")
@pytest.mark.uses("origins")
@pytest.mark.uses("openai_front")
async def test_every_example_of_a_body_is_taken() -> None:
    """As it is written, by each operation that takes it."""
    async with routed() as server:
        things = await create_things(server.http)
        document = await server.get("/openapi.json")
        names, refused = set(), dict[str, str]()
        # A batch comes late: other messages would wait behind it. A key is last: soon requests without one are refused.
        for name, operation in sorted(operations(document), key=lambda one: ("/keys" in one[0], "/batches" in one[0])):
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content is None or any(part in name for part in SKIPPED):
                continue
            method, path = name.split()
            if not things.keys() >= set(re.findall(r"{(\w+)}", path)):
                continue  # there is no such thing here
            path = path.format_map({key: values[0] for key, values in things.items()})
            owner = {"agent_id": things["agent_id"][0]} if path == "/v1/conversations/" else {}
            body = json.dumps(content["example"]).replace(AGENT, things["agent_id"][0])
            answer = await server.http.request(method, path, content=body, headers=JSON, params=owner)
            if not answer.is_success and answer.status_code != NOTHING_TO_DO.get(name):
                refused[name] = answer.text
            shapes = content["schema"].get("anyOf", [content["schema"]])  # one that may be missing may be null
            names |= {shape.get("$ref", "").rpartition("/")[2] for shape in shapes}
        assert not refused
        assert {name for name in BODIES if not name.startswith(("Mcp", "Named", "ProviderCheck"))} <= names
