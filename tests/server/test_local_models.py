"""Models of a server on this machine, asked for over HTTP."""

from __future__ import annotations

import socket

import pytest

from tests.providers.fake_provider import fake_provider, set_port
from tests.server.routed import MODEL, new_agent, routed

LISTED = {"/v1/models": {"data": [{"id": "qwen3:latest"}]}}


async def test_a_model_that_nobody_serves_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """404 with those there are and what helps, for a new agent and for one that gets another model."""
    monkeypatch.setenv("PERDURE_PROBE_LOCAL", "1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        set_port(monkeypatch, "ollama", closed.getsockname()[1])
        async with routed() as server:
            agent = await new_agent(server)
            for method, path in (("POST", "/v1/agents/"), ("PATCH", f"/v1/agents/{agent['id']}")):
                status, detail = await server.refused(method, path, {"model": "ollama/whatever"})
                assert status == 404
                assert detail.startswith("NOT_FOUND: Handle ollama/whatever not found, must be one of [")
                assert f"'{MODEL}'" in detail and detail.endswith("start ollama, or set OLLAMA_BASE_URL")
            assert len(await server.get("/v1/agents/")) == 1


async def test_a_model_that_the_server_got_since_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is read again before a model is refused, and shown afterwards."""
    async with fake_provider(LISTED) as provider:
        monkeypatch.setenv("OLLAMA_BASE_URL", provider.url)
        async with routed() as server:
            status, detail = await server.refused("POST", "/v1/agents/", {"model": "ollama/new:1b"})
            assert status == 404 and "'ollama/qwen3:latest'" in detail and "`ollama pull new:1b` gets it" in detail
            provider.answers["/v1/models"] = {"data": [{"id": "new:1b"}]}
            assert (await server.post("/v1/agents/", {"model": "ollama/new:1b"}))["model"] == "ollama/new:1b"
            assert "ollama/new:1b" in [model["handle"] for model in await server.get("/v1/models/")]


async def test_an_agent_keeps_a_model_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown, and changed with everything a client was shown, its model included; only others are refused."""
    async with fake_provider(LISTED) as provider:
        monkeypatch.setenv("OLLAMA_BASE_URL", provider.url)
        async with routed() as server:
            agent = await new_agent(server, model="ollama/qwen3")
            provider.answers["/v1/models"] = {"data": []}
            path = f"/v1/agents/{agent['id']}"
            assert (await server.get(path))["model"] == "ollama/qwen3"
            changed = await server.patch(path, {"model": "ollama/qwen3", "name": "other"})
            assert (changed["name"], changed["model"]) == ("other", "ollama/qwen3")
            assert (await server.refused("PATCH", path, {"model": "ollama/qwen2"}))[0] == 404


async def test_an_address_that_is_down_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gave it wants it, now or later."""
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:9")
    async with routed() as server:
        assert (await new_agent(server, model="ollama/anything"))["model"] == "ollama/anything"
