"""MCP servers, and the tools they offer."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from perdure.core.ids import AgentId
from perdure.server.deps import Guarded, Library
from perdure.server.encoding import json_answer
from perdure.server.ids import McpServerPath, ToolPath
from perdure.server.wire.mcp import (
    McpApproveIn,
    McpServerChangesIn,
    McpServerIn,
    McpToolRunIn,
    known_tool_shape,
    left_out_shape,
    server_shape,
    tools_by_status_shape,
)
from perdure.server.wire.tools import execution_shape, tool_shape

router = APIRouter(tags=["mcp-servers"])


@router.post("/v1/mcp-servers/")
async def create(body: McpServerIn, library: Library, guard: Guarded) -> Response:
    """Register a server. Its tools are read now if it can be reached, else at the first use."""
    server = await library.services.mcp.add_and_read(body.server_name, **await guard.new(body))
    return json_answer(server_shape(server))


@router.get("/v1/mcp-servers/")
async def list_servers(library: Library) -> Response:
    """All servers, in order of creation."""
    return json_answer([server_shape(server) for server in await library.services.mcp.list()])


@router.get("/v1/mcp-servers/{mcp_server_id}")
async def retrieve(mcp_server_id: McpServerPath, library: Library) -> Response:
    """One server."""
    return json_answer(server_shape(await library.services.mcp.get(mcp_server_id)))


@router.patch("/v1/mcp-servers/{mcp_server_id}")
async def update(mcp_server_id: McpServerPath, body: McpServerChangesIn, library: Library, guard: Guarded) -> Response:
    """Change the fields that are set. An empty token, header or variable keeps the stored value."""
    changes = await guard.changed(body, await library.services.mcp.get(mcp_server_id))
    return json_answer(server_shape(await library.services.mcp.update(mcp_server_id, changes)))


@router.delete("/v1/mcp-servers/{mcp_server_id}", status_code=204)
async def delete(mcp_server_id: McpServerPath, library: Library) -> Response:
    """Remove a server with its tools, which agents then have no more."""
    await library.services.mcp.remove(mcp_server_id)
    return Response(status_code=204)


@router.patch("/v1/mcp-servers/{mcp_server_id}/refresh")
async def refresh(
    mcp_server_id: McpServerPath, library: Library, agent_id: Annotated[AgentId | None, Query()] = None
) -> Response:
    """Connect anew and read the tools. New and changed tools wait for approval."""
    return json_answer(tools_by_status_shape(await library.services.mcp.refresh(mcp_server_id)))


@router.get("/v1/mcp-servers/{mcp_server_id}/tools")
async def list_tools(mcp_server_id: McpServerPath, library: Library) -> Response:
    """The server's tools that agents can be given, by name."""
    return json_answer([tool_shape(tool) for tool in await library.services.mcp.list_tools(mcp_server_id)])


@router.get("/v1/mcp-servers/{mcp_server_id}/tools/{tool_id}")
async def retrieve_tool(mcp_server_id: McpServerPath, tool_id: ToolPath, library: Library) -> Response:
    """One of the server's tools."""
    return json_answer(tool_shape(await library.services.mcp.get_tool(mcp_server_id, tool_id)))


@router.post("/v1/mcp-servers/{mcp_server_id}/tools/{tool_id}/run")
async def run_tool(mcp_server_id: McpServerPath, tool_id: ToolPath, body: McpToolRunIn, library: Library) -> Response:
    """The outcome of a call. Whatever goes wrong at the server is a result with the status `error`."""
    outcome = await library.services.mcp.run_tool(mcp_server_id, tool_id, body.args)
    return json_answer(execution_shape(outcome, None))


@router.get("/v1/mcp-servers/{mcp_server_id}/definitions")
async def list_definitions(mcp_server_id: McpServerPath, library: Library) -> Response:
    """All tools of the server, with their approved and offered definitions, and what was left out. Perdure's own."""
    server = await library.services.mcp.get(mcp_server_id)
    tools = [known_tool_shape(tool) for tool in await library.services.mcp.list_known(server.id)]
    return json_answer([*tools, *map(left_out_shape, server.left_out)])


@router.post("/v1/mcp-servers/{mcp_server_id}/approve")
async def approve(mcp_server_id: McpServerPath, body: McpApproveIn, library: Library) -> Response:
    """Approve the present definitions of tools, for agents to see. Perdure's own."""
    tools = await library.services.mcp.approve(mcp_server_id, body.tools, expected=body.expected)
    return json_answer(tools_by_status_shape(tools))
