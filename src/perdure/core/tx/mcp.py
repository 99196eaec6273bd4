"""`tx.mcp`: the verbs of MCP servers and of what they offer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from perdure.core.ids import McpServerId, ToolId
from perdure.core.mcp import LeftOut, McpServer, McpTool

__all__ = ["Mcp"]


class Mcp(Protocol):
    def add(self, server: McpServer) -> McpServer:
        """A new server. Raises: AlreadyExists: its name, or its id."""
        ...

    def put(self, server: McpServer) -> McpServer:
        """Change it; when it was read, and why not, stay. Raises: NotFound; AlreadyExists: another one's name."""
        ...

    def read(self, server_id: McpServerId, *, failure: str, at: datetime, left_out: Sequence[LeftOut] = ()) -> None:
        """Note that its tools were read, and what was left out of them; or why they were not read, which leaves that
        as it was. Raises: NotFound."""
        ...

    def get(self, server_id: McpServerId) -> McpServer:
        """Raises: NotFound."""
        ...

    def find_by_name(self, name: str) -> McpServer | None: ...

    def list(self, *, limit: int = 1_000) -> Sequence[McpServer]:
        """In order of creation."""
        ...

    def delete(self, server_id: McpServerId) -> None:
        """With the rows of its tools, but not the tools that agents have. Raises: NotFound."""
        ...

    def put_tool(self, tool: McpTool) -> None:
        """Create or change what is known of one tool of a server. Raises: NotFound: no such server."""
        ...

    def delete_tool(self, server_id: McpServerId, name: str) -> None:
        """Raises: NotFound."""
        ...

    def tools(self, server_id: McpServerId) -> Sequence[McpTool]:
        """What is known of a server's tools, by name. Raises: NotFound."""
        ...

    def find_tool(self, tool_id: ToolId) -> McpTool | None:
        """The tool of a server that this tool of an agent stands for."""
        ...
