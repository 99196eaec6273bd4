"""MCP servers: registering, reading, changing and removing them, and the tools they offer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from perdure.core.errors import NotFound, PerdureError
from perdure.core.ids import AgentId, McpServerId, ToolId
from perdure.core.mcp import SERVER_TOOLS_MAX, McpServer
from perdure.core.tools.spec import Tool, ToolFilter
from perdure.library.perdure import AsyncPerdure
from perdure.server.deps import Guarded, Library
from perdure.server.encoding import json_answer
from perdure.server.ids import McpServerPath, ToolPath
from perdure.server.mcp_guard import McpGuard
from perdure.server.wire.mcp import (
    McpApproveIn,
    McpServerChangesIn,
    McpServerIn,
    McpToolRunIn,
    known_tool_shape,
    left_out_shape,
    server_shape,
    synced_shape,
)
from perdure.server.wire.tools import execution_shape, tool_shape
from perdure.storage.tx import Tx

__all__ = ["registered", "router"]

router = APIRouter(tags=["mcp-servers"])
log = logging.getLogger(__name__)

FIRST_READ_S = 30.0


@router.post("/v1/mcp-servers/")
async def create(body: McpServerIn, library: Library, guard: Guarded) -> Response:
    """Register a server. Its tools are read at once if it can be reached, else when it is."""
    return json_answer(server_shape(await registered(body, library, guard)))


async def registered(body: McpServerIn, library: AsyncPerdure, guard: McpGuard) -> McpServer:
    """The new server, read if it can be reached.

    Raises: McpStdioRefused, McpPrivateRefused, InvalidInput, AlreadyExists.
    """
    server = await library.mcp.add(body.server_name, **await guard.new(body), check=False)
    try:
        async with asyncio.timeout(FIRST_READ_S):
            await library.mcp.refresh(server.id)
    except (PerdureError, TimeoutError) as error:
        log.warning(
            "MCP server %s is registered, but its tools could not be read: %s",
            server.id,
            str(error) or "it took too long",
        )
    return await _server(library, server.id)


@router.get("/v1/mcp-servers/")
async def list_servers(library: Library) -> Response:
    """All servers, in order of creation."""
    return json_answer([server_shape(server) for server in await library.mcp.list()])


@router.get("/v1/mcp-servers/{mcp_server_id}")
async def retrieve(mcp_server_id: McpServerPath, library: Library) -> Response:
    """One server."""
    return json_answer(server_shape(await _server(library, mcp_server_id)))


@router.patch("/v1/mcp-servers/{mcp_server_id}")
async def update(mcp_server_id: McpServerPath, body: McpServerChangesIn, library: Library, guard: Guarded) -> Response:
    """Change what is given; an empty value of a token, header or variable leaves what is stored."""
    server = await _server(library, mcp_server_id)
    return json_answer(server_shape(await library.mcp.update(server.id, **await guard.changed(body, server))))


@router.delete("/v1/mcp-servers/{mcp_server_id}", status_code=204)
async def delete(mcp_server_id: McpServerPath, library: Library) -> Response:
    """Remove a server with its tools, which agents then have no more."""
    await library.mcp.remove((await _server(library, mcp_server_id)).id)
    return Response(status_code=204)


@router.patch("/v1/mcp-servers/{mcp_server_id}/refresh")
async def refresh(
    mcp_server_id: McpServerPath, library: Library, agent_id: Annotated[AgentId | None, Query()] = None
) -> Response:
    """Connect anew and read the tools. What is new, and what has changed, waits for approval."""
    return json_answer(synced_shape(await library.mcp.refresh((await _server(library, mcp_server_id)).id)))


@router.get("/v1/mcp-servers/{mcp_server_id}/tools")
async def list_tools(mcp_server_id: McpServerPath, library: Library) -> Response:
    """The server's tools that agents can be given, by name."""
    return json_answer([tool_shape(tool) for tool in await library.app.store.read(_tools, mcp_server_id)])


@router.get("/v1/mcp-servers/{mcp_server_id}/tools/{tool_id}")
async def retrieve_tool(mcp_server_id: McpServerPath, tool_id: ToolPath, library: Library) -> Response:
    """One of them."""
    return json_answer(tool_shape(await _tool(library, mcp_server_id, tool_id)))


@router.post("/v1/mcp-servers/{mcp_server_id}/tools/{tool_id}/run")
async def run_tool(mcp_server_id: McpServerPath, tool_id: ToolPath, body: McpToolRunIn, library: Library) -> Response:
    """What came of a call; whatever the server does is a result with the status `error`."""
    tool = await _tool(library, mcp_server_id, tool_id)
    return json_answer(execution_shape(await library.app.mcp.run(tool, body.args), None))


@router.get("/v1/mcp-servers/{mcp_server_id}/definitions")
async def list_definitions(mcp_server_id: McpServerPath, library: Library) -> Response:
    """What is known of all its tools: approved and offered; and what was left out, with why. Perdure's own."""
    server = await _server(library, mcp_server_id)
    known = [known_tool_shape(tool) for tool in await library.mcp.tools(server.id)]
    return json_answer([*known, *map(left_out_shape, server.left_out)])


@router.post("/v1/mcp-servers/{mcp_server_id}/approve")
async def approve(mcp_server_id: McpServerPath, body: McpApproveIn, library: Library) -> Response:
    """Have agents see what the server says now. Perdure's own."""
    server = await _server(library, mcp_server_id)
    return json_answer(synced_shape(await library.mcp.approve(server.id, body.tools, expected=body.expected)))


async def _server(library: AsyncPerdure, server_id: McpServerId) -> McpServer:
    """By its id only: a name may look like one."""
    return await library.app.store.read(lambda tx: tx.mcp.get(server_id))


async def _tool(library: AsyncPerdure, server_id: McpServerId, tool_id: ToolId) -> Tool:
    """Raises: NotFound: another server's, or none."""
    for tool in await library.app.store.read(_tools, server_id):
        if tool.id == tool_id:
            return tool
    raise NotFound("tool", tool_id)


def _tools(tx: Tx, server_id: McpServerId) -> Sequence[Tool]:
    ids = tuple(tool.tool_id for tool in tx.mcp.tools(server_id) if tool.tool_id is not None)
    found = tx.tools.page(where=ToolFilter(ids=ids), ascending=True, limit=SERVER_TOOLS_MAX)
    return sorted(found, key=lambda tool: tool.spec.name)
