"""What requests on agents read: by index only, so that their cost does not grow with the number of agents."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator

import pytest

from perdure.testing import InlineStore
from tests.server.routed import MODEL, Routed, new_agent, routed

OF_NO_TABLE = ("SCAN CONSTANT ROW", "SCAN json_each", "SCAN VIRTUAL TABLE")


class StatementLog(InlineStore):
    """A store that keeps the texts of its statements."""

    def __init__(self) -> None:
        super().__init__()
        self.statements: list[str] = []
        self._connection.set_trace_callback(self.statements.append)

    def growing_plans(self) -> list[str]:
        """The steps of plans that read all rows of a table or an organisation, but for a page in an index's order."""
        statements = list(dict.fromkeys(self.statements))
        return [f"{step}: {sql}" for sql in statements for step in _growing_steps(self._connection, sql)]


def _growing_steps(connection: sqlite3.Connection, sql: str) -> Iterator[str]:
    if "/deleted'" in sql:  # what removes deleted rows in the background, beside any request
        return
    if not sql.lstrip().startswith(("SELECT", "UPDATE", "DELETE", "INSERT", "WITH")):
        return
    steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
    is_page = " LIMIT " in sql and not any("TEMP B-TREE" in step for step in steps)
    for step in steps:
        is_whole_table = step.startswith("SCAN ") and not step.startswith(OF_NO_TABLE)
        if (is_whole_table or step.endswith("(org_id=?)")) and not (is_page and "INDEX" in step):
            yield step


async def _create(server: Routed, agent_id: str) -> None:
    await new_agent(server, "another")


async def _retrieve(server: Routed, agent_id: str) -> None:
    await server.get(f"/v1/agents/{agent_id}")


async def _patch(server: Routed, agent_id: str) -> None:
    await server.patch(f"/v1/agents/{agent_id}", {"name": "renamed", "tags": ["new"], "model": MODEL})


async def _list(server: Routed, agent_id: str) -> None:
    await server.get("/v1/agents/", limit=10)
    await server.get("/v1/agents/", limit=10, after=agent_id)
    await server.get("/v1/agents/", limit=10, order="asc", before=agent_id)
    await server.get("/v1/agents/", limit=10, order_by="updated_at")
    await server.get("/v1/agents/", limit=10, order_by="last_run_completion")


@pytest.mark.parametrize("request_agents", [_create, _retrieve, _patch, _list])
async def test_a_request_on_agents_reads_by_index(request_agents: Callable[[Routed, str], Awaitable[None]]) -> None:
    """What a server looks for every few seconds may fall into a slow request, but not each time."""
    plans = [""]
    for _ in range(3):
        store = StatementLog()
        async with routed(store=store) as server:
            agent = await new_agent(server)
            store.statements.clear()
            await request_agents(server, agent["id"])
            plans = store.growing_plans()
        if not plans:
            break

    assert plans == []
