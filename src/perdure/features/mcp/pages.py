"""MCP servers and their tools on the page of connections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from difflib import unified_diff

from starlette.requests import Request

from perdure.core.ids import McpServerId
from perdure.core.text.reprs import attributes
from perdure.features.mcp.routes import McpGuard
from perdure.features.mcp.values import McpTool, ToolDefinition
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.http import rules_machine
from perdure.ui.render import Data, Notice, Section, field_of, form_of, pretty


async def load(request: Request, library: AsyncPerdure) -> Sequence[Data]:
    """The MCP servers with their tools, as the page shows them."""
    states = [await library.mcp.get(server.id) for server in await library.mcp.list()]
    return [
        {
            **attributes(state.server, "id", "name", "transport", "failure"),
            "where": state.server.place,
            "open": state.open,
            "tools": [_tool_shape(tool) for tool in state.tools],
        }
        for state in states
    ]


def _tool_shape(tool: McpTool) -> Data:
    """A tool of a server: the definition that was approved, and the one that the server gives now."""
    changed = tool.pinned is not None and tool.seen is not None and tool.pinned != tool.seen
    return {
        **attributes(tool, "name", "local_name", "problem"),
        "approved": tool.pinned is not None,
        "changed": changed,
        "gone": tool.seen is None,
        "description": "" if tool.seen is None else tool.seen.description,
        "difference": _definition_diff(tool.pinned, tool.seen) if changed and tool.pinned and tool.seen else None,
    }


def _definition_diff(before: ToolDefinition, now: ToolDefinition) -> str:
    """What a server has changed in the definition of a tool since it was approved: description, schema and hints."""
    old, new = (pretty(asdict(definition)).split("\n") for definition in (before, now))
    return "\n".join(list(unified_diff(old, new, lineterm=""))[2:])


async def add_server(request: Request, library: AsyncPerdure) -> Notice:
    """Register an MCP server by its address; its tools wait for approval."""
    form = await form_of(request)
    name, url, token = field_of(form, "name"), field_of(form, "url"), form.get("token") or None
    guard = McpGuard(request.app.state.gate, library)
    private = None if rules_machine(request) else await guard.private(url)
    await library.mcp.add_and_read(name, url=url, token=token, private=private)
    return Notice(f"{name} was registered. Approve those of its tools that agents may have.")


async def refresh_server(request: Request, library: AsyncPerdure) -> Notice:
    """Read the tools of a server again."""
    await library.mcp.refresh(McpServerId(request.path_params["server_id"]))
    return Notice("Its tools were read.")


async def approve_tool(request: Request, library: AsyncPerdure) -> Notice:
    """Approve a tool's definition as the server gives it now."""
    name = field_of(await form_of(request), "tool")
    await library.mcp.approve(McpServerId(request.path_params["server_id"]), [name])
    return Notice(f"{name} was approved.")


async def delete_server(request: Request, library: AsyncPerdure) -> Notice:
    """Remove a server with its tools."""
    await library.mcp.remove(McpServerId(request.path_params["server_id"]))
    return Notice("The server was removed with its tools.")


SECTION = Section(
    name="servers",
    load=load,
    actions={
        "/connections/mcp": add_server,
        "/connections/mcp/{server_id}/refresh": refresh_server,
        "/connections/mcp/{server_id}/approve": approve_tool,
        "/connections/mcp/{server_id}/delete": delete_server,
    },
    is_shown_empty=True,
)
