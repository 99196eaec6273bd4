"""MCP servers on the wire. A reply never has the values of secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from perdure.core.errors import InvalidInput
from perdure.core.mcp import SERVER_NAME_PATTERN, Definition, LeftOut, McpServer, McpTool
from perdure.domain.mcp import ServerOptions, ToolsByStatus
from perdure.server.limits import Items, ItemsByName
from perdure.server.wire.base import WireRequest
from perdure.server.wire.secrets import MASKED
from perdure.server.wire.values import JsonObject, keywords

Kind = Literal["stdio", "sse", "streamable_http"]


class ReachedIn(WireRequest):
    """How a server is reached, as all routes have it."""

    command: str | None = None
    args: Items[str] | None = None
    env: ItemsByName[str] | None = None
    server_url: str | None = None
    auth_header: str | None = None
    auth_token: str | None = None
    custom_headers: ItemsByName[str] | None = None


class McpConfigIn(ReachedIn):
    """How a server is reached; in a change, a field that is missing or null stays."""

    mcp_server_type: Kind | None = None

    @property
    def kind(self) -> Kind:
        return self.mcp_server_type or ("stdio" if self.command is not None else "streamable_http")


class McpServerIn(WireRequest):
    """A server to register."""

    server_name: Annotated[str, keywords(pattern=SERVER_NAME_PATTERN)]
    config: McpConfigIn

    def options(self) -> ServerOptions:
        """How the server is reached."""
        config = self.config
        return {
            "transport": config.kind,
            "command": config.command or "",
            "args": tuple(config.args or ()),
            "environment": config.env or {},
            "url": config.server_url or "",
            "auth_header": config.auth_header or None,
            "token": config.auth_token or None,
            "headers": config.custom_headers or {},
        }


class McpServerChangesIn(WireRequest):
    """Changes of a server."""

    server_name: str | None = None
    config: McpConfigIn = McpConfigIn()

    def changes(self, server: McpServer) -> dict[str, Any]:
        """The fields of `McpChanges` that are set. Raises: InvalidInput: another kind of server."""
        config = self.config
        if config.mcp_server_type not in (None, server.transport):
            raise InvalidInput(
                f"MCP server {server.name!r} is of the type {server.transport}, which stays: register another one"
            )
        fields = {
            "name": self.server_name,
            "command": config.command,
            "args": None if config.args is None else tuple(config.args),
            "environment": config.env,
            "url": config.server_url,
            "auth_header": config.auth_header,
            "token": config.auth_token,
            "headers": config.custom_headers,
        }
        return {name: value for name, value in fields.items() if value is not None}


class McpToolRunIn(WireRequest):
    """The arguments of a call."""

    args: JsonObject = Field(default_factory=dict)


class McpApproveIn(WireRequest):
    """The tools to approve, by their names at the server; null is all. `expected`: name -> digest of the definition
    that the client reviewed."""

    tools: Items[str] | None = None
    expected: ItemsByName[str] | None = None


def server_shape(server: McpServer) -> dict[str, Any]:
    """The server with the fields of its type. Secret headers and variables have their names, and empty values."""
    shape: dict[str, Any] = {"id": server.id, "server_name": server.name, "mcp_server_type": server.transport}
    if server.transport == "stdio":
        return shape | {
            "command": server.command,
            "args": list(server.args),
            "env": dict.fromkeys(server.variable_names, MASKED),
        }
    return shape | {
        "server_url": server.url,
        "auth_header": server.auth_header,
        "auth_token": None if server.auth_header is None else MASKED,
        "custom_headers": dict.fromkeys(server.header_names, MASKED),
    }


def known_tool_shape(tool: McpTool) -> dict[str, Any]:
    """A tool of a server, with its approved and its present definition. Perdure's own."""
    return {
        "name": tool.name,
        "tool_name": tool.local_name,
        "tool_id": tool.tool_id,
        "status": tool.status,
        "problem": tool.problem or None,
        "approved": _definition_shape(tool.pinned),
        "offered": _definition_shape(tool.seen),
    }


def left_out_shape(one: LeftOut) -> dict[str, Any]:
    """An entry of a server's listing that is no tool, in the shape of those that are."""
    empty = dict.fromkeys(("tool_name", "tool_id", "approved", "offered"))
    return {"name": one.name, "status": "left_out", "problem": one.reason, **empty}


def tools_by_status_shape(tools: ToolsByStatus) -> Mapping[str, Any]:
    """A server's tools by status, and the entries of its listing that are no tools."""
    lists = {name: list(getattr(tools, name)) for name in _STATUSES}
    return lists | {"left_out": [{"name": one.name, "reason": one.reason} for one in tools.left_out]}


_STATUSES = ("active", "pending", "changed", "missing", "removed", "unusable", "added")


def _definition_shape(definition: Definition | None) -> dict[str, Any] | None:
    if definition is None:
        return None
    return {
        "description": definition.description,
        "input_schema": dict(definition.parameters),
        "annotations": dict(definition.annotations),
        "digest": definition.digest,
    }
