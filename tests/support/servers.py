"""Servers for tests: one in this process without a network, and a real one for the official client."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from letta_client import AsyncLetta

from perdure import AsyncPerdure, Model
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.server.serving.serve import serve
from perdure.settings import Settings
from perdure.testing import ScriptedModel
from perdure.ui.pages.routes import build_routes, refused_page
from tests.server.documented import documented

MODEL = "test/scripted"
BASE = "http://127.0.0.1:8283"

Tools = Sequence[Callable[..., Any]]


@contextlib.asynccontextmanager
async def open_library(path: Path, model: Model, tools: Tools) -> AsyncIterator[AsyncPerdure]:
    """A store in this folder, with one model."""
    settings = replace(Settings(), model=MODEL)
    perdure = await AsyncPerdure.open(path / "p.db", models={MODEL: model}, tools=tools, settings=settings)
    async with perdure:
        yield perdure


@contextlib.asynccontextmanager
async def in_process(
    path: Path, *script: Any, model: Model | None = None, tools: Tools = (), config: ServerConfig | None = None
) -> AsyncIterator[tuple[httpx.AsyncClient, AsyncPerdure]]:
    """A client of the application itself; it sees an answer when it is complete."""
    async with open_library(path, model or ScriptedModel(*script), tools) as perdure:
        app = create_app(perdure, config or ServerConfig())
        hooks = {"response": [documented(app, has_key=bool(config and config.api_key))]}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=BASE, event_hooks=hooks) as client:
            yield client, perdure


@contextlib.asynccontextmanager
async def served(
    path: Path, *script: Any, model: Model | None = None, tools: Tools = (), config: ServerConfig | None = None
) -> AsyncIterator[tuple[str, AsyncPerdure]]:
    """The address of a server that listens on a free port, in a task of this loop."""
    async with (
        open_library(path, model or ScriptedModel(*script), tools) as perdure,
        listening(perdure, config or ServerConfig(port=0)) as address,
    ):
        yield address, perdure


@contextlib.asynccontextmanager
async def listening(perdure: AsyncPerdure, config: ServerConfig) -> AsyncIterator[str]:
    """The address of a server of this open store, in a task of this loop."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    work = serve(perdure, config, pages=build_routes(), refused_page=refused_page, on_ready=ready.set_result)
    task = asyncio.create_task(work)
    try:
        async with asyncio.timeout(10):
            waited: list[asyncio.Future[Any]] = [task, ready]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        yield ready.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


@contextlib.asynccontextmanager
async def letta(address: str, **options: Any) -> AsyncIterator[AsyncLetta]:
    """The official client; it does not try again by itself."""
    async with AsyncLetta(base_url=address, max_retries=0, **options) as client:
        yield client


def chunks_of(text: str) -> list[tuple[str | None, Mapping[str, Any] | str]]:
    """(event name, data) of an event stream, in order; the end marker as text."""
    found: list[tuple[str | None, Mapping[str, Any] | str]] = []
    for block in filter(None, text.split("\n\n")):
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        data = lines["data"]
        found.append((lines.get("event"), data if data == "[DONE]" else json.loads(data)))
    return found
