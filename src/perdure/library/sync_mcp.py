"""MCP servers with plain calls; every method is the asynchronous one's of `library.mcp`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.mcp import McpServer, McpTool, ToolListing, Transport
from perdure.core.tools.spec import ToolOutcome
from perdure.domain.mcp import Synced
from perdure.library.mcp import AsyncMcp, McpState
from perdure.library.portal import Portal

__all__ = ["Mcp"]


class Mcp:
    """The MCP servers of the store; see `AsyncMcp`."""

    def __init__(self, portal: Portal, inner: AsyncMcp) -> None:
        self._portal, self._inner = portal, inner

    def add(
        self,
        name: str,
        *,
        url: str = "",
        command: str = "",
        args: Sequence[str] = (),
        transport: Transport | None = None,
        token: str | None = None,
        auth_header: str | None = None,
        headers: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        trusted: bool = False,
        private: bool | None = None,
        check: bool = True,
    ) -> McpServer:
        """Register a server, which approves the tools that it lists now."""
        return self._portal.run(
            self._inner.add(
                name,
                url=url,
                command=command,
                args=args,
                transport=transport,
                token=token,
                auth_header=auth_header,
                headers=headers,
                environment=environment,
                trusted=trusted,
                private=private,
                check=check,
            )
        )

    def look(self, **how: Any) -> ToolListing:
        """What a server says of its tools, without registering it."""
        return self._portal.run(self._inner.look(**how))

    def list(self) -> Sequence[McpServer]:
        """In order of creation."""
        return self._portal.run(self._inner.list())

    def get(self, name: str) -> McpState:
        """A server and its tools."""
        return self._portal.run(self._inner.get(name))

    def tools(self, name: str) -> Sequence[McpTool]:
        """What is known of a server's tools: approved and seen."""
        return self._portal.run(self._inner.tools(name))

    def refresh(self, name: str) -> Synced:
        """Connect anew and read a server's tools."""
        return self._portal.run(self._inner.refresh(name))

    def approve(
        self, name: str, tools: Sequence[str] | None = None, *, expected: Mapping[str, str] | None = None
    ) -> Synced:
        """Have agents see what the server says now."""
        return self._portal.run(self._inner.approve(name, tools, expected=expected))

    def update(self, name: str, /, **changes: Any) -> McpServer:
        """The server as changed."""
        return self._portal.run(self._inner.update(name, **changes))

    def remove(self, name: str) -> None:
        """Remove a server with its tools."""
        self._portal.run(self._inner.remove(name))

    def run(self, name: str, tool: str, arguments: Mapping[str, Any] | None = None) -> ToolOutcome:
        """What came of a call of a tool, to try it out."""
        return self._portal.run(self._inner.run(name, tool, arguments))
