"""The largest request of every route holds the writer for less than half a second: everybody else who writes waits."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from perdure.server.app import Api
from perdure.storage.database.sqlite_store import SqliteStore
from tests.server.full_store import fill
from tests.server.largest import operations
from tests.support.servers import MODEL, in_process

LONGEST_S = 0.5
"""Of CPU: that of the writer's thread, for one transaction. Other work of the machine does not count."""

SIZE, ITEMS = (4_500_000, 20_000) if os.environ.get("PERDURE_FAULTS") == "full" else (100_000, 3_000)
"""Of a body: its characters, whose limit is 5 MiB, and what its lists hold together."""

NOT_WRITTEN = {
    "PATCH /v1/conversations/{conversation_id}": 501,
    "POST /v1/conversations/": 501,
    "POST /v1/folders/{folder_id}/upload": 422,
    "POST /v1/conversations/{conversation_id}/cancel": 409,
    "POST /v1/conversations/{conversation_id}/stream": 400,
    "POST /v1/runs/{run_id}/stream": 400,
    "POST /v1/agents/{agent_id}/undo": 404,
    "POST /v1/messages/search": 422,
    "POST /v1/sandbox-config/e2b/default": 501,
}
"""Route -> what it answers here instead, where there is nothing to do, or no field of JSON to fill. Servers of MCP
and of models are not here to ask."""


async def test_no_request_holds_the_writer_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a store where everything has as much as it may have: each list at its limit, texts as long as there is
    room. A route is found by the OpenAPI document, so a new one is here by itself; one whose largest request is
    refused needs a line in `full_store`."""
    took: list[float] = []
    write = SqliteStore._write

    def watched(self: SqliteStore, *arguments: Any) -> Any:
        began = time.thread_time()
        try:
            return write(self, *arguments)
        finally:
            took.append(time.thread_time() - began)

    monkeypatch.setattr(SqliteStore, "_write", watched)
    longest: dict[str, float] = {}
    unexpected: dict[str, str] = {}
    async with in_process(tmp_path) as (client, perdure):
        there = await fill(perdure, MODEL)
        app = client._transport.app  # type: ignore[attr-defined]
        assert isinstance(app, Api)
        document = app.openapi()
        largest = there.largest(document, SIZE, ITEMS)
        for operation in operations(document):
            body = None if operation.body is None else json.dumps(largest.body(operation), ensure_ascii=False).encode()
            headers = {"content-type": "application/json"} if body else {}
            took.clear()
            answer = await client.request(
                operation.method, there.path(operation), content=body, headers=headers, timeout=60
            )
            longest[operation.name] = max(took, default=0.0)
            as_expected = answer.is_success or answer.status_code == NOT_WRITTEN.get(operation.name)
            if not as_expected and not re.search("/mcp|/providers/", operation.path):
                unexpected[operation.name] = f"{answer.status_code} {answer.text:.200}"

    assert not unexpected, "\n".join(f"{name}: {told}" for name, told in unexpected.items())
    assert len(longest) > 60
    assert {name: s for name, s in longest.items() if s >= LONGEST_S} == {}
