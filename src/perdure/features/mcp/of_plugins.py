"""MCP servers that plug-ins bring, as the feature `plugins` registers and removes them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from perdure.app import App
from perdure.core.errors import NotFound
from perdure.features.mcp.service import AsyncMcp


async def add_server(app: App, name: str, options: Mapping[str, Any]) -> str:
    """Register a server without connecting to it; its tools are read, and approved, at its first use. Return its id.
    Raises: as `AsyncMcp.add`."""
    return (await AsyncMcp(app).add(name, check=False, **options)).id


async def remove_server(app: App, server_id: str) -> None:
    """Remove a server with its tools, if it is still there."""
    with suppress(NotFound):
        await AsyncMcp(app).remove(server_id)
