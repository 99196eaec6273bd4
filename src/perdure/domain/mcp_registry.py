"""What the store knows of MCP servers and their tools, as the sessions with them read and update it."""

from __future__ import annotations

import contextlib

from perdure.core.errors import NotFound
from perdure.core.ids import Ids, McpServerId, ToolId
from perdure.core.mcp import McpServer, McpTool, ServerSecrets, ToolListing
from perdure.core.ports import Clock
from perdure.core.secrets import Cipher
from perdure.domain.mcp import is_current, sync_tools
from perdure.domain.secrets import open_server
from perdure.storage.store import Store
from perdure.storage.tx import Tx


class StoredMcpRegistry:
    """`McpRegistry` over a store."""

    def __init__(self, store: Store, cipher: Cipher, *, clock: Clock, ids: Ids) -> None:
        self._store, self._cipher, self._clock, self._ids = store, cipher, clock, ids

    async def get_server(self, server_id: McpServerId) -> McpServer:
        return await self._store.read(lambda tx: tx.mcp.get(server_id))

    async def open_secrets(self, server: McpServer) -> ServerSecrets:
        return await self._store.read(open_server, server, cipher=self._cipher)

    async def get_tool(self, tool_id: ToolId) -> McpTool:
        return await self._store.read(_get_tool, tool_id)

    async def omission_reason(self, tool: McpTool) -> str:
        return await self._store.read(_omission_reason, tool)

    async def store_listing(self, server_id: McpServerId, listing: ToolListing) -> None:
        if not await self._store.read(is_current, server_id, listing):
            await self._store.write(sync_tools, server_id, listing, ids=self._ids, at=self._clock.now())

    async def store_failure(self, server_id: McpServerId, reason: str) -> None:
        at = self._clock.now()
        with contextlib.suppress(NotFound):  # the server was removed meanwhile
            await self._store.write(lambda tx: tx.mcp.read(server_id, failure=reason, at=at))


def _get_tool(tx: Tx, tool_id: ToolId) -> McpTool:
    tool = tx.mcp.find_tool(tool_id)
    if tool is None:
        raise NotFound("MCP tool", tool_id, hint="its server was removed")
    return tool


def _omission_reason(tx: Tx, tool: McpTool) -> str:
    omitted = tx.mcp.get(tool.server_id).left_out
    return next((entry.reason for entry in omitted if entry.name == tool.name), "")
