"""What the server has not: 501 with a sentence, or a 404 that says that the path is unknown."""

from __future__ import annotations

import pytest

from perdure.server.serving.absent import ABSENT
from tests.server.routed import routed

AGENT = "agent-123e4567-e89b-42d3-a456-426614174000"
PATHS = [path.replace("{agent_id}", AGENT).replace("{rest:path}", "x/y") for path in ABSENT]


@pytest.mark.slow
@pytest.mark.parametrize("path", [*PATHS, "/v1/templates/"])
async def test_what_only_the_cloud_has_is_refused_with_a_sentence(path: str) -> None:
    """501 for every method and body, and no retry: not 404, as if a thing were missing."""
    async with routed() as server:
        for method, body in (("GET", None), ("POST", {"name": "a"}), ("PATCH", {}), ("DELETE", None)):
            answer = await server.http.request(method, path, json=body)
            detail = answer.json()["detail"]
            assert (answer.status_code, answer.headers["x-should-retry"]) == (501, "false")
            assert detail.endswith(".") and "trace_id" not in answer.json()
            assert "only in Letta's cloud" in detail or detail.startswith("This server ")


@pytest.mark.uses("files", "mcp")
@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/v1/agent/", "/v1/agents/"),
        ("/v1/agents/" + AGENT + "/message", "/v1/agents/{agent_id}/messages"),
        ("/v1/mcp_servers", "/v1/mcp-servers/"),
        ("/v1/v1/agents/", "/v1/agents/"),
        ("/folders", "/v1/folders/"),
        ("/v1/colours/", None),
        ("/v1/" + "x" * 5000, None),
        ("/v1/agents/" + AGENT + "/colours", None),
    ],
)
async def test_an_unknown_path_says_that_it_is_the_path(path: str, near: str | None) -> None:
    """404 that names it as it was sent, and the nearest one that there is."""
    async with routed() as server:
        for method in ("GET", "POST"):
            status, detail = await server.refused(method, path)
            assert status == 404
            assert detail.startswith(f"Unknown path: this server has no '{path[:200]}")
            assert detail.endswith(f"Did you mean {near}?" if near else "/docs lists the paths.")
            assert len(detail) < 300


async def test_either_slash_reaches_the_same_route() -> None:
    """Also with a body, and a missing thing is still named as one."""
    async with routed() as server:
        for path in ("/v1/blocks", "/v1/blocks/"):
            assert (await server.post(path, {"label": "a", "value": "b"}))["label"] == "a"
        status, detail = await server.refused("GET", f"/v1/agents/{AGENT}/")
        assert (status, detail) == (404, f"Agent with ID {AGENT} not found")
