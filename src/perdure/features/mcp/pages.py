"""MCP servers and their tools on the page of connections, and those that an agent has on the page of its tools."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from difflib import unified_diff

from starlette.requests import Request

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import McpServerId
from perdure.core.text.reprs import attributes, plural
from perdure.features.mcp.routes import McpGuard
from perdure.features.mcp.units import ServerOptions
from perdure.features.mcp.values import McpTool, ToolDefinition
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.http import rules_machine
from perdure.ui.render import Data, Notice, Section, agent_id_of, field_of, form_of, pretty

GIVE = ("/", "Choose an agent, and turn them on on its page Tools.")
"""Where agents get tools."""


async def load(request: Request, library: AsyncPerdure) -> Data:
    """The MCP servers with their tools; and whether the settings let the server start programs of this machine."""
    states = [await library.mcp.get(server.id) for server in await library.mcp.list()]
    servers = [
        {
            **attributes(state.server, "id", "name", "transport", "failure"),
            "where": state.server.place,
            "open": state.open,
            "tools": [_tool_shape(tool) for tool in state.tools],
        }
        for state in states
    ]
    return {"servers": servers, "may_add_programs": library.app.settings.mcp_stdio == "on"}


def _tool_shape(tool: McpTool) -> Data:
    """A tool of a server: the definition that was approved, and the one that the server gives now."""
    changed = tool.pinned is not None and tool.seen is not None and tool.pinned != tool.seen
    return {
        **attributes(tool, "name", "local_name", "problem", "status"),
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
    """Register an MCP server by its address, or with `command` a program, and approve the tools that it has now. With
    `choice` `test` only say what it has."""
    form = await form_of(request)
    guard = McpGuard(request.app.state.gate, library)
    options: ServerOptions
    if "command" in form:
        guard.check_transport("stdio")
        command, *arguments = _words_of(field_of(form, "command"))
        options = {"command": command, "args": arguments, "environment": _variables_of(form.get("environment", ""))}
    else:
        url = field_of(form, "url")
        private = None if rules_machine(request) else await guard.private(url)
        options = {"url": url, "token": form.get("token") or None, "private": private}
    if form.get("choice") == "test":
        listing = await library.mcp.look(**options)
        names = ", ".join(definition.name for definition in listing.definitions)
        return Notice(f"It answers, and has {plural(len(listing.definitions), 'tool')}{f': {names}' if names else ''}.")
    name = field_of(form, "name")
    server = await library.mcp.add_and_read(name, **options)
    if server.failure:
        text = f"{name} was registered, but it did not answer: {server.failure}. Test it again when it runs."
        return Notice(text, is_error=True)
    count = plural(sum(tool.status == "active" for tool in await library.mcp.tools(server.id)), "tool")
    return Notice(f"{name} was registered, and agents may have its {count}.", link=GIVE)


def _words_of(text: str) -> Sequence[str]:
    """The program and the arguments of a command line. Raises: InvalidInput."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidInput(f"command: {error}, such as a quotation mark that is not closed") from error


def _variables_of(text: str) -> dict[str, str]:
    """The variables that lines such as NAME=value set. Raises: InvalidInput."""
    pairs = [line.partition("=") for line in text.splitlines() if line.strip()]
    if wrong := [name for name, mark, _ in pairs if not mark]:
        raise InvalidInput(f"environment: {wrong[0]!r:.40} has no =: write NAME=value, one on each line")
    return {name.strip(): value.strip() for name, _, value in pairs}


async def refresh_server(request: Request, library: AsyncPerdure) -> Notice:
    """Connect to a server anew, and read its tools."""
    tools = await library.mcp.refresh(McpServerId(request.path_params["server_id"]))
    kinds = {"can be used": tools.active, "wait for approval": tools.pending, "have changed": tools.changed}
    said = [f"{len(names)} {words}" for words, names in kinds.items() if names]
    return Notice(f"It answers: {', '.join(said) or 'it has no tools'}.")


async def approve_tool(request: Request, library: AsyncPerdure) -> Notice:
    """Approve a tool's definition as the server gives it now; without a `tool` those of all its tools."""
    name = (await form_of(request)).get("tool", "")
    tools = await library.mcp.approve(McpServerId(request.path_params["server_id"]), [name] if name else None)
    text = f"{name} was approved." if name else f"All {plural(len(tools.active), 'tool')} are approved."
    return Notice(text, link=None if name else GIVE)


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
    is_of_page=True,
)


async def load_of_agent(request: Request, library: AsyncPerdure) -> Sequence[Data]:
    """The MCP servers with their approved tools, and which of these the page's agent has."""
    own = {state.tool.id for state in await library.agent_of(agent_id_of(request)).tools.states()}
    shapes = []
    for server in await library.mcp.list():
        tools = await library.mcp.tools(server.id)
        usable = [one for one in tools if one.tool_id is not None and one.status in ("active", "changed", "missing")]
        shapes.append(
            {
                **attributes(server, "id", "name", "failure"),
                "tools": [{**_tool_shape(one), "is_on": one.tool_id in own} for one in usable],
                "waiting": sum(tool.status in ("pending", "changed") for tool in tools),
            }
        )
    return shapes


async def switch_tools(request: Request, library: AsyncPerdure) -> Notice:
    """Give the agent a server's tools (one per line) or take them away; without a `tool` all it can have."""
    agent, form = library.agent_of(agent_id_of(request)), await form_of(request)
    server_id, is_on = McpServerId(request.path_params["server_id"]), form.get("on") == "yes"
    names = form.get("tool", "").split("\n")
    own = {state.tool.id for state in await agent.tools.states()}
    wanted = [one for one in await library.mcp.tools(server_id) if one.tool_id and (names == [""] or one.name in names)]
    if names != [""] and not wanted:
        raise NotFound("approved MCP tool", names[0])
    waiting, changed = list[str](), list[str]()
    for one in wanted:
        if one.tool_id and is_on and one.tool_id not in own:
            if one.status == "active":
                await agent.tools.attach(one.tool_id)
                changed.append(one.name)
            else:
                waiting.append(one.name)
        elif one.tool_id and not is_on and one.tool_id in own:
            await agent.tools.detach(one.tool_id)
            changed.append(one.name)
    left_out = f"not given: {', '.join(waiting)}; look at what changed on the page of connections" if waiting else ""
    if left_out and len(wanted) == 1:
        raise InvalidInput(left_out)
    what = "Each tool of the server" if names == [""] else " and ".join(names)
    return Notice(
        f"{what} {'is' if len(names) == 1 else 'are'} {'on' if is_on else 'off'} for this agent"
        f"{left_out and ', but '}{left_out}.",
        undo=f"/agents/{agent.id}/tools/mcp/{server_id}" if changed else None,
        fields={"tool": "\n".join(changed), "on": "no" if is_on else "yes"},
    )


OF_AGENT = Section(
    name="mcp_tools", load=load_of_agent, actions={"/agents/{agent_id}/tools/mcp/{server_id}": switch_tools}
)
