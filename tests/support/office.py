"""Agents that write to one another by tools, in one store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure import AsyncAgent, AsyncPerdure, Message, ModelReply, ModelRequest
from perdure.core.messages import ToolResult
from perdure.core.models import Model
from perdure.core.runs import Run, RunFilter
from perdure.features.groups.tools import ALL_TAGS_TOOL, ASYNC_TOOL, TAGS_TOOL, WAIT_TOOL
from perdure.settings import Settings
from perdure.testing import calls

Agents = dict[str, AsyncAgent]


def office(path: Path, agents: Agents, **models: Model) -> AbstractAsyncContextManager[AsyncPerdure]:
    """A store with an agent for each model, of the model's name and tagged with its first letter."""
    return open_office(path, agents, models)


@asynccontextmanager
async def open_office(
    path: Path, agents: Agents, models: Mapping[str, Model], **changes: Any
) -> AsyncIterator[AsyncPerdure]:
    """The same with other settings."""
    settings = replace(Settings(), **{"embedding": "none", "agent_reply_s": 30.0, **changes})
    named = {f"test/{name}": model for name, model in models.items()}
    async with await AsyncPerdure.open(path / "agents.db", models=named, settings=settings) as perdure:
        for name in models:
            agents[name] = await perdure.create_agent(name, model=f"test/{name}", tags=[name[0]])
            for tool in (WAIT_TOOL, ASYNC_TOOL, TAGS_TOOL, ALL_TAGS_TOOL):
                await agents[name].tools.attach(tool)
        yield perdure


def writes(agents: Agents, tool: str, other: str, message: str = "Hello") -> Callable[[ModelRequest], ModelReply]:
    """An answer that writes to the agent of this name."""
    return lambda request: calls(tool, message=message, other_agent_id=agents[other].id)


def results(messages: Sequence[Message]) -> list[ToolResult]:
    return [result for message in messages for result in message.results]


async def ended_runs(perdure: AsyncPerdure) -> list[Run]:
    """All runs, once none is left to do, oldest first."""
    while True:
        runs = await perdure.app.store.read(lambda tx: tx.runs.page(RunFilter(), limit=100, newest_first=False))
        if all(run.ended for run in runs):
            return list(runs)
        await asyncio.sleep(0.01)
