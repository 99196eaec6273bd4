"""No route of the API gives away a secret: each one that the OpenAPI lists is asked, and each answer looked through."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest

from perdure import AsyncPerdure
from perdure.app import start
from perdure.core.secrets import SecretMask
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says
from tests.support.leaking_sandbox import SOURCE, LeakingSandbox

MODEL = "test/scripted"
BASE = "http://127.0.0.1:8283"
CANARIES = {
    "agent": "canary-agent-1b8f/+ 6",
    "organisation": "canary-organisation-92ad?&",
    "tool": 'canary-tool-77c0"\\ e',
    "header": "canary-header-4d1e",
    "variable": "canary-variable-a60b",
    "key": "canary-key-of-secrets-31f9",
    "api": "canary-api-key-58e2",
    "web": "canary-web-search-key-0f4b",
}
MASK = SecretMask({value: name for name, value in CANARIES.items()})
"""Finds them however they are encoded."""


@contextlib.asynccontextmanager
async def serving(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[httpx.AsyncClient, AsyncPerdure, Mapping[str, Any]]]:
    """A server that holds every kind of secret: client, library, and what its OpenAPI says."""
    monkeypatch.setenv("EXA_API_KEY", CANARIES["web"])
    settings = Settings(model=MODEL, embedding="none", secret_key=CANARIES["key"], web_search="exa")
    model = ScriptedModel(calls("leak", text="now"), says("done"))
    app = await start(settings, models={MODEL: model}, store=InlineStore(), sandbox=LeakingSandbox(hidden={"LITERAL"}))
    config = ServerConfig(api_key=CANARIES["api"])
    async with AsyncPerdure(app) as library:
        api = create_app(library, config)
        transport = httpx.ASGITransport(app=api, raise_app_exceptions=False)
        headers = {"authorization": f"Bearer {CANARIES['api']}"}
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as client:
            yield client, library, (await client.get("/openapi.json")).json()


async def filled(client: httpx.AsyncClient, library: AsyncPerdure) -> dict[str, str]:
    """Make one of each thing, and give the ids by the names that paths have for them."""
    await library.secrets.set("SHARED", CANARIES["organisation"])
    environment = {"LITERAL": CANARIES["tool"], "KEY": "secret:SHARED"}
    tool = await post(client, "/v1/tools/", {"source_code": SOURCE, "environment": environment})
    agent = await post(
        client,
        "/v1/agents/",
        {
            "name": "ada",
            "model": MODEL,
            "tools": ["leak"],
            "secrets": {"OWN": CANARIES["agent"]},
            "memory_blocks": [{"label": "human", "value": "Ada"}],
        },
    )
    reply = await post(client, f"/v1/agents/{agent['id']}/messages", {"messages": [{"role": "user", "content": "go"}]})
    runs = (await client.get("/v1/runs/")).json()
    steps = (await client.get(f"/v1/runs/{runs[0]['id']}/steps")).json()
    archive = await post(client, "/v1/archives/", {"name": "a"})
    folder = await post(client, "/v1/folders/", {"name": "f"})
    for config in (
        {"mcp_server_type": "streamable_http", "server_url": "http://127.0.0.1:9/mcp"},
        {"mcp_server_type": "stdio", "command": "/nonexistent"},
    ):
        secret = {"custom_headers": {"X-Key": CANARIES["header"]}} if "server_url" in config else {}
        secret |= {"env": {"X": CANARIES["variable"]}} if "command" in config else {}
        answer = await client.post("/v1/mcp-servers/", json={"server_name": "s", "config": config | secret})
        check("POST", "/v1/mcp-servers/", answer)
    assert reply["messages"]
    blocks = agent["blocks"] or agent["memory"]["blocks"]
    return {
        "agent_id": agent["id"],
        "tool_id": tool["id"],
        "run_id": runs[0]["id"],
        "job_id": runs[0]["id"].replace("run", "job", 1),
        "step_id": steps[0]["id"],
        "archive_id": archive["id"],
        "folder_id": folder["id"],
        "source_id": folder["id"],
        "message_id": reply["messages"][0]["id"],
        "block_id": blocks[0]["id"],
        "block_label": "human",
        "conversation_id": agent["id"],
        "name": "ada",
    }


async def post(client: httpx.AsyncClient, path: str, body: Any) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code < 300, (path, answer.text)
    check("POST", path, answer)
    return answer.json()


def check(method: str, path: str, answer: httpx.Response) -> None:
    """Nothing secret in the answer, nor in its headers."""
    for text in (answer.text, json.dumps(answer.headers.multi_items())):
        assert MASK.text(text) == text, f"{method} {path} answered with a secret: {MASK.text(text)[:2_000]}"


@pytest.mark.slow
@pytest.mark.uses("access", "files", "groups", "mcp", "schedules")
async def test_no_route_gives_a_secret_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read first, then written to with nothing, with what was read, and with what can't be; deleted last."""
    async with serving(monkeypatch) as (client, library, openapi):
        ids = await filled(client, library)
        reached = 0
        for method in ("get", "post", "put", "patch", "delete"):
            for path, operations in openapi["paths"].items():
                if method not in operations:
                    continue
                url = re.sub(r"{(\w+)}", lambda found: ids.get(found[1], f"{found[1][:-3]}-none"), path)
                bodies: list[Any] = [None] if method in ("get", "delete") else [{}, {"environment": 5, "secrets": [5]}]
                for body in bodies:
                    with contextlib.suppress(TimeoutError):  # a stream of what is yet to come
                        async with asyncio.timeout(2):
                            answer = await client.request(method, url, json=body)
                            check(method, path, answer)
                            reached += answer.status_code < 300
                            assert answer.status_code < 500 or answer.status_code == 501, (method, path, answer.text)

        assert reached > 60, "most routes were asked for what is there"


@pytest.mark.slow
@pytest.mark.uses("access", "files", "groups", "mcp", "schedules")
async def test_the_trace_of_a_step_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the request and the answer of the model, with what a tool told of its environment, masked."""
    async with serving(monkeypatch) as (client, library, _):
        ids = await filled(client, library)
        steps = (await client.get(f"/v1/runs/{ids['run_id']}/steps")).json()
        traces = [await client.get(f"/v1/steps/{step['id']}/trace") for step in steps]
        messages = await client.get(f"/v1/agents/{ids['agent_id']}/messages")

    assert len(traces) == 2
    for answer in traces:
        check("GET", "trace", answer)
    check("GET", "messages", messages)
    assert "[secret SHARED]" in messages.text and "[secret OWN]" in messages.text
