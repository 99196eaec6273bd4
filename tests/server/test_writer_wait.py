"""The largest request of every route holds the writer for less than half a second: everybody else who writes waits.

Its time is measured in the long form; the short one counts what SQLite does, on a sample of the routes.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from perdure.server.serving.app import Api
from perdure.storage.stores.sqlite_store import SqliteStore
from tests.server.full_store import fill
from tests.server.largest import operations
from tests.support.servers import MODEL, in_process

FULL = os.environ.get("PERDURE_FAULTS") == "full"

LONGEST_S = 0.5 if FULL else math.inf
"""Of CPU: that of the writer's thread, for one transaction. Only the long form looks at it, on a quiet machine."""

STEP, STEPS_MAX = 1_000, math.inf if FULL else 2_000
"""How much SQLite may do for one request of the short form: thousands of instructions of its virtual machine, which are
as many on any machine."""

SIZE, ITEMS = (4_500_000, 20_000) if FULL else (100_000, 3_000)
"""Of a body: its characters, whose limit is 5 MiB, and what its lists hold together."""

EACH = 1 if FULL else 4
"""The long form asks every route; the short one each of so many, by its name."""

NOT_WRITTEN = {
    "PATCH /v1/conversations/{conversation_id}": 501,
    "POST /v1/conversations/": 501,
    "POST /v1/folders/{folder_id}/upload": 422,
    "POST /v1/conversations/{conversation_id}/cancel": 409,
    "POST /v1/conversations/{conversation_id}/stream": 400,
    "POST /v1/runs/{run_id}/stream": 400,
    "POST /v1/agents/{agent_id}/undo": 404,
    "POST /v1/agents/{agent_id}/proposals/{number}/approve": 404,
    "POST /v1/agents/{agent_id}/proposals/{number}/refuse": 404,
    "POST /v1/agents/{agent_id}/commands/{command_name}/run": 404,
    "POST /v1/agents/{agent_id}/commands/{command_name}/run/async": 404,
    "POST /v1/agents/{agent_id}/skills/enable": 422,
    "PUT /v1/agents/{agent_id}/skills/{skill_name}": 422,
    "POST /v1/agents/{agent_id}/summarize": 409,
    "POST /v1/agents/import": 422,
    "POST /v1/imports": 422,
    "POST /v1/chat/completions": 422,
    "POST /openai/v1/responses": 400,
    "POST /v1/groups/{group_id}/messages/cancel": 409,
    "POST /v1/agents/{agent_id}/memory-sources/revert": 422,
    "POST /v1/agents/{agent_id}/memory-sources/revert-writes": 422,
    "DELETE /v1/agents/{agent_id}/archival-memory/{memory_id}": 404,
    "DELETE /v1/archives/{archive_id}/passages/{passage_id}": 404,
    "POST /v1/plugins/{plugin_name}/enable": 404,
    "POST /v1/plugins/{plugin_name}/disable": 404,
    "DELETE /v1/plugins/{plugin_name}": 404,
    "POST /v1/agents/{agent_id}/companion/wake": 404,
    "PATCH /v1/agents/{agent_id}/messages/{message_id}": 422,
    "PATCH /v1/groups/{group_id}/messages/{message_id}": 404,
    "POST /v1/groups/{group_id}/messages": 501,
    "POST /v1/groups/{group_id}/messages/stream": 501,
    "POST /v1/messages/search": 422,
    "POST /v1/sandbox-config/e2b/default": 501,
    "POST /v1/entities/{entity_id}/merge": 422,
    "POST /v1/entities/{entity_id}/split": 409,
    "POST /v1/agents/{agent_id}/schedule/{scheduled_message_id}/pause": 422,
    "POST /v1/manifests": 422,
    "POST /v1/agents/{agent_id}/snapshots/restore": 422,
    "POST /v1/snapshots/load": 422,
    "DELETE /v1/agents/{agent_id}/snapshots/{number}": 404,
    "DELETE /openai/v1/responses/{response_id}": 404,
}
"""Route -> what it answers here instead, where there is nothing to do, or no field of JSON to fill. Servers of MCP
and of models are not here to ask."""


@pytest.mark.slow
async def test_no_request_holds_the_writer_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a store where everything has as much as it may have: each list at its limit, texts as long as there is
    room. A route is found by the OpenAPI document, so a new one is here by itself; one whose largest request is
    refused needs a line in `full_store`."""
    took: list[float] = []
    steps = 0
    write = SqliteStore._write

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    def watched(self: SqliteStore, *arguments: Any) -> Any:
        began = time.thread_time()
        self._writer.set_progress_handler(count, STEP)
        try:
            return write(self, *arguments)
        finally:
            self._writer.set_progress_handler(None, 0)
            took.append(time.thread_time() - began)

    monkeypatch.setattr(SqliteStore, "_write", watched)
    longest: dict[str, float] = {}
    most: dict[str, int] = {}
    unexpected: dict[str, str] = {}
    async with in_process(tmp_path) as (client, perdure):
        there = await fill(perdure, MODEL)
        app = client._transport.app  # type: ignore[attr-defined]
        assert isinstance(app, Api)
        document = app.openapi()
        largest = there.largest(document, SIZE, ITEMS)
        for operation in [one for one in operations(document) if zlib.crc32(one.name.encode()) % EACH == 0]:
            body = None if operation.body is None else json.dumps(largest.body(operation), ensure_ascii=False).encode()
            headers = {"content-type": "application/json"} if body else {}
            took.clear()
            steps = 0
            answer = await client.request(
                operation.method, there.path(operation), content=body, headers=headers, timeout=60
            )
            longest[operation.name], most[operation.name] = max(took, default=0.0), steps
            as_expected = answer.is_success or answer.status_code == NOT_WRITTEN.get(operation.name)
            if not as_expected and not re.search("/mcp|/providers/", operation.path):
                unexpected[operation.name] = f"{answer.status_code} {answer.text:.200}"

    assert not unexpected, "\n".join(f"{name}: {told}" for name, told in unexpected.items())
    assert len(longest) > 60 / EACH
    assert {name: steps for name, steps in most.items() if steps >= STEPS_MAX} == {}
    assert {name: s for name, s in longest.items() if s >= LONGEST_S} == {}
