"""The MCP server: tools, resources and prompts over the official SDK."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from perdure.core.errors import PerdureError
from perdure.features.mcp_server.memory import MemoryTools
from perdure.features.mcp_server.prompts import PROMPTS, render_prompt
from perdure.features.mcp_server.resources import list_resources, read_resource
from perdure.features.mcp_server.specs import WRITING, instructions

log = logging.getLogger(__name__)
NAME = "perdure"


def build_server(memory: MemoryTools) -> Server[Any]:
    """Build the protocol's server for one project's memory."""

    async def list_tools(context: Any, parameters: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_tools(memory))

    async def call_tool(context: Any, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            text, is_error = await memory.call(parameters.name, parameters.arguments or {}), False
        except PerdureError as error:
            text, is_error = str(error), True
        except Exception as error:
            log.exception("tool %s failed", parameters.name)
            text, is_error = (
                f"{parameters.name} failed inside Perdure ({type(error).__name__}); its log says more.",
                True,
            )
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)

    async def resources(context: Any, parameters: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[types.Resource(**one, mime_type="text/markdown") for one in await list_resources(memory)]
        )

    async def read(context: Any, parameters: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(parameters.uri)
        try:
            text = await read_resource(memory, uri)
        except PerdureError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        contents = types.TextResourceContents(uri=uri, mime_type="text/markdown", text=text)
        return types.ReadResourceResult(contents=[contents])

    async def list_prompts(context: Any, parameters: Any) -> types.ListPromptsResult:
        prompts = [
            types.Prompt(
                name=name,
                description=prompt.description,
                arguments=[
                    types.PromptArgument(name=key, description=about, required=False)
                    for key, about in prompt.arguments.items()
                ],
            )
            for name, prompt in PROMPTS.items()
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(context: Any, parameters: types.GetPromptRequestParams) -> types.GetPromptResult:
        try:
            text = await render_prompt(memory, parameters.name, parameters.arguments or {})
        except PerdureError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(messages=[message])

    return Server(
        NAME,
        version=version("perdure"),
        instructions=instructions(),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=resources,
        on_read_resource=read,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


def _tools(memory: MemoryTools) -> list[types.Tool]:
    return [
        types.Tool(
            name=spec.name,
            description=spec.description,
            input_schema=dict(spec.schema),
            annotations=types.ToolAnnotations(
                read_only_hint=spec.name not in WRITING,
                destructive_hint=spec.name == "memory_forget",
                open_world_hint=False,
            ),
        )
        for spec in memory.specs
    ]


__all__: Sequence[str] = ["build_server"]
