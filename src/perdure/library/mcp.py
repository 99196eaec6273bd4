"""MCP servers: registered, looked at, approved, removed. A program that registers one acts as the admin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from perdure.core.errors import InvalidInput
from perdure.core.ids import McpServerId
from perdure.core.mcp import McpServer, McpTool, ToolListing
from perdure.core.tools.spec import ToolOutcome
from perdure.domain.mcp import McpChanges, ServerOptions, ToolsByStatus
from perdure.library.services import Services
from perdure.library.services.tools.mcp import McpState


class AsyncMcp:
    """The MCP servers of the store. A server is named by its name or id."""

    def __init__(self, services: Services) -> None:
        self._service = services.mcp

    async def add(self, name: str, *, check: bool = True, **options: Unpack[ServerOptions]) -> McpServer:
        """Register a server and approve the tools that it lists now.

        Args:
            name: begins the names of its tools, as in `name__tool`.
            check: whether the server has to answer now. If not, its tools are read and approved when it first answers.
            options: `url`: its address; or `command` and `args`: the program to run on this machine.
                `transport`: by default `stdio` for a command, else `streamable_http`; `sse` is for older servers.
                `token`: sent as `Authorization: Bearer ...`, or in the header `auth_header` as it is.
                `headers`: further headers. `environment`: the variables of the program, beside PATH, HOME and the like.
                Like the token they are stored encrypted; `secret:NAME` is a secret of the organisation.
                `trusted`: tools that it offers later need no approval, and its hints on what a tool does are believed.
                `private`: whether the url may lead to this machine or a private network; by default, if it does now.
        Raises: InvalidInput, AlreadyExists, McpUnreachable, ExtraMissing, SecretKeyMissing; NotFound: a secret.
        """
        return await self._service.add(name, check=check, **options)

    async def look(self, **options: Unpack[ServerOptions]) -> ToolListing:
        """The tools that a server lists, without registering it.

        Args:
            options: `url`, or `command` and `args`; `transport`, `token`, `auth_header`, `headers`, `environment`,
                `trusted`, `private`: as in `add`.
        Raises: InvalidInput, McpUnreachable, ExtraMissing, SecretKeyMissing; NotFound: a secret.
        """
        return await self._service.look(**options)

    async def list(self) -> Sequence[McpServer]:
        """The servers, in order of creation."""
        return await self._service.list()

    async def get(self, name: str) -> McpState:
        """A server and its tools. Raises: NotFound, naming what there is."""
        return await self._service.resolve(name)

    async def tools(self, name: str) -> Sequence[McpTool]:
        """A server's tools, approved or offered, by their names there. Raises: NotFound."""
        return (await self.get(name)).tools

    async def refresh(self, name: str) -> ToolsByStatus:
        """Connect anew and read a server's tools. A new one waits for approval, unless the server is trusted.

        Raises: NotFound, McpUnreachable, ExtraMissing, SecretKeyMissing, SecretUnreadable.
        """
        return await self._service.refresh(await self._id(name))

    async def approve(
        self, name: str, tools: Sequence[str] | None = None, *, expected: Mapping[str, str] | None = None
    ) -> ToolsByStatus:
        """Have agents see the present definitions of these tools, or of all. Missing tools are removed, removed ones
        come back.

        Args:
            tools: the server's names of them, or those that agents use.
            expected: name there -> digest of the definition that was looked at; it must still be the one.
        Raises: NotFound, Conflict; InvalidInput: one of them is unusable.
        """
        return await self._service.approve(await self._id(name), tools, expected=expected)

    async def update(self, name: str, /, **changes: Any) -> McpServer:
        """Change `name`, `command`, `args`, `url`, `auth_header`, `token`, `headers`, `environment`, `trusted` or
        `private` of a server and return it. Its tools keep their names; the next call connects anew. Without `private`,
        a new url decides it.

        Raises: NotFound, InvalidInput, AlreadyExists, SecretKeyMissing.
        """
        if unknown := changes.keys() - McpChanges.__slots__:
            raise InvalidInput(f"an MCP server has no field {', '.join(sorted(unknown))} to change")
        return await self._service.update(await self._id(name), McpChanges(**changes))

    async def remove(self, name: str) -> None:
        """Remove a server with its tools, which agents then have no more. Raises: NotFound."""
        await self._service.remove(await self._id(name))

    async def run(self, name: str, tool: str, arguments: Mapping[str, Any] | None = None) -> ToolOutcome:
        """Call a tool of a server, to try it out. Raises: NotFound: no such server, or no such tool here."""
        return await self._service.run(await self._id(name), tool, arguments or {})

    async def _id(self, name: str) -> McpServerId:
        return (await self._service.resolve(name)).server.id
