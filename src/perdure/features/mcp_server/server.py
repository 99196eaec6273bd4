"""The MCP server: tools, resources and prompts over the official SDK. Resources are blocks, notes and profiles:
`memory://project/blocks/human`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from perdure.core.errors import InvalidInput, NotFound, PerdureError
from perdure.core.ids import PassageId
from perdure.core.text.json_strings import encodable
from perdure.features.mcp_server.memory import MemoryTools
from perdure.features.mcp_server.specs import MemoryToolSpec, instructions

log = logging.getLogger(__name__)
# The SDK writes several lines at INFO for each request over HTTP.
logging.getLogger("mcp").setLevel(logging.WARNING)

SCHEME = "memory://"
NOTES_LISTED = 100
ARGUMENT_CHARS = 10_000
PROMPTS: Mapping[str, tuple[str, str, str]] = {
    "catch_up": ("Begin with what is remembered of this project and of you.", "about", "The task at hand."),
    "handoff": ("Write a note that lets a later session go on from here.", "next", "What is to come next."),
}
"""Name of a prompt, which a person chooses in a client -> what it is for, its argument, what that is."""


async def list_resources(memory: MemoryTools) -> list[types.Resource]:
    """Return each block, note and profile."""
    rows = list[tuple[str, str, str]]()
    for level, agent in await memory.readers():
        for block in await agent.blocks.list():
            path = f"{level}/blocks/{quote(block.label, safe='')}"
            rows.append((path, f"{level} block {block.label}", block.description or ""))
        rows.append((f"{level}/profile", f"{level} profile", "What is known about the user."))
        for note in await agent.notes.list(limit=NOTES_LISTED):
            rows.append((f"{level}/notes/{note.id}", note.title, f"{level} note: {note.kind}"))
    return [
        types.Resource(uri=SCHEME + path, name=encodable(name), description=encodable(about), mime_type="text/markdown")
        for path, name, about in rows
    ]


async def read_resource(memory: MemoryTools, uri: str) -> str:
    """Return the text of a resource. Raises: NotFound."""
    level, _, path = uri.removeprefix(SCHEME).partition("/")
    kind, _, name = path.partition("/")
    for one, agent in await memory.readers():
        if one != level or not uri.startswith(SCHEME):
            continue
        match kind:
            case "blocks":
                return (await agent.blocks.get(unquote(name))).value
            case "notes":
                return (await agent.notes.get(PassageId(name))).text
            case "profile":
                profile = await agent.profile()
                return "\n".join(f"- {slot}: {', '.join(values)}" for slot, values in profile.slots.items())
    raise NotFound("resource", uri, hint="resources/list names those that there are")


async def render_prompt(memory: MemoryTools, name: str, arguments: Mapping[str, str]) -> str:
    """Return the text of a prompt. Raises: NotFound; InvalidInput: an argument that it does not have, or too long."""
    if name not in PROMPTS:
        raise NotFound("prompt", name, hint=f"there are {', '.join(PROMPTS)}")
    _, known, _ = PROMPTS[name]
    for key, value in arguments.items():
        if key != known:
            raise InvalidInput(f"{key!r:.80} is not an argument of {name}: it has {known}")
        if len(value) > ARGUMENT_CHARS:
            raise InvalidInput(f"{key} has {len(value):,} characters, the limit is {ARGUMENT_CHARS:,}")
    if name == "catch_up":
        context = await memory.call("memory_context", {"about": arguments.get("about", "")})
        return (
            f"This is what is remembered from earlier sessions:\n\n{context}\n\nSay in a few sentences where we stand."
        )
    next_ = arguments.get("next", "").strip()
    return (
        "Write a handoff with the tool `note` (kind handoff) for whoever goes on with this work: what is done and under"
        " way, what comes next, open questions, the files that matter. Be exact; name paths and commands."
        + (f" What comes next: {next_}" if next_ else "")
    )


def build_server(memory: MemoryTools) -> Server[Any]:
    """Build the protocol's server for one project's memory."""

    async def list_tools(context: Any, parameters: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(spec) for spec in memory.specs])

    async def call_tool(context: Any, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            text, is_error = await memory.call(parameters.name, parameters.arguments or {}), False
        except Exception as error:
            text, is_error = _reason(error, f"tool {parameters.name:.80}"), True
        return types.CallToolResult(content=[_text(text)], is_error=is_error)

    async def resources(context: Any, parameters: Any) -> types.ListResourcesResult:
        with _told_to_client("resources/list"):
            return types.ListResourcesResult(resources=await list_resources(memory))

    async def read(context: Any, parameters: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(parameters.uri)
        with _told_to_client(f"resource {uri:.80}"):
            text = await read_resource(memory, uri)
            contents = types.TextResourceContents(uri=uri, mime_type="text/markdown", text=encodable(text))
            return types.ReadResourceResult(contents=[contents])

    async def list_prompts(context: Any, parameters: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[_prompt(name, *shown) for name, shown in PROMPTS.items()])

    async def get_prompt(context: Any, parameters: types.GetPromptRequestParams) -> types.GetPromptResult:
        with _told_to_client(f"prompt {parameters.name:.80}"):
            text = await render_prompt(memory, parameters.name, parameters.arguments or {})
            message = types.PromptMessage(role="user", content=_text(text))
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
    """Return what to tell a client about an error; an unexpected error is also logged."""
    if isinstance(error, PerdureError):
        return str(error)
    log.error("%s failed", what, exc_info=error)
    return f"{what} failed inside Perdure ({type(error).__name__}); its log says more."


def _text(text: str) -> types.TextContent:
    """Return a text as a part of an answer: the SDK can't send half a character, and ends at it."""
    return types.TextContent(type="text", text=encodable(text))


def _prompt(name: str, description: str, argument: str, about: str) -> types.Prompt:
    arguments = [types.PromptArgument(name=argument, description=about, required=False)]
    return types.Prompt(name=name, description=description, arguments=arguments)


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
