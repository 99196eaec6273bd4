"""MCP servers by name, the older routes: what clients used before `/v1/mcp-servers`, over the same library."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from fastapi.responses import StreamingResponse

from perdure.core.errors import NotFound, PerdureError
from perdure.core.mcp import McpServer, McpTool
from perdure.library.perdure import AsyncPerdure
from perdure.server.deps import Guarded, Library
from perdure.server.encoding import json_answer, json_bytes
from perdure.server.errors import UNKNOWN
from perdure.server.routes.mcp_servers import registered
from perdure.server.wire.mcp import McpToolRunIn, synced_shape
from perdure.server.wire.tool_mcp import ConfigChangesIn, ConfigIn, config_shape, listing_shape, offered_shapes
from perdure.server.wire.tools import execution_shape, tool_shape

__all__ = ["router"]

router = APIRouter(tags=["tools"])
log = logging.getLogger(__name__)

BASE = "/v1/tools/mcp/servers"

ServerName = Annotated[str, Path(description="The server's name.")]
ToolName = Annotated[str, Path(description="What the server calls the tool, or what agents do.")]


@router.get(BASE)
async def list_servers(library: Library) -> Response:
    """The configuration of each server, by name."""
    return json_answer({server.name: config_shape(server) for server in await library.mcp.list()})


@router.put(BASE)
async def add(body: ConfigIn, library: Library, guard: Guarded) -> Response:
    """Register a server; all of them, with it."""
    await registered(body.server(), library, guard)
    return json_answer([config_shape(server) for server in await library.mcp.list()])


@router.post(f"{BASE}/test")
async def test(body: ConfigIn, library: Library, guard: Guarded) -> Response:
    """What a server offers, without registering it."""
    listing = await library.mcp.look(**await guard.new(body.server()))
    return json_answer({"status": "success", "tools": listing_shape(listing)})


@router.post(f"{BASE}/connect")
async def connect(body: ConfigIn, library: Library, guard: Guarded) -> Response:
    """The same, told as it happens. Servers that want OAuth end in an error: they need a token here."""
    fields = await guard.new(body.server())
    return StreamingResponse(_told(body.server_name, fields, library), media_type="text/event-stream")


async def _told(name: str, fields: Mapping[str, Any], library: AsyncPerdure) -> AsyncIterator[bytes]:
    yield _event("connection_attempt", server_name=name)
    try:
        listing = await library.mcp.look(**fields)
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
    """Change what is given; an empty value leaves what is stored."""
    server = await _server(library, mcp_server_name)
    changes = await guard.changed(body.changes(), server)
    return json_answer(config_shape(await library.mcp.update(server.id, **changes)))


@router.delete(f"{BASE}/{{mcp_server_name}}")
async def delete(mcp_server_name: ServerName, library: Library) -> Response:
    """Remove a server with its tools; the servers that are left."""
    await library.mcp.remove((await _server(library, mcp_server_name)).id)
    return json_answer([config_shape(server) for server in await library.mcp.list()])


@router.get(f"{BASE}/{{mcp_server_name}}/tools")
async def list_tools(mcp_server_name: ServerName, library: Library) -> Response:
    """What the server offers, by its own names. One that was not read yet is."""
    server = await _server(library, mcp_server_name)
    if server.listed_at is None:
        await library.mcp.refresh(server.id)
    return json_answer(offered_shapes([*await library.mcp.tools(server.id)]))


@router.post(f"{BASE}/{{mcp_server_name}}/resync")
async def resync(mcp_server_name: ServerName, library: Library) -> Response:
    """Connect anew and read the tools. What is new, changed or gone waits for approval; nothing else is altered."""
    synced = await library.mcp.refresh((await _server(library, mcp_server_name)).id)
    return json_answer({"deleted": [], "updated": [], **synced_shape(synced)})


@router.post(f"{BASE}/{{mcp_server_name}}/tools/{{mcp_tool_name}}/execute")
async def execute(
    mcp_server_name: ServerName, mcp_tool_name: ToolName, body: McpToolRunIn, library: Library
) -> Response:
    """What came of a call; whatever the server does is a result with the status `error`."""
    server = await _server(library, mcp_server_name)
    return json_answer(execution_shape(await library.mcp.run(server.id, mcp_tool_name, body.args), None))


@router.post(f"{BASE}/{{mcp_server_name}}/{{mcp_tool_name}}")
async def add_tool(mcp_server_name: ServerName, mcp_tool_name: ToolName, library: Library) -> Response:
    """The tool that agents are given for one of the server. It approves a new or removed one, never a changed one."""
    server = await _server(library, mcp_server_name)
    known = await _known(library, server, mcp_tool_name)
    if known.status in ("pending", "removed", "unusable") and known.seen is not None:
        await library.mcp.approve(server.id, [known.name], expected={known.name: known.seen.digest})
        known = await _known(library, server, mcp_tool_name)
    tool_id = known.tool_id
    if tool_id is None:
        raise NotFound("MCP tool", mcp_tool_name)
    return json_answer(tool_shape(await library.app.store.read(lambda tx: tx.tools.get(tool_id))))


async def _known(library: AsyncPerdure, server: McpServer, name: str) -> McpTool:
    for known in await library.mcp.tools(server.id):
        if name in (known.name, known.local_name):
            return known
    raise NotFound("MCP tool", name)


async def _server(library: AsyncPerdure, name: str) -> McpServer:
    """By its name only. Raises: NotFound."""
    server = await library.app.store.read(lambda tx: tx.mcp.find_by_name(name))
    if server is None:
        raise NotFound("MCP server", name)
    return server


def _event(kind: str, **more: object) -> bytes:
    return b"data: %b\n\n" % json_bytes({"event": kind, **more})
