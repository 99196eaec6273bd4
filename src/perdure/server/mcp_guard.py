"""Which MCP servers clients of the API may register: programs of this machine, and addresses inside, only where a
setting allows it. The library and the command line are the admin's, and are not asked."""

from __future__ import annotations

from typing import Any

from perdure.core.errors import McpPrivateRefused, McpStdioRefused
from perdure.core.mcp import McpServer
from perdure.library.perdure import AsyncPerdure
from perdure.server.config import ServerConfig
from perdure.server.wire.mcp import McpServerChangesIn, McpServerIn

__all__ = ["McpGuard"]


class McpGuard:
    """What a client says of an MCP server, as the library takes it, if the client may say so.

    Args:
        config: where the setting leaves it open, addresses inside are allowed if only this machine reaches the server:
            without an API key, and under no name besides the loopback ones.
    """

    def __init__(self, library: AsyncPerdure, config: ServerConfig) -> None:
        settings = library.app.settings
        self._library = library
        self._programs = settings.mcp_stdio == "on"
        alone = not config.api_key and not config.allowed_hosts
        self._inside = settings.mcp_private == "on" or (not settings.mcp_private and alone)

    async def new(self, body: McpServerIn) -> dict[str, Any]:
        """For `library.mcp.add` and `look`, without the name. Raises: McpStdioRefused, McpPrivateRefused."""
        if body.config.kind == "stdio":
            self._check_program()
        fields = body.fields()
        return fields | await self._place(fields["url"])

    async def changed(self, body: McpServerChangesIn, server: McpServer) -> dict[str, Any]:
        """For `library.mcp.update`. An address that stays as it is, is not judged again.

        Raises: McpStdioRefused, McpPrivateRefused; InvalidInput: another kind of server.
        """
        if server.transport == "stdio":
            self._check_program()
        changes = body.changes(server)
        url = changes.get("url", "")
        return changes | (await self._place(url) if url != server.url else {})

    def _check_program(self) -> None:
        if not self._programs:
            raise McpStdioRefused

    async def _place(self, url: str) -> dict[str, Any]:
        """`private`, where the client may not have it settled by where the address leads now."""
        if self._inside or not url:
            return {}
        try:
            inside = await self._library.app.mcp.leads_inside(url)
        except ValueError:  # no address, which the library refuses with a reason
            inside = False
        if inside:
            raise McpPrivateRefused
        return {"private": False}
