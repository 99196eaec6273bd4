"""The port through which sessions with MCP servers read and store what is known about them."""

from __future__ import annotations

from typing import Protocol

from perdure.core.ids import McpServerId, ToolId
from perdure.core.mcp import McpServer, McpTool, ServerSecrets, ToolListing


class McpRegistry(Protocol):
    """The registered servers and their tools."""

    async def get_server(self, server_id: McpServerId) -> McpServer:
        """The server as it is registered now. Raises: NotFound."""

    async def open_secrets(self, server: McpServer) -> ServerSecrets:
        """The decrypted secrets of a server. Raises: NotFound, SecretKeyMissing, SecretUnreadable."""

    async def get_tool(self, tool_id: ToolId) -> McpTool:
        """The server's tool behind one of ours. Raises: NotFound: its server was removed."""

    async def omission_reason(self, tool: McpTool) -> str:
        """Why the last listing could not use this tool; empty: the server did not list it."""

    async def store_listing(self, server_id: McpServerId, listing: ToolListing) -> None:
        """Store a new listing of a server's tools."""

    async def store_failure(self, server_id: McpServerId, reason: str) -> None:
        """Store why a server could not be reached."""
