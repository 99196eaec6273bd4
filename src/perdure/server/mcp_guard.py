"""The MCP servers that clients of the API may register.

Programs of this machine and private addresses need a setting. The library and the CLI belong to the admin, so they have
no such check.
"""

from __future__ import annotations

from perdure.core.errors import McpPrivateRefused, McpStdioRefused
from perdure.core.mcp import McpServer
from perdure.domain.mcp import McpChanges, ServerOptions
from perdure.library.perdure import AsyncPerdure
from perdure.server.config import ServerConfig
from perdure.server.wire.mcp import McpServerChangesIn, McpServerIn


class McpGuard:
    """Checks a client's MCP server, and returns its fields as the library takes them.

    Args:
        config: if the setting is empty, private addresses are allowed when only this machine reaches the server, that
            is, without an API key and without further allowed hosts.
    """

    def __init__(self, library: AsyncPerdure, config: ServerConfig) -> None:
        settings = library.app.settings
        self._library = library
        self._allows_programs = settings.mcp_stdio == "on"
        is_local_only = not config.api_key and not config.allowed_hosts
        self._allows_private = settings.mcp_private == "on" or (not settings.mcp_private and is_local_only)

    async def new(self, body: McpServerIn) -> ServerOptions:
        """The options of the server, without its name. Raises: McpStdioRefused, McpPrivateRefused."""
        if body.config.kind == "stdio":
            self._check_program()
        options = body.options()
        options["private"] = await self._private(options["url"])
        return options

    async def changed(self, body: McpServerChangesIn, server: McpServer) -> McpChanges:
        """The changes of the server. An unchanged address is not checked again.

        Raises: McpStdioRefused, McpPrivateRefused; InvalidInput: another kind of server.
        """
        if server.transport == "stdio":
            self._check_program()
        changes = body.changes(server)
        url = changes.get("url", "")
        return McpChanges(**changes, private=None if url == server.url else await self._private(url))

    def _check_program(self) -> None:
        if not self._allows_programs:
            raise McpStdioRefused

    async def _private(self, url: str) -> bool | None:
        """Whether the address may be private; None: where it leads now decides. Raises: McpPrivateRefused."""
        if self._allows_private or not url:
            return None
        if await self._library.services.mcp.leads_inside(url):
            raise McpPrivateRefused
        return False
