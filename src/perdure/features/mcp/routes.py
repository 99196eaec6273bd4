"""MCP servers and their tools, by id and on the older routes by name; and which servers clients may register."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable
from typing import Annotated

from fastapi import Depends, Path
from fastapi.responses import StreamingResponse

from perdure.core.errors import McpPrivateRefused, McpStdioRefused, PerdureError
from perdure.core.specs import ToolFilter
from perdure.features.mcp import wire
from perdure.features.mcp.units import McpChanges, ServerOptions
from perdure.features.mcp.values import McpServer, ToolListing
from perdure.library.perdure import AsyncPerdure
from perdure.server.access.gate import ServerGate
from perdure.server.wire.answers import ToolRun
from perdure.server.wire.errors import UNKNOWN
from perdure.server.wire.fields import AgentIdIn, McpServerIdIn, ToolIdIn
from perdure.server.wire.http import Library, Router, json_bytes
from perdure.server.wire.tools import ToolSearchIn, WireTool, WireToolHit, hits_shape, tool_shape

router = Router(tags=["mcp-servers"])
log = logging.getLogger(__name__)

BY_NAME = "/v1/tools/mcp/servers"


class McpGuard:
    """Checks the MCP servers that clients register: programs of this machine and private addresses need a setting."""

    def __init__(self, gate: ServerGate, library: Library) -> None:
        self._allows_private, self._library = gate.allows_private, library

    async def new_options(self, config: wire.McpConfigIn | wire.NamedServerIn) -> ServerOptions:
        """The options of a new server, as the library takes them. Raises: McpStdioRefused, McpPrivateRefused."""
        options = config.new_options()
        self.check_transport(options["transport"])
        options["private"] = await self.private(options.get("url", ""))
        return options

    async def changes(self, changes: McpChanges, server: McpServer) -> McpChanges:
        """The changes of a server, as the library takes them. An unchanged address is not checked again.

        Raises: McpStdioRefused, McpPrivateRefused.
        """
        self.check_transport(server.transport)
        url = changes.get("url", "")
        return {**changes, "private": None if url == server.shown_url else await self.private(url)}

    def check_transport(self, transport: str | None) -> None:
        """Raises: McpStdioRefused: programs of this machine are not allowed."""
        if transport == "stdio" and self._library.app.settings.mcp_stdio != "on":
            raise McpStdioRefused

    async def private(self, url: str) -> bool | None:
        """Whether the address may be private; None: where it leads now decides. Raises: McpPrivateRefused."""
        if self._allows_private or not url:
            return None
        if await self._library.mcp.leads_inside(url):
            raise McpPrivateRefused
        return False


async def _server_by_name(
    mcp_server_name: Annotated[str, Path(description="The server's name.")], library: Library
) -> McpServer:
    """The server that the path names. Raises: NotFound."""
    return await library.mcp.get_by_name(mcp_server_name)


Guard = Annotated[McpGuard, Depends()]
NamedServer = Annotated[McpServer, Depends(_server_by_name)]
ToolName = Annotated[str, Path(description="What the server calls the tool, or what agents do.")]


# --- by id


@router.post("/v1/mcp-servers/")
async def create(body: wire.McpServerIn, library: Library, guard: Guard) -> wire.McpServer:
    """Register a server. Its tools are read now if it can be reached, else at the first use."""
    return wire.server_shape(await library.mcp.add_and_read(body.server_name, **await guard.new_options(body.config)))


@router.get("/v1/mcp-servers/")
async def list_servers(library: Library) -> list[wire.McpServer]:
    """List all servers, in order of creation."""
    return [wire.server_shape(server) for server in await library.mcp.list()]


@router.get("/v1/agents/{agent_id}/mcp-servers")
async def list_of_agent(agent_id: AgentIdIn, library: Library) -> list[wire.McpServer]:
    """List the servers of which the agent has a tool, in order of creation."""
    return [wire.server_shape(server) for server in await library.mcp.list_of_agent(agent_id)]


@router.post("/v1/agents/{agent_id}/mcp-servers/tools/search")
async def search_tools_of_agent(agent_id: AgentIdIn, body: ToolSearchIn, library: Library) -> list[WireToolHit]:
    """Search the agent's tools of servers by words, best first; without words the newest."""
    await library.agent(agent_id)
    where = ToolFilter(types=("external_mcp",), agent_id=agent_id)
    return hits_shape(await library.tools.search_codes(body.query or "", where, limit=body.limit))


@router.get("/v1/agents/{agent_id}/mcp-servers/{mcp_server_id}/tools")
async def list_tools_of_agent(agent_id: AgentIdIn, mcp_server_id: McpServerIdIn, library: Library) -> list[WireTool]:
    """List the tools of a server that the agent has, by name."""
    own = {state.tool.id for state in await library.agent_of(agent_id).tools.states()}
    return [tool_shape(tool) for tool in await library.mcp.list_tools(mcp_server_id) if tool.id in own]


@router.post("/v1/agents/{agent_id}/mcp-servers/{mcp_server_id}/tools/{tool_id}/run")
async def run_tool_of_agent(
    agent_id: AgentIdIn, mcp_server_id: McpServerIdIn, tool_id: ToolIdIn, body: wire.McpToolRunIn, library: Library
) -> ToolRun:
    """Call one of the agent's tools of a server, and answer with its outcome, as without an agent."""
    tool = await library.mcp.get_tool(mcp_server_id, tool_id)
    return ToolRun.make(await library.agent_of(agent_id).tools.run(tool.id, body.args))


@router.get("/v1/mcp-servers/connect/{mcp_server_id}")
async def connect_stored(mcp_server_id: McpServerIdIn, library: Library, guard: Guard) -> StreamingResponse:
    """Connect to a server and answer with a stream of events, the last of which has its tools or says what is wrong. A
    server that wants OAuth ends in an error: it needs a token here."""
    server = await library.mcp.server(mcp_server_id)
    guard.check_transport(server.transport)
    events = _connection_events(server.name, library.mcp.look_again(server.id))
    return StreamingResponse(events, media_type="text/event-stream")


@router.get("/v1/mcp-servers/{mcp_server_id}")
async def retrieve(mcp_server_id: McpServerIdIn, library: Library) -> wire.McpServer:
    """Get a server."""
    return wire.server_shape(await library.mcp.server(mcp_server_id))


@router.patch("/v1/mcp-servers/{mcp_server_id}")
async def update(
    mcp_server_id: McpServerIdIn, body: wire.McpServerChangesIn, library: Library, guard: Guard
) -> wire.McpServer:
    """Change the fields that are set. An empty token, header or variable keeps the stored value."""
    server = await library.mcp.server(mcp_server_id)
    changes = await guard.changes(body.changes(server), server)
    return wire.server_shape(await library.mcp.change(mcp_server_id, changes))


@router.delete("/v1/mcp-servers/{mcp_server_id}", status_code=204)
async def delete(mcp_server_id: McpServerIdIn, library: Library) -> None:
    """Remove a server with its tools, which agents then have no more."""
    await library.mcp.remove(mcp_server_id)


@router.patch("/v1/mcp-servers/{mcp_server_id}/refresh")
async def refresh(mcp_server_id: McpServerIdIn, library: Library, agent_id: str | None = None) -> wire.Synced:
    """Connect anew and read the tools. New and changed tools wait for approval."""
    return wire.Synced.make(await library.mcp.refresh(mcp_server_id))


@router.get("/v1/mcp-servers/{mcp_server_id}/tools")
async def list_tools(mcp_server_id: McpServerIdIn, library: Library) -> list[WireTool]:
    """List the server's tools that agents can be given, each by the server's own name where no other tool has it."""
    return [tool_shape(tool) for tool in await library.mcp.list_tools(mcp_server_id)]


@router.get("/v1/mcp-servers/{mcp_server_id}/tools/{tool_id}")
async def retrieve_tool(mcp_server_id: McpServerIdIn, tool_id: ToolIdIn, library: Library) -> WireTool:
    """Get one of the server's tools."""
    return tool_shape(await library.mcp.get_tool(mcp_server_id, tool_id))


@router.post("/v1/mcp-servers/{mcp_server_id}/tools/{tool_id}/run")
async def run_tool(
    mcp_server_id: McpServerIdIn, tool_id: ToolIdIn, body: wire.McpToolRunIn, library: Library
) -> ToolRun:
    """Call a tool, and answer with its outcome. A failure at the server is a result with the status `error`."""
    return ToolRun.make(await library.mcp.run_tool(mcp_server_id, tool_id, body.args))


@router.get("/v1/mcp-servers/{mcp_server_id}/definitions")
async def list_definitions(mcp_server_id: McpServerIdIn, library: Library) -> list[wire.ToolDefinition]:
    """List all tools of the server, with approved and offered definitions, and what was left out. Perdure's own."""
    server = await library.mcp.server(mcp_server_id)
    tools = [wire.ToolDefinition.make(tool) for tool in await library.mcp.tools(server.id)]
    return [*tools, *map(wire.left_out_shape, server.left_out)]


@router.post("/v1/mcp-servers/{mcp_server_id}/approve")
async def approve(mcp_server_id: McpServerIdIn, body: wire.McpApproveIn, library: Library) -> wire.Synced:
    """Approve the present definitions of tools, for agents to see. Perdure's own."""
    return wire.Synced.make(await library.mcp.approve(mcp_server_id, body.tools, expected=body.expected))


# --- by name


@router.get(BY_NAME)
async def list_named_servers(library: Library) -> dict[str, wire.McpConfig]:
    """List the configuration of each server, by name."""
    return {server.name: wire.named_server_shape(server) for server in await library.mcp.list()}


@router.put(BY_NAME)
async def add(body: wire.NamedServerIn, library: Library, guard: Guard) -> list[wire.McpConfig]:
    """Register a server, and answer with all of them."""
    await library.mcp.add_and_read(body.server_name, **await guard.new_options(body))
    return await _all_servers(library)


@router.post(f"{BY_NAME}/test")
async def test(body: wire.NamedServerIn, library: Library, guard: Guard) -> wire.McpListing:
    """List the tools that a server offers, without registering it."""
    listing = await library.mcp.look(**await guard.new_options(body))
    return {"status": "success", "tools": wire.listing_shape(listing.definitions)}


@router.post(f"{BY_NAME}/connect")
async def connect(body: wire.NamedServerIn, library: Library, guard: Guard) -> StreamingResponse:
    """The same as a stream of events. A server that wants OAuth ends in an error: it needs a token here."""
    events = _connection_events(body.server_name, library.mcp.look(**await guard.new_options(body)))
    return StreamingResponse(events, media_type="text/event-stream")


@router.patch(f"{BY_NAME}/{{mcp_server_name}}")
async def update_named(
    server: NamedServer, body: wire.NamedServerChangesIn, library: Library, guard: Guard
) -> wire.McpConfig:
    """Change the fields that are set. An empty value keeps the stored one."""
    changes = await guard.changes(body.changes(), server)
    return wire.named_server_shape(await library.mcp.change(server.id, changes))


@router.delete(f"{BY_NAME}/{{mcp_server_name}}")
async def delete_named(server: NamedServer, library: Library) -> list[wire.McpConfig]:
    """Remove a server with its tools, and answer with the servers that are left."""
    await library.mcp.remove(server.id)
    return await _all_servers(library)


@router.get(f"{BY_NAME}/{{mcp_server_name}}/tools")
async def list_offers(server: NamedServer, library: Library) -> list[wire.McpTool]:
    """List the tools that the server offers, by its own names. A server that was not read yet is read first."""
    if server.listed_at is None:
        await library.mcp.refresh(server.id)
    return wire.offers_shape(await library.mcp.tools(server.id))


@router.post(f"{BY_NAME}/{{mcp_server_name}}/resync")
async def resync(server: NamedServer, library: Library) -> wire.Synced:
    """Connect anew and read the tools. New, changed and missing tools wait for approval; nothing else changes."""
    return wire.Synced.make(await library.mcp.refresh(server.id), deleted=[], updated=[])


@router.post(f"{BY_NAME}/{{mcp_server_name}}/tools/{{mcp_tool_name}}/execute")
async def execute(server: NamedServer, mcp_tool_name: ToolName, body: wire.McpToolRunIn, library: Library) -> ToolRun:
    """Call a tool, and answer with its outcome. A failure at the server is a result with the status `error`."""
    return ToolRun.make(await library.mcp.run(server.id, mcp_tool_name, body.args))


@router.post(f"{BY_NAME}/{{mcp_server_name}}/{{mcp_tool_name}}")
async def add_tool(server: NamedServer, mcp_tool_name: ToolName, library: Library) -> WireTool:
    """Return the agents' tool for one of the server. A new or removed one is approved, a changed one is not."""
    return tool_shape(await library.mcp.approve_unless_changed(server.id, mcp_tool_name))


async def _all_servers(library: AsyncPerdure) -> list[wire.McpConfig]:
    return [wire.named_server_shape(server) for server in await library.mcp.list()]


async def _connection_events(name: str, look: Awaitable[ToolListing]) -> AsyncIterator[bytes]:
    """The server-sent events of a try to connect, which `look` is."""
    yield _event("connection_attempt", server_name=name)
    try:
        listing = await look
    except PerdureError as error:
        yield _event("error", message=str(error))
    except Exception:
        log.exception("connecting to an MCP server stopped at a defect")
        yield _event("error", message=UNKNOWN["detail"])
    else:
        yield _event("success", tools=wire.listing_shape(listing.definitions))


def _event(kind: str, **fields: object) -> bytes:
    return b"data: %b\n\n" % json_bytes({"event": kind, **fields})
