"""The MCP server: tools, resources and prompts over the official SDK."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from perdure.core.errors import PerdureError
from perdure.features.mcp_server.memory import MemoryTools
from perdure.features.mcp_server.prompts import PROMPTS, render_prompt
from perdure.features.mcp_server.resources import list_resources, read_resource
from perdure.features.mcp_server.specs import MemoryToolSpec, instructions

log = logging.getLogger(__name__)
# The SDK writes several lines at INFO for each request over HTTP.
logging.getLogger("mcp").setLevel(logging.WARNING)


def build_server(memory: MemoryTools) -> Server[Any]:
    """Build the protocol's server for one project's memory."""

    async def list_tools(context: Any, parameters: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(spec) for spec in memory.specs])

    async def call_tool(context: Any, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            text, is_error = await memory.call(parameters.name, parameters.arguments or {}), False
        except Exception as error:
            text, is_error = _reason(error, f"tool {parameters.name:.80}"), True
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)

    async def resources(context: Any, parameters: Any) -> types.ListResourcesResult:
        with _told_to_client("resources/list"):
            return types.ListResourcesResult(resources=await list_resources(memory))

    async def read(context: Any, parameters: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(parameters.uri)
        with _told_to_client(f"resource {uri:.80}"):
            text = await read_resource(memory, uri)
            contents = types.TextResourceContents(uri=uri, mime_type="text/markdown", text=text)
            return types.ReadResourceResult(contents=[contents])

    async def list_prompts(context: Any, parameters: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[*PROMPTS.values()])

    async def get_prompt(context: Any, parameters: types.GetPromptRequestParams) -> types.GetPromptResult:
        with _told_to_client(f"prompt {parameters.name:.80}"):
            text = await render_prompt(memory, parameters.name, parameters.arguments or {})
            message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
            return types.GetPromptResult(messages=[message])

    return Server(
        "perdure",
        version=version("perdure"),
        instructions=instructions(),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=resources,
        on_read_resource=read,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


@contextmanager
def _told_to_client(what: str) -> Iterator[None]:
    """Raise an error of the protocol with the reason in place of any error. Raises: MCPError."""
    try:
        yield
    except Exception as error:
        raise MCPError(types.INVALID_PARAMS, _reason(error, what)) from error


def _reason(error: Exception, what: str) -> str:
    """Return what a client is told of an error; one that Perdure did not raise on purpose goes into the log."""
    if isinstance(error, PerdureError):
        return str(error)
    log.error("%s failed", what, exc_info=error)
    return f"{what} failed inside Perdure ({type(error).__name__}); its log says more."


def _tool(spec: MemoryToolSpec) -> types.Tool:
    runs_commands = "command" in spec.schema["properties"]
    annotations = types.ToolAnnotations(
        read_only_hint=not spec.request,
        destructive_hint=spec.name == "memory_forget" or runs_commands,
        open_world_hint=runs_commands,
    )
    return types.Tool(
        name=spec.name, description=spec.description, input_schema=dict(spec.schema), annotations=annotations
    )
