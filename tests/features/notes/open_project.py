"""Writes a note to a project's memory in a process of its own: STORE PROJECT TITLE."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from perdure.features.notes.projects import ProjectMemory
from tests.support.library import open_async


async def main(store: str, project: str, title: str) -> None:
    """Do it once somebody has sent a line; print the agent's id."""
    async with await open_async(Path(store)) as perdure:
        print("ready", flush=True)
        sys.stdin.readline()
        agent = await ProjectMemory(perdure, project).open()
        await agent.notes.add("doc", title, {"text": "x"})
        print(agent.id)


asyncio.run(main(*sys.argv[1:]))
