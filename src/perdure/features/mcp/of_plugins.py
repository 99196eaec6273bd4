"""MCP servers that plug-ins bring, as the feature `plugins` registers and removes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from perdure.app import App
from perdure.core.errors import NotFound
from perdure.features.mcp.service import AsyncMcp
from perdure.features.mcp.tables import Servers
from perdure.features.mcp.units import why_unused
from perdure.settings import Settings
from perdure.storage.tx import Tx


async def add_server(app: App, plugin: str, name: str, options: Mapping[str, Any]) -> str:
    """Register a server and return its id; its tools are read and approved at first use. Raises: as `AsyncMcp.add`."""
    return (await AsyncMcp(app).add(name, check=False, plugin=plugin, **options)).id


async def remove_servers(app: App, plugin: str) -> int:
    """Remove the servers that a plug-in has registered, with their tools; return how many there were."""
    mcp = AsyncMcp(app)
    ids = [one.id for one in await mcp.list() if one.plugin == plugin]
    for server_id in ids:
        with suppress(NotFound):  # somebody else has removed it meanwhile
            await mcp.remove(server_id)
    return len(ids)


def unused_tools(tx: Tx) -> Collection[str]:
    """Return the names of the tools whose servers are not used."""
    if not isinstance(settings := tx.limits, Settings):
        return ()
    servers = [one for one in tx.of(Servers).list() if why_unused(settings, one)]
    return {tool.local_name for server in servers for tool in tx.of(Servers).tools(server.id)}
