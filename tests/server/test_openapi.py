"""The OpenAPI document: every route is in it, and errors are as they are sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args
from unittest.mock import patch

import pytest
from starlette.routing import Route

from perdure.core.ids import ID_PATTERNS
from perdure.server.config import ServerConfig
from perdure.server.serving.app import Api
from perdure.server.serving.openapi import DESCRIPTIONS
from perdure.server.wire.errors import FAILURES
from perdure.server.wire.messages import MessageType
from perdure.testing import says
from tests.server.routed import new_agent, routed

KEY = "a long random text"
ASKING = (
    "/messages",
    "/stream",
    "/async",
    "/preview-raw-payload",
    "/generate",
    "/completions",
    "/responses",
    "/check",
    "/refresh",
)
"""The ends of the paths at which a model is asked."""


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", operation


@pytest.mark.uses("files")
async def test_every_route_is_in_the_document() -> None:
    """The plain ones for messages too, with their bodies and streams; and no operation is there twice."""
    async with routed() as server:
        document = await server.get("/openapi.json")
        app = server.app
        assert isinstance(app, Api)
        routes = {
            f"{method} {route.path_format}"
            for route in app.routes
            if isinstance(route, Route) and route.include_in_schema and route.path.startswith(("/v1/", "/openai/"))
            for method in route.methods or ()
        }
        found = dict(operations(document))
        assert set(found) == routes
        assert len({operation["operationId"] for operation in found.values()}) == len(found)
        sending = found["POST /v1/agents/{agent_id}/messages"]
        assert set(sending["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
        assert "text/event-stream" in found["POST /v1/runs/{run_id}/stream"]["responses"]["200"]["content"]
        assert "multipart/form-data" in found["POST /v1/folders/{folder_id}/upload"]["requestBody"]["content"]
        assert all(
            parameter["schema"]["pattern"] == ID_PATTERNS["agent"]
            for operation in found.values()
            for parameter in operation.get("parameters", ())
            if parameter["in"] == "path" and parameter["name"] == "agent_id"
        )


async def test_answers_are_documented() -> None:
    """Each operation that succeeds has a shape, or no content with 204; streams have one for each event too."""
    async with routed() as server:
        document = await server.get("/openapi.json")
        for name, operation in operations(document):
            (status,) = [status for status in operation["responses"] if status.startswith("2")]
            content = operation["responses"][status].get("content", {})
            assert bool(content) == (status == "200"), name
            for media_type, shape in content.items():
                assert shape["schema"] and ("itemSchema" in shape) == (media_type == "text/event-stream"), name
        chunk = document["components"]["schemas"]["Chunk"]
        assert {"ping", "error_message", "usage_statistics"} < set(chunk["discriminator"]["mapping"])
        reply = document["components"]["schemas"]["Reply"]["properties"]["messages"]["items"]
        assert set(reply["discriminator"]["mapping"]) == set(get_args(MessageType))
        agent = document["components"]["schemas"]["Agent"]
        assert agent["properties"]["description"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
        assert {"id", "blocks", "tools", "llm_config"} <= set(agent["required"])


async def test_errors_are_documented_as_they_are_sent() -> None:
    """422 in its own shape, the statuses of failed runs where a model is asked, and nothing of the framework's."""
    async with routed() as server:
        document = await server.get("/openapi.json")
        schemas = document["components"]["schemas"]
        assert "HTTPValidationError" not in schemas
        for name, operation in operations(document):
            responses = operation["responses"]
            assert {"403", "431", "500", "503", "507"} <= set(responses), name
            assert "401" not in responses or name.endswith(ASKING), name
            if "422" in responses:
                content = responses["422"]["content"]["application/json"]
                assert content["schema"]["$ref"].endswith("/Unprocessable"), name
            wrong = "400" if "/openai/" in name else "422"
            assert ("requestBody" in operation) <= {"408", "413", "415", wrong}.issubset(responses), name
        sending = dict(operations(document))["POST /v1/agents/{agent_id}/messages"]["responses"]
        assert {str(status) for status, _ in FAILURES.values()} <= set(sending)
        assert {status for status, _ in FAILURES.values()} <= set(DESCRIPTIONS)


async def test_a_key_is_documented_where_there_is_one() -> None:
    """Both forms, and 401, on all but the probes."""
    async with routed(config=ServerConfig(api_key=KEY)) as server:
        document = await server.get("/openapi.json")
        assert set(document["components"]["securitySchemes"]) == {"bearer", "password"}
        for name, operation in operations(document):
            probe = name in ("GET /v1/health/", "GET /v1/ready/")
            assert ("security" in operation, "401" in operation["responses"]) == (not probe, not probe), name


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/v1/agents/", "GET, POST"),
        ("PUT", "/v1/agents", "GET, POST"),
        ("DELETE", "/v1/agents/x/messages", "GET, POST"),
        ("OPTIONS", "/v1/agents/x", "DELETE, GET, PATCH"),
        ("HEAD", "/v1/agents/", "GET, POST"),
        ("BREW", "/v1/tools/count", "GET"),
        # Not an id, which other methods of the other route would answer 422.
        ("PATCH", "/v1/agents/count", "GET"),
        ("GET", "/v1/messages/search", "POST"),
        ("DELETE", "/v1/archives/x/passages/batch", "POST"),
    ],
)
async def test_a_method_that_a_path_does_not_take(method: str, path: str, allow: str) -> None:
    """405, and `Allow` names those that it takes: all of them, of whichever route."""
    async with routed() as server:
        refused = await server.http.request(method, path)
        assert (refused.status_code, refused.headers.get("allow")) == (405, allow)
        assert method == "HEAD" or refused.json() == {"detail": "Method Not Allowed"}


async def test_a_body_that_may_be_missing_may_be_null() -> None:
    """As the document says of it."""
    async with routed() as server:
        agent = await new_agent(server)
        for body in (b"", b"null", b"{}"):
            reset = await server.http.patch(
                f"/v1/agents/{agent['id']}/reset-messages", content=body, headers={"content-type": "application/json"}
            )
            assert reset.status_code == 200, body
        approval = f"/v1/agents/{agent['id']}/tools/approval/none"
        assert await server.refused("PATCH", approval) == (422, "body.requires_approval: Field required")


async def test_a_chunk_that_is_not_documented_fails_the_tests_that_see_it() -> None:
    """The hook that checks every answer reads streams too."""
    async with routed(says("hello")) as server:
        agent = await new_agent(server)
        shape = {"message_type": "stop_reason", "stop_reason": "bored"}
        with (
            patch("perdure.server.wire.chunks.stop_reason", lambda _: shape),
            pytest.raises(AssertionError, match="/stream 200"),
        ):
            await server.http.post(f"/v1/agents/{agent['id']}/messages/stream", json={"input": "hi"})


async def test_settings_of_agents_are_documented_with_their_choices() -> None:
    """Any value that the document allows is taken."""
    async with routed() as server:
        shapes = (await server.get("/openapi.json"))["components"]["schemas"]
        agent = (await new_agent(server))["id"]
        for name in ("profile", "offered_tools", "prompt_size", "companion_passes"):
            documented, _ = shapes["AgentChangesIn"]["properties"][name]["anyOf"]
            for value in documented["enum"]:
                await server.patch(f"/v1/agents/{agent}", {name: value})
            refused = await server.http.patch(f"/v1/agents/{agent}", json={name: "another"})
            assert refused.status_code == 422, name
