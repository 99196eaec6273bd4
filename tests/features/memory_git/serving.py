"""A served store with an agent, and pushes to its memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.library.agent import AsyncAgent
from perdure.server.config import ServerConfig
from perdure.testing import ScriptedModel
from tests.support.git_folders import GitFolder, clone
from tests.support.servers import listening, open_library


@dataclass(slots=True)
class Served:
    """A served store with an agent, and the address of its memory."""

    perdure: AsyncPerdure
    agent: AsyncAgent
    url: str
    path: Path

    async def clone(self, name: str = "clone") -> GitFolder:
        """A clone of the agent's memory."""
        return await clone(self.url, self.path / name)


async def push(folder: GitFolder) -> str:
    """What git says of a push. Raises: AssertionError: it was refused."""
    return await asyncio.to_thread(folder.git, "push", "origin", "main")


async def refused(folder: GitFolder, *options: str) -> str:
    """What git says of a push that is refused."""
    code, said = await asyncio.to_thread(folder.try_git, "push", *options, "origin", "main")
    assert code, said
    return said


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with (
        open_library(tmp_path, ScriptedModel(), ()) as perdure,
        listening(perdure, ServerConfig(port=0)) as address,
    ):
        agent = await perdure.create_agent("ann", human="Name: Ada")
        yield Served(perdure, agent, f"{address}/v1/git/{agent.id}/state.git", tmp_path)
