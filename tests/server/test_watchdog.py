"""No request holds the server: what it can make the event loop do at once is bounded, on every route."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.server.config import ServerConfig
from perdure.server.serving import openapi
from perdure.server.serving.app import build_document, create_app
from tests.server.bulk import KINDS, Schemas, bodies, json_of, operations, queries
from tests.server.shared_document import own_build
from tests.support.servers import MODEL, in_process
from tests.support.watchdog import Watchdog

LIMIT_S = 0.25
FULL = os.environ.get("PERDURE_FAULTS") == "full"
PARTS, EACH = (24, 24) if FULL else (1, 4)
"""How many tests there are, and which operations each has: one of so many. The short form has a sample."""

BODY_BYTES = 5_000_000
FIELD_BYTES = 500_000
SHORT_BYTES = 20_000  # 20,000 wrong items in twice as many bytes once took 40 s
LARGEST_SHORT_BYTES = 200_000
HEAD_BYTES = 60_000 if FULL else 20_000
SOURCE = (
    'def double(number: int) -> int:\n    """Twice a number.\n\n    Args:\n        number: any\n    """\n    return 2'
)


async def send(app: Any, method: str, path: str, query: bytes, body: bytes) -> int:
    """The status of a request whose body arrives in pieces, as from a network."""
    pieces = [body[start : start + 65_536] for start in range(0, len(body), 65_536)] or [b""]
    status = 0
    ended = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        if not pieces:
            await ended.wait()
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def collect(message: Mapping[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        await asyncio.sleep(0)

    kind, length = (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())
    scope: dict[str, Any] = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"}
    scope |= {"method": method, "path": path, "raw_path": path.encode(), "root_path": "", "query_string": query}
    await app({**scope, "headers": [(b"host", b"localhost"), kind, length]}, receive, collect)
    ended.set()
    return status


async def one_of_each(client: httpx.AsyncClient) -> dict[str, str]:
    """What the parameters of paths may name: an agent that has said something, and one thing of each kind."""

    async def post(path: str, **body: Any) -> Any:
        answer = await client.post(f"/v1/{path}", **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    blocks = [{"label": "human", "value": "x"}]
    agent = (await post("agents/", json={"name": "ann", "model": MODEL, "memory_blocks": blocks}))["id"]
    await post(f"agents/{agent}/messages", json={"input": "hello"})
    block = await post("blocks/", json={"label": "other", "value": "x"})
    folder = (await post("folders/", json={"name": "notes"}))["id"]
    sent = {"files": {"file": ("a.txt", b"Ada wrote notes")}, "headers": {"x-requested-with": "test"}}
    file = await post(f"folders/{folder}/upload", **sent)
    archive = (await post("archives/", json={"name": "facts"}))["id"]
    passage = await post(f"archives/{archive}/passages", json={"text": "Ada wrote notes"})
    memory = (await post(f"agents/{agent}/archival-memory", json={"text": "Ada wrote notes"}))[0]
    tool = await post("tools/", json={"source_code": SOURCE})
    conversation = await post(f"conversations/?agent_id={agent}", json={})
    run = (await client.get("/v1/runs/")).json()[0]["id"]
    step = (await client.get(f"/v1/runs/{run}/steps")).json()[0]
    message = (await client.get(f"/v1/runs/{run}/messages")).json()[0]
    found = {"agent": agent, "folder": folder, "archive": archive, "run": run, "block": block["id"], "file": file["id"]}
    found |= {"passage": passage["id"], "memory": memory["id"], "tool": tool["id"], "conversation": conversation["id"]}
    found |= {"step": step["id"], "message": message["id"]}
    return {f"{name}_id": value for name, value in found.items()} | {"block_label": "human", "tool_name": "double"}


@pytest.mark.slow
@pytest.mark.uses("files")
@pytest.mark.parametrize("part", range(PARTS))
async def test_no_request_holds_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """Every route that the OpenAPI lists, with bodies of each kind in all its fields, and with long queries.

    What is quadratic shows at 20 kB; `PERDURE_FAULTS=full` asks all of them, sends 5 MB, and fills one field after
    the other.
    """
    dog, number = Watchdog(), 0
    slow: list[str] = []
    async with in_process(tmp_path) as (client, _):
        app: Any = client._transport.app  # type: ignore[attr-defined]
        known = await one_of_each(client)

        async def check(what: str, method: str, path: str, *, query: str = "", body: bytes = b"") -> None:
            nonlocal number
            number += 1
            status = await dog.time(number, send(app, method, path, query.encode(), body))
            if dog.longest_s > LIMIT_S:
                slow.append(f"{method} {path}, {what}: {dog.longest_s:.2f} s, answered {status}")

        with dog.watch(monkeypatch):
            document = app.openapi()
            schemas = Schemas(document)
            for method, path, operation in operations(document)[part::EACH]:
                where = re.sub(r"\{(\w+)\}", lambda match: known.get(match[1], "a" * HEAD_BYTES), path)
                for what, query in queries(operation, HEAD_BYTES):
                    await check(what, method, where, query=query)
                fields = {"model": MODEL, **known}
                size, of_one = (BODY_BYTES, FIELD_BYTES) if FULL else (SHORT_BYTES, 0)
                for what, body in bodies(schemas, operation, size, fields, of_one=of_one):
                    await check(what, method, where, body=body)
            for what, make in KINDS.items():
                body = json_of(make(BODY_BYTES if FULL else LARGEST_SHORT_BYTES))
                await check(what, "POST", "/v1/agents/", body=body)

    assert number > 50
    assert not slow, "\n".join(slow)


@pytest.mark.slow
async def test_the_first_document_is_made_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes several turns: whoever asks meanwhile is answered."""
    dog = Watchdog()
    async with in_process(tmp_path) as (_, perdure):
        app = create_app(perdure, ServerConfig())
        build_document.cache_clear()
        monkeypatch.setattr(openapi, "build", own_build)
        with dog.watch(monkeypatch):
            before = time.process_time()
            assert await dog.time(1, send(app, "GET", "/openapi.json", b"", b"")) == 200

        assert dog.longest_s < (time.process_time() - before) / 2
