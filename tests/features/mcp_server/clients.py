"""Clients of the MCP server: the official SDK's, in this process, over stdio and over HTTP."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from perdure import AsyncPerdure
from perdure.features.mcp_server.memory import MemoryOptions, MemoryTools
from perdure.features.mcp_server.server import build_server
from perdure.features.notes.projects import ProjectMemory
from perdure.testing import InlineStore
from tests.support.programs import environment
from tests.support.warm import warm

TOOLS = [
    *("memory_context", "memory_search", "memory_remember", "memory_forget", "memory_edit_block", "memory_list"),
    *("memory_timeline", "memory_entity", "note", "index_output", "search_output", "track"),
]
READING = ["memory_context", "memory_search", "memory_list", "memory_timeline", "memory_entity", "search_output"]


@contextlib.asynccontextmanager
async def opened(perdure: AsyncPerdure, project: Path | None, **options: Any) -> AsyncIterator[Client]:
    """A client of a server in this process; `agent` is its agent, other options are those of `MemoryOptions`."""
    memory = ProjectMemory(perdure, project, agent=options.pop("agent", None))
    async with Client(build_server(MemoryTools(perdure, memory, MemoryOptions(**options)))) as client:
        yield client


@contextlib.asynccontextmanager
async def connected(tmp_path: Path, **options: Any) -> AsyncIterator[Client]:
    """The same over a new store, of a project in `tmp_path / "project"`."""
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    async with await AsyncPerdure.open(store=InlineStore()) as perdure, opened(perdure, project, **options) as client:
        yield client


def over_stdio(home: Path, *arguments: str) -> Client:
    """A client that starts `perdure mcp`."""
    ours = {**environment(home), "HOME": str(home), "PATH": os.environ["PATH"]}
    program = str(warm("perdure", ours))
    return Client(StdioServerParameters(command=program, args=["mcp", *arguments], env=ours))


@contextlib.asynccontextmanager
async def over_http(url: str, key: str = "") -> AsyncIterator[Client]:
    """A client of a server that listens."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http)) as one,
    ):
        yield one


def all_below(folder: Path) -> list[Path]:
    """All files and folders in a folder."""
    return list(folder.rglob("*"))


def files_with(folder: Path, text: str) -> list[Path]:
    """The files below a folder in which a text stands."""
    return [one for one in all_below(folder) if one.is_file() and text.encode() in one.read_bytes()]


async def said(client: Client, tool: str, **arguments: Any) -> str:
    """The answer of a tool, which is no error."""
    result: Any = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return str(result.content[0].text)


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """The error of a tool."""
    result: Any = await client.call_tool(tool, arguments)
    assert result.is_error, result.content[0].text
    return str(result.content[0].text)
