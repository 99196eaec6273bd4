"""MCP servers on the wire, on the routes by id and on the older ones by name.

A reply never has the values of secrets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field
from typing_extensions import TypedDict

from perdure.core.errors import InvalidInput
from perdure.features.mcp import values as core
from perdure.features.mcp.units import McpChanges, ServerOptions, ToolsByStatus
from perdure.features.mcp.values import SERVER_NAME_PATTERN, Transport
from perdure.server.wire.base import MASKED, WireRequest, fields, nulls
from perdure.server.wire.fields import Items, ItemsByName, JsonObject, McpServerIdIn, keywords
from perdure.server.wire.shapes import Object, WireShape, computed

ServerName = Annotated[str, keywords(pattern=SERVER_NAME_PATTERN)]

_OPTION_NAMES = {
    "server_name": "name",
    "mcp_server_type": "transport",
    "type": "transport",
    "env": "environment",
    "server_url": "url",
    "auth_token": "token",
    "custom_headers": "headers",
}
"""Field of the wire -> option of the library, where the names differ."""


class CommandIn(WireRequest):
    """How a `stdio` server is started."""

    command: str | None = None
    args: Items[str] | None = None
    env: ItemsByName[str] | None = None


class _AddressIn(WireRequest):
    """How a server with a URL is reached."""

    server_url: str | None = None
    auth_header: str | None = None
    auth_token: str | None = None
    custom_headers: ItemsByName[str] | None = None


class _ConfigIn(CommandIn, _AddressIn):
    """How a server is reached, on all routes."""

    default_transport: ClassVar[Transport] = "streamable_http"

    def new_options(self) -> ServerOptions:
        """The options of a new server; empty texts are as good as missing ones."""
        is_at_mcp = (self.server_url or "").partition("?")[0].rstrip("/").endswith("/mcp")
        default: Transport = "streamable_http" if is_at_mcp else self.default_transport
        default = "stdio" if self.command is not None else default
        options = {name: value for name, value in _options_in(self).items() if value and name != "name"}
        return cast(ServerOptions, {"transport": default} | options)


class McpConfigIn(_ConfigIn):
    """How a server is reached; in a change, a field that is missing or null stays."""

    mcp_server_type: Transport | None = None


class McpServerIn(WireRequest):
    """A server to register."""

    server_name: ServerName
    config: McpConfigIn


class McpServerChangesIn(WireRequest):
    """Changes of a server."""

    server_name: str | None = None
    config: McpConfigIn = McpConfigIn()

    def changes(self, server: core.McpServer) -> McpChanges:
        """The changed fields. Raises: InvalidInput: another kind of server."""
        changes = _options_in(self.config)
        if changes.pop("transport", server.transport) != server.transport:
            raise InvalidInput(
                f"MCP server {server.name!r} is of the type {server.transport}, which stays: register another one"
            )
        return cast(McpChanges, changes if self.server_name is None else changes | {"name": self.server_name})


class NamedServerIn(_ConfigIn):
    """A server to register or try, by name; with a URL and no `type` it is `sse`, at `/mcp` `streamable_http`."""

    server_name: ServerName
    type: Transport | None = None
    default_transport = "sse"


class NamedServerChangesIn(_AddressIn):
    """Changes of a server on the routes by name. `token` is the older name of `auth_token`."""

    stdio_config: CommandIn = CommandIn()
    token: str | None = None

    def changes(self) -> McpChanges:
        """The changed fields."""
        changes = _options_in(self.stdio_config) | _options_in(self) | {"token": self.auth_token or self.token}
        del changes["stdio_config"]
        return cast(McpChanges, changes)


class McpToolRunIn(WireRequest):
    """The arguments of a call."""

    args: JsonObject = Field(default_factory=dict)


class McpApproveIn(WireRequest):
    """The tools to approve, by the server's names; null: all. `expected`: name -> digest of the reviewed definition."""

    tools: Items[str] | None = None
    expected: ItemsByName[str] | None = None


def _options_in(body: WireRequest) -> dict[str, Any]:
    """The fields that are neither missing nor null, by their names in the library."""
    return {_OPTION_NAMES.get(name, name): value for name, value in body.non_null().items()}


McpKind = Literal["stdio", "sse", "streamable_http"]


class _McpEndpoint(WireShape, optional="command args env server_url auth_header auth_token custom_headers"):
    """How Perdure reaches an MCP server: a program to start (`command`, ...) or a URL (`server_url`, ...)."""

    command: str
    args: list[str]
    env: dict[str, str]
    server_url: str
    auth_header: str | None
    auth_token: str | None
    custom_headers: dict[str, str]


class McpServer(_McpEndpoint):
    """A registered MCP server, as the API returns it."""

    id: McpServerIdIn
    server_name: str
    mcp_server_type: McpKind


class McpConfig(_McpEndpoint):
    server_name: str
    type: McpKind


def server_shape(server: core.McpServer) -> McpServer:
    """The server with the fields of its type. Secret headers and variables have their names, and empty values."""
    return McpServer(id=server.id, server_name=server.name, mcp_server_type=server.transport, **_endpoint(server))


def named_server_shape(server: core.McpServer) -> McpConfig:
    """The server on the routes by name."""
    return McpConfig(server_name=server.name, type=server.transport, **_endpoint(server))


def _endpoint(server: core.McpServer) -> Object:
    """How a server is reached: the fields of its type."""
    if server.transport == "stdio":
        environment = dict.fromkeys(server.variable_names, MASKED)
        return {"command": server.command, "args": list(server.args), "env": environment}
    return {
        "server_url": server.shown_url,
        "auth_header": server.auth_header,
        "auth_token": None if server.auth_header is None else MASKED,
        "custom_headers": dict.fromkeys(server.header_names, MASKED),
    }


class _DefinitionShape(
    WireShape, of=core.ToolDefinition, fields="description annotations digest", input_schema="parameters"
):
    """What a server says of a tool, and the digest that an approval names."""


class ToolDefinition(WireShape, of=core.McpTool, fields="name tool_id", tool_name="local_name"):
    """A tool of an MCP server as it is known here: what was approved, and what the server offers now."""

    tool_name: str | None
    status: str
    problem: str | None = computed(lambda tool: tool.problem or None)
    approved: Object | None = computed(lambda tool: tool.pinned and _DefinitionShape.make(tool.pinned))
    offered: Object | None = computed(lambda tool: tool.seen and _DefinitionShape.make(tool.seen))


def left_out_shape(entry: core.InvalidEntry) -> ToolDefinition:
    """Return an invalid entry of a server's listing, in the shape of a tool."""
    others = nulls("tool_name", "tool_id", "approved", "offered")
    return ToolDefinition(name=entry.name, status="left_out", problem=entry.reason, **others)


class Synced(WireShape, of=ToolsByStatus, fields="active pending changed missing removed unusable added"):
    """Names of the server's tools, by how they stand, and the entries of its listing that are no tools."""

    left_out: list[Object] = computed(lambda tools: [fields(entry, "name", "reason") for entry in tools.left_out])


class McpTool(
    WireShape,
    of=core.ToolDefinition,
    fields="name",
    inputSchema="parameters",
    unlisted=nulls("title", "outputSchema", "_meta"),
):
    """A tool in the listing of a server."""

    description: str | None
    health: Object | None


class McpListing(TypedDict):
    status: Literal["success"]
    tools: list[McpTool]


def listing_shape(definitions: Sequence[core.ToolDefinition]) -> list[McpTool]:
    """The tools that a server lists which is not registered."""
    return [_listed_tool_shape(definition, "") for definition in definitions]


def offers_shape(tools: Sequence[core.McpTool]) -> list[McpTool]:
    """The tools that a registered server offers now, by its own names, approved or not."""
    return [_listed_tool_shape(tool.seen, tool.problem) for tool in tools if tool.seen is not None]


def _listed_tool_shape(definition: core.ToolDefinition, problem: str) -> McpTool:
    health = {"status": "INVALID", "reasons": [problem]} if problem else None
    return McpTool.make(definition, health=health, annotations=dict(definition.annotations) or None)
