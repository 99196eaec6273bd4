"""How many statements one transaction runs hardly grows with the number of things: other writers wait for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.core.ids import ToolId
from perdure.library.agent import AsyncAgent
from perdure.library.agents.agents import AgentAttachments
from perdure.storage.stores.sqlite import SqliteDatabase
from perdure.storage.stores.sqlite_store import SqliteStore
from tests.support.library import open_async

FEW, MANY = 5, 25
PER_THING = 2.5
"""Of one message with two blocks, a tool, a passage, an archive and a folder, each transaction may run so many more."""


async def clone(agent: AsyncAgent, perdure: AsyncPerdure) -> None:
    """Make another agent of it."""
    await agent.snapshots.clone("copy")


async def restore(agent: AsyncAgent, perdure: AsyncPerdure) -> None:
    """Bring it back to what it was with other tools."""
    kept = await agent.snapshots.make()
    await take_tools(agent, perdure)
    await agent.snapshots.restore(kept.number)


async def take_tools(agent: AsyncAgent, perdure: AsyncPerdure) -> None:
    """Take all tools from it."""
    await agent.edit({}, belongings=AgentAttachments(tool_ids=[]))


async def give_tools(agent: AsyncAgent, perdure: AsyncPerdure) -> None:
    """Give another agent its tools, blocks and folders."""
    other = await perdure.create_agent("other")
    found = await agent.state()
    tools = [ToolId(tool.id) for tool in await agent.tools.list()]
    blocks = [block.id for block in found.blocks if block.label.startswith("b")]
    await other.edit({}, belongings=AgentAttachments(tool_ids=tools, block_ids=blocks))


KINDS: dict[str, Callable[[AsyncAgent, AsyncPerdure], Awaitable[None]]] = {
    "clone": clone,
    "restore": restore,
    "take tools": take_tools,
    "give things": give_tools,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_many_things_take_few_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    few, many = [await most_statements(tmp_path / f"{count}.db", monkeypatch, kind, count) for count in (FEW, MANY)]

    assert (many - few) / (MANY - FEW) <= PER_THING


async def most_statements(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, count: int) -> int:
    """The most statements of one transaction, where the agent has so many of each thing."""
    statements, most = 0, 0

    def counted(name: str) -> Callable[..., Any]:
        """A method of the database that counts its calls."""
        before: Callable[..., Any] = getattr(SqliteDatabase, name)

        def count_one(self: SqliteDatabase, *arguments: Any) -> Any:
            nonlocal statements
            statements += not self.read_only
            return before(self, *arguments)

        return count_one

    write = SqliteStore._write

    def watched(self: SqliteStore, *arguments: Any) -> Any:
        """Write, and keep how many statements that takes if they are the most."""
        nonlocal statements, most
        statements = 0
        try:
            return write(self, *arguments)
        finally:
            most = max(most, statements)

    async with await open_async(path) as perdure:
        agent = await fill(perdure, count)
        with monkeypatch.context() as patches:
            for name in ("rows", "run", "run_counted", "run_many"):
                patches.setattr(SqliteDatabase, name, counted(name))
            patches.setattr(SqliteStore, "_write", watched)
            await KINDS[kind](agent, perdure)
    return most


async def fill(perdure: AsyncPerdure, count: int) -> AsyncAgent:
    """An agent with so many messages, blocks, tools, passages, archives and folders."""
    tools = [(await perdure.tools.create(f"def tool_{one}():\n    'Do it.'\n")).name for one in range(count)]
    agent = await perdure.create_agent("ann", tools=tools)
    other = await perdure.create_agent("ben")
    for number in range(count):
        await agent.blocks.create(f"a{number}", "mine")
        shared = await perdure.blocks.create(f"b{number}", "ours")
        await agent.blocks.attach(shared.id)
        await other.blocks.attach(shared.id)
        await agent.archive(f"passage {number}")
        await (await perdure.archives.create(f"archive {number}")).attach_to(agent.id)
        await agent.files.attach((await perdure.folders.create(f"folder {number}")).id)
        await agent.send(f"message {number}")
    return agent
