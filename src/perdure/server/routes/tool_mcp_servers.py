"""MCP servers by name: the older routes, from before `/v1/mcp-servers`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Path, Response
from fastapi.responses import StreamingResponse

from perdure.core.errors import PerdureError
from perdure.domain.mcp import ServerOptions
from perdure.library.services.mcp import McpService
from perdure.server.deps import Guarded, Library
from perdure.server.encoding import json_answer, json_bytes
from perdure.server.errors import UNKNOWN
from perdure.server.wire.mcp import McpToolRunIn, tools_by_status_shape
from perdure.server.wire.tool_mcp import ConfigChangesIn, ConfigIn, config_shape, listing_shape, offered_shapes
from perdure.server.wire.tools import execution_shape, tool_shape

router = APIRouter(tags=["tools"])
log = logging.getLogger(__name__)

BASE = "/v1/tools/mcp/servers"

ServerName = Annotated[str, Path(description="The server's name.")]
ToolName = Annotated[str, Path(description="What the server calls the tool, or what agents do.")]


@router.get(BASE)
async def list_servers(library: Library) -> Response:
    """The configuration of each server, by name."""
    return json_answer({server.name: config_shape(server) for server in await library.services.mcp.list()})


@router.put(BASE)
async def add(body: ConfigIn, library: Library, guard: Guarded) -> Response:
    """Register a server; all of them, with it."""
    await library.services.mcp.add_and_read(body.server_name, **await guard.new(body.server()))
    return json_answer([config_shape(server) for server in await library.services.mcp.list()])


@router.post(f"{BASE}/test")
async def test(body: ConfigIn, library: Library, guard: Guarded) -> Response:
    """The tools that a server offers, without registering it."""
    listing = await library.services.mcp.look(**await guard.new(body.server()))
    return json_answer({"status": "success", "tools": listing_shape(listing)})


@router.post(f"{BASE}/connect")
async def connect(body: ConfigIn, library: Library, guard: Guarded) -> Response:
    """The same as a stream of events. A server that wants OAuth ends in an error: it needs a token here."""
    options = await guard.new(body.server())
    events = _connection_events(body.server_name, options, library.services.mcp)
    return StreamingResponse(events, media_type="text/event-stream")


async def _connection_events(name: str, options: ServerOptions, service: McpService) -> AsyncIterator[bytes]:
    yield _event("connection_attempt", server_name=name)
    try:
        listing = await service.look(**options)
    except asyncio.CancelledError:
        raise
    except Exception as error:
        if not isinstance(error, PerdureError):
            log.exception("connecting to an MCP server stopped at a defect")
        yield _event("error", message=str(error) if isinstance(error, PerdureError) else UNKNOWN["detail"])
        return
    yield _event("success", tools=listing_shape(listing))


@router.patch(f"{BASE}/{{mcp_server_name}}")
async def update(mcp_server_name: ServerName, body: ConfigChangesIn, library: Library, guard: Guarded) -> Response:
    """Change the fields that are set. An empty value keeps the stored one."""
    server = await library.services.mcp.get_by_name(mcp_server_name)
    changes = await guard.changed(body.changes(), server)
    return json_answer(config_shape(await library.services.mcp.update(server.id, changes)))


@router.delete(f"{BASE}/{{mcp_server_name}}")
async def delete(mcp_server_name: ServerName, library: Library) -> Response:
    """Remove a server with its tools; the servers that are left."""
    await library.services.mcp.remove((await library.services.mcp.get_by_name(mcp_server_name)).id)
    return json_answer([config_shape(server) for server in await library.services.mcp.list()])


@router.get(f"{BASE}/{{mcp_server_name}}/tools")
async def list_tools(mcp_server_name: ServerName, library: Library) -> Response:
    """The tools that the server offers, by its own names. A server that was not read yet is read first."""
    server = await library.services.mcp.get_by_name(mcp_server_name)
    if server.listed_at is None:
        await library.services.mcp.refresh(server.id)
    return json_answer(offered_shapes(await library.services.mcp.list_known(server.id)))


@router.post(f"{BASE}/{{mcp_server_name}}/resync")
async def resync(mcp_server_name: ServerName, library: Library) -> Response:
    """Connect anew and read the tools. New, changed and missing tools wait for approval; nothing else changes."""
    tools = await library.services.mcp.refresh((await library.services.mcp.get_by_name(mcp_server_name)).id)
    return json_answer({"deleted": [], "updated": [], **tools_by_status_shape(tools)})


@router.post(f"{BASE}/{{mcp_server_name}}/tools/{{mcp_tool_name}}/execute")
async def execute(
    mcp_server_name: ServerName, mcp_tool_name: ToolName, body: McpToolRunIn, library: Library
) -> Response:
    """The outcome of a call. Whatever goes wrong at the server is a result with the status `error`."""
    server = await library.services.mcp.get_by_name(mcp_server_name)
    outcome = await library.services.mcp.run(server.id, mcp_tool_name, body.args)
    return json_answer(execution_shape(outcome, None))


@router.post(f"{BASE}/{{mcp_server_name}}/{{mcp_tool_name}}")
async def add_tool(mcp_server_name: ServerName, mcp_tool_name: ToolName, library: Library) -> Response:
    """The tool of agents for one of the server. A new or removed one is approved, never a changed one."""
    server = await library.services.mcp.get_by_name(mcp_server_name)
    return json_answer(tool_shape(await library.services.mcp.approve_unless_changed(server.id, mcp_tool_name)))


def _event(kind: str, **more: object) -> bytes:
    return b"data: %b\n\n" % json_bytes({"event": kind, **more})
