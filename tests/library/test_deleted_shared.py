"""What very many agents share is deleted in transactions of a bounded number of rows."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, NotFound
from perdure.core.agents import Agent
from perdure.core.blocks import Author
from perdure.core.errors import StoreFull
from perdure.core.ids import AgentId, McpServerId, ToolId
from perdure.core.specs import Tool, ToolSpec
from perdure.engine.conversations.reset import finish_removals
from perdure.features.files.folder_tables import Folders
from perdure.features.mcp.tables import Servers
from perdure.features.mcp.units import sync_tools
from perdure.features.mcp.values import McpServer, ToolDefinition, ToolListing
from perdure.storage.tx import Tx
from perdure.testing import ScriptedModel
from perdure.testing.clock import START, SequentialIds

MODEL = "test/scripted"
AGENTS = 700
VERSIONS = 1_200
MOST_ROWS = 650
"""Of one transaction: 200 places, the revisions of their agents, and what else a step changes."""
ADA = Author(kind="user", id="ada")


@dataclass
class Shared:
    """A store with many agents, and how many rows each transaction changed."""

    perdure: AsyncPerdure
    agents: list[AgentId]
    rows: list[int] = field(default_factory=list)

    async def write(self, unit: Callable[[Tx], Any]) -> Any:
        return await self.perdure.app.store.write(unit)


@asynccontextmanager
async def many_agents(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shared]:
    perdure = await AsyncPerdure.open(path / "p.db", models={MODEL: ScriptedModel()})
    ids = SequentialIds()

    def add(tx: Tx) -> list[AgentId]:
        return [
            tx.agents.add(
                Agent(
                    id=AgentId(ids.new("agent")),
                    org_id=tx.org_id,
                    name=f"agent {number}",
                    model=MODEL,
                    created_at=START,
                    updated_at=START,
                )
            ).id
            for number in range(AGENTS)
        ]

    try:
        store: Any = perdure.app.store
        shared = Shared(perdure, await store.write(add))
        write, writer = store.write, store._writer

        async def counting(*args: Any, **kwargs: Any) -> Any:
            before = writer.total_changes
            try:
                return await write(*args, **kwargs)
            finally:
                shared.rows.append(writer.total_changes - before)

        monkeypatch.setattr(store, "write", counting)
        yield shared
    finally:
        await perdure.close()


def rows_left(path: Path, tables: str) -> int:
    """How many rows some tables have."""
    connection = sqlite3.connect(path / "p.db")
    count: int = sum(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in tables.split())
    connection.close()
    return count


async def assert_bounded(shared: Shared, deleting: Awaitable[Any]) -> None:
    """No transaction of the delete changes more rows than one step may."""
    shared.rows.clear()
    await deleting

    assert len(shared.rows) > 2
    assert max(shared.rows) <= MOST_ROWS


async def test_a_block_with_many_versions_and_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is gone from all agents at once, and its history behind it."""
    async with many_agents(tmp_path, monkeypatch) as shared:
        block = await shared.perdure.blocks.create("shared", "0")

        def use(tx: Tx) -> None:
            for agent_id in shared.agents:
                tx.blocks.attach(agent_id, block.id)
            now = tx.blocks.get(block.id)
            for number in range(VERSIONS):
                now = tx.blocks.put(now, expected=number, author=ADA, at=START)

        await shared.write(use)
        await assert_bounded(shared, shared.perdure.blocks.delete(block.id))
        with pytest.raises(NotFound):
            await shared.perdure.blocks.get(block.id)
    assert rows_left(tmp_path, "blocks agent_blocks block_versions") == 0


async def revisions(shared: Shared) -> list[int]:
    found: list[int] = await shared.write(lambda tx: [tx.agents.get(one).settings_revision for one in shared.agents])
    return found


async def test_a_tool_that_many_agents_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them has another settings revision: its next request is made without the tool."""
    async with many_agents(tmp_path, monkeypatch) as shared:
        tool = Tool(id=ToolId(SequentialIds().new("tool")), spec=ToolSpec(name="look", description="", parameters={}))

        def use(tx: Tx) -> None:
            tx.tools.add(tool, at=START)
            for agent_id in shared.agents:
                tx.tools.attach(agent_id, "look")

        await shared.write(use)
        before = await revisions(shared)
        await assert_bounded(shared, shared.perdure.tools.delete(tool.id))
        after = await revisions(shared)

        assert after == [revision + 1 for revision in before]
    assert rows_left(tmp_path, "agent_tools") == 0


async def test_a_folder_that_many_agents_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them loses it as if it were detached."""
    async with many_agents(tmp_path, monkeypatch) as shared:
        folder = await shared.perdure.folders.create("docs")

        def use(tx: Tx) -> None:
            for agent_id in shared.agents:
                tx.of(Folders).attach(agent_id, folder.id, opens=False)

        await shared.write(use)
        await assert_bounded(shared, shared.perdure.folders.delete(folder.id))
    assert rows_left(tmp_path, "folders agent_folders archives") == 0


async def test_an_archive_that_many_agents_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken from them in steps too."""
    async with many_agents(tmp_path, monkeypatch) as shared:
        archive = await shared.perdure.archives.create("notes")

        def use(tx: Tx) -> None:
            for agent_id in shared.agents:
                tx.archives.attach(agent_id, archive.id)

        await shared.write(use)
        await assert_bounded(shared, shared.perdure.archives.delete(archive.id))
    assert rows_left(tmp_path, "archives agent_archives") == 0


async def test_a_server_with_many_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tools go some at a time, the server last."""
    async with many_agents(tmp_path, monkeypatch) as shared:
        ids = SequentialIds()
        names = [f"tool_{number}" for number in range(250)]
        definitions = [ToolDefinition(name=name, description="", parameters={}) for name in names]

        def use(tx: Tx) -> None:
            server = tx.of(Servers).add(
                McpServer(
                    id=McpServerId(ids.new("mcp_server")),
                    org_id=tx.org_id,
                    name="many",
                    transport="sse",
                    url="https://many.example",
                    created_at=START,
                    updated_at=START,
                )
            )
            sync_tools(tx, server.id, ToolListing(definitions=definitions), ids=ids, at=START)

        await shared.write(use)
        await assert_bounded(shared, shared.perdure.mcp.remove("many"))
    assert rows_left(tmp_path, "mcp_servers mcp_tools") == 0


async def test_what_a_full_disk_leaves_of_a_block_goes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting it has succeeded; the next process, or this one's next look, removes the rest."""
    async with many_agents(tmp_path, monkeypatch) as shared:
        block = await shared.perdure.blocks.create("shared", "0")

        def use(tx: Tx) -> None:
            for agent_id in shared.agents:
                tx.blocks.attach(agent_id, block.id)

        await shared.write(use)
        store: Any = shared.perdure.app.store
        write, writes = store.write, []

        async def full(*args: Any, **kwargs: Any) -> Any:
            writes.append(args)
            if len(writes) > 1:
                raise StoreFull("no space left")
            return await write(*args, **kwargs)

        with monkeypatch.context() as patched:
            patched.setattr(store, "write", full)
            await shared.perdure.blocks.delete(block.id)
        with pytest.raises(NotFound):
            await shared.perdure.blocks.get(block.id)
        assert rows_left(tmp_path, "agent_blocks") > 0

        await finish_removals(shared.perdure.app.ports)
    assert rows_left(tmp_path, "blocks agent_blocks block_versions") == 0
