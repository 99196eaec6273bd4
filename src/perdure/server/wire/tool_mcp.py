"""MCP servers on the older routes under `/v1/tools/mcp/servers`: a name and a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from perdure.core.mcp import SERVER_NAME_PATTERN, Definition, McpServer, McpTool, ToolListing
from perdure.server.limits import Items, ItemsByName
from perdure.server.wire.base import WireRequest
from perdure.server.wire.mcp import McpConfigIn, McpServerChangesIn, McpServerIn, ReachedIn, server_shape
from perdure.server.wire.values import keywords

Kind = Literal["stdio", "sse", "streamable_http"]


class ConfigIn(ReachedIn):
    """A server to register or to try. On these routes a server with a `server_url` and no `type` is `sse`."""

    server_name: Annotated[str, keywords(pattern=SERVER_NAME_PATTERN)]
    type: Kind | None = None

    def server(self) -> McpServerIn:
        """The same for the newer routes."""
        kind = self.type or ("stdio" if self.command is not None else "sse")
        config = McpConfigIn(mcp_server_type=kind, **self.model_dump(exclude={"server_name", "type"}))
        return McpServerIn(server_name=self.server_name, config=config)


class CommandIn(WireRequest):
    """How a `stdio` server is run."""

    command: str | None = None
    args: Items[str] | None = None
    env: ItemsByName[str] | None = None


class ConfigChangesIn(WireRequest):
    """Changes of a server; `token` is the older name of `auth_token`."""

    stdio_config: CommandIn = CommandIn()
    server_url: str | None = None
    auth_header: str | None = None
    auth_token: str | None = None
    token: str | None = None
    custom_headers: ItemsByName[str] | None = None

    def changes(self) -> McpServerChangesIn:
        """The same for the newer routes."""
        fields = self.model_dump(exclude={"stdio_config", "token"})
        fields["auth_token"] = self.auth_token or self.token
        return McpServerChangesIn(config=McpConfigIn(**fields, **self.stdio_config.model_dump()))


def config_shape(server: McpServer) -> dict[str, Any]:
    """The configuration of a server; secret values are empty."""
    shape = server_shape(server)
    return {"server_name": server.name, "type": server.transport} | {
        name: value for name, value in shape.items() if name not in ("id", "server_name", "mcp_server_type")
    }


def offered_shapes(tools: Sequence[McpTool]) -> list[dict[str, Any]]:
    """The tools that a server offers now, by its own names, approved or not."""
    return [_tool_shape(tool.seen, tool.problem) for tool in tools if tool.seen is not None]


def listing_shape(listing: ToolListing) -> list[dict[str, Any]]:
    """The tools that a server offers which is not registered."""
    return [_tool_shape(one, "") for one in listing.definitions]


def _tool_shape(definition: Definition, problem: str) -> dict[str, Any]:
    return {
        "name": definition.name,
        "title": None,
        "description": definition.description,
        "inputSchema": dict(definition.parameters),
        "outputSchema": None,
        "annotations": dict(definition.annotations) or None,
        "_meta": None,
        "health": {"status": "INVALID", "reasons": [problem]} if problem else None,
    }
