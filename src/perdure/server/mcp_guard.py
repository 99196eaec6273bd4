"""Which MCP servers clients of the API may register: programs of this machine, and addresses inside, only where a
setting allows it. The library and the command line are the admin's, and are not asked."""

from __future__ import annotations

from perdure.core.errors import McpPrivateRefused, McpStdioRefused
from perdure.core.mcp import McpServer
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.mcp import McpChanges, ServerOptions
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

    async def new(self, body: McpServerIn) -> ServerOptions:
        """The options of the server, without its name. Raises: McpStdioRefused, McpPrivateRefused."""
        if body.config.kind == "stdio":
            self._check_program()
        options = body.options()
        options["private"] = await self._private(options["url"])
        return options

    async def changed(self, body: McpServerChangesIn, server: McpServer) -> McpChanges:
        """The changes of the server. An address that stays as it is, is not judged again.

        Raises: McpStdioRefused, McpPrivateRefused; InvalidInput: another kind of server.
        """
        if server.transport == "stdio":
            self._check_program()
        changes = body.changes(server)
        url = changes.get("url", "")
        return McpChanges(**changes, private=None if url == server.url else await self._private(url))

    def _check_program(self) -> None:
        if not self._programs:
            raise McpStdioRefused

    async def _private(self, url: str) -> bool | None:
        """Whether the address may lead inside; None: it is settled by where it leads now. Raises: McpPrivateRefused."""
        if self._inside or not url:
            return None
        if await self._library.services.mcp.leads_inside(url):
            raise McpPrivateRefused
        return False
