"""`perdure mcp`: add MCP servers, list them and their tools, refresh, approve and delete."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer

from perdure.cli.run import Yes, argument, command, flag, for_work, option

if for_work(__name__):
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import View, local_time, plural, visible
    from perdure.cli.work import confirm, deleted, none_yet, open_store
    from perdure.core.errors import InvalidInput, NotFound
    from perdure.core.mcp import Definition, InvalidEntry, McpServer, McpTool
    from perdure.core.secrets import REFERENCE
    from perdure.core.text.line_diff import unified_diff
    from perdure.domain.mcp import ToolsByStatus

Server = Annotated[str, argument("Its name or id.", "SERVER")]

NO_SERVER = "There are no MCP servers yet: `perdure mcp add NAME --url URL` registers one."
NAMES_MAX = 8


@command("mcp add", json=False)
async def add_server(
    view: View,
    name: Annotated[str, argument("Name of the server; its tools' names begin with it.", "NAME")],
    command: Annotated[list[str] | None, argument("The program to run, after two dashes.", "-- COMMAND ARG...")] = None,
    url: Annotated[str | None, option("Address of the server.", "URL")] = None,
    sse: Annotated[bool, flag("--sse", "The server uses the older SSE.")] = False,
    token_from: Annotated[
        str | None, option("Variable with the bearer token.", "VARIABLE", name="--token-from-env")
    ] = None,
    headers_from: Annotated[
        list[str] | None, option("A header, with the value of a variable.", "HEADER=VARIABLE", name="--header-from-env")
    ] = None,
    variables: Annotated[
        list[str] | None,
        option("A variable of the program: from here or a secret.", "NAME[=secret:NAME]", name="--env"),
    ] = None,
    trust: Annotated[bool, flag("--trust", "Its new tools need no approval, and its hints are trusted.")] = False,
    private: Annotated[
        bool | None,
        flag(
            "--private/--public",
            "Whether the URL may lead to this machine or a private network.",
            show_default="as it leads now",
        ),
    ] = None,
) -> None:
    """Register a server and approve the tools that it lists now.

    Secrets are read from variables of this shell or named as secret:NAME, never written as arguments; they are stored
    encrypted.
    """
    if bool(url) == bool(command):
        raise typer.BadParameter("give either --url URL, or -- and the command that runs the server")
    program, *arguments = command or [""]
    token = None if token_from is None else _read_variable(token_from)
    headers = dict(_parse_header(option) for option in headers_from or ())
    environment = dict(_parse_variable(option) for option in variables or ())
    async with open_store(view) as perdure:
        view.show_status(f"connecting to {name}…")
        server = await perdure.mcp.add(
            name,
            url=url or "",
            command=program,
            args=tuple(arguments),
            transport="sse" if sse else None,
            token=token,
            headers=headers,
            environment=environment,
            trusted=trust,
            private=private,
        )
        view.clear_status()
        state = await perdure.mcp.get(server.name)
        tools = [tool.local_name for tool in state.tools]
        listing = f": {_list_names(tools, ' and {} more')}" if tools else ""
        view.hint(f"Registered {visible(name)} with {plural(len(tools), 'tool')}{listing}.")
        for entry in state.server.left_out:
            view.hint(_left_out(entry))
        if tools:
            view.hint(f"`perdure tool attach {visible(tools[0])} AGENT` gives an agent one of them.")


@command("mcp list")
async def list_servers(view: View) -> None:
    """List the servers and the state of each."""
    async with open_store(view, empty=NO_SERVER) as perdure:
        states = [(server, await perdure.mcp.tools(server.id)) for server in await perdure.mcp.list()]
        view.show(
            [_server_shape(server, tools) for server, tools in states],
            *(_server_line(server, tools) for server, tools in states),
        )
        view.hint("`perdure mcp show SERVER` lists the tools of one." if states else NO_SERVER)


def _server_line(server: McpServer, tools: Sequence[McpTool]) -> str:
    """A server, where it is, and the state of its tools."""
    facts = plural(len(tools), "tool")
    if waiting := sum(tool.status in ("pending", "changed") for tool in tools):
        facts += f", {waiting} to approve"
    if server.left_out:
        facts += f", {len(server.left_out)} left out"
    facts += ", not read yet" if server.listed_at is None else f", read {local_time(server.listed_at)}"
    if server.failure:
        facts += f"; failed: {server.failure}"
    return visible(f"{server.name}  {server.transport}  {server.place}  {facts}")


@command("mcp show")
async def show_server(view: View, server: Server) -> None:
    """Show the tools of a server, and the state of each."""
    async with open_store(view, empty=none_yet("MCP server", server)) as perdure:
        state = await perdure.mcp.get(server)
        rows: list[tuple[str | None, ...]] = [
            (tool.name, tool.local_name, tool.tool_id, tool.status, tool.problem or None) for tool in state.tools
        ]
        rows += [(entry.name, None, None, "left_out", entry.reason) for entry in state.server.left_out]
        shapes = [dict(zip(("name", "tool", "id", "status", "problem"), row, strict=True)) for row in rows]
        view.show(shapes, *map(_tool_line, state.tools), *map(_left_out, state.server.left_out))
        view.hint("`perdure tool attach TOOL AGENT` gives an agent one of them.")


def _tool_line(tool: McpTool) -> str:
    """A tool, its status, and what it is for or what is wrong with it."""
    definition = tool.pinned or tool.seen
    about = "" if definition is None else definition.description.strip().partition("\n")[0][:100]
    return visible(f"{tool.local_name}  {tool.status}  {tool.problem or about}")


@command("mcp refresh", json=False)
async def refresh(view: View, server: Server) -> None:
    """Connect to a server and read its tools again."""
    async with open_store(view, empty=none_yet("MCP server", server)) as perdure:
        view.show_status(f"connecting to {server}…")
        tools = await perdure.mcp.refresh(server)
        view.hint(_summary(tools))
        for entry in tools.left_out:
            view.hint(_left_out(entry))
        if tools.pending or tools.changed or tools.removed:
            view.hint(f"`perdure mcp approve {server}` shows and approves what waits.")


@command("mcp approve", json=False)
async def approve(
    view: View,
    server: Server,
    tools: Annotated[
        list[str] | None, argument("Only these; by default all that wait for approval.", "[TOOL...]")
    ] = None,
    yes: Yes = False,
) -> None:
    """Show what has changed in a server's tools since you approved them, and approve it.

    Read the descriptions as you would read code: a model will follow them.
    """
    async with open_store(view, empty=none_yet("MCP server", server)) as perdure:
        known = await perdure.mcp.tools(server)
        names = {name for tool in known for name in (tool.name, tool.local_name)}
        if unknown := [name for name in tools or () if name not in names]:
            raise NotFound("MCP tool", unknown[0], hint=f"there are {', '.join(tool.name for tool in known)}")
        waiting = [
            tool for tool in known if (_is_named(tool, tools) if tools else tool.status not in ("active", "unusable"))
        ]
        if not waiting:
            view.hint("Nothing waits for approval.")
            return
        for tool in waiting:
            view.print(visible(f"{tool.local_name}: {tool.status}"), *map(visible, difference(tool)))
        confirm(view, f"Approve {plural(len(waiting), 'tool')}?", action="approve these differences", yes=yes)
        expected = {tool.name: tool.seen.digest for tool in waiting if tool.seen is not None}
        view.hint(_summary(await perdure.mcp.approve(server, [tool.name for tool in waiting], expected=expected)))


@command("mcp delete", json=False)
async def delete(view: View, server: Server, yes: Yes = False) -> None:
    """Delete a server and its tools, also from all agents."""
    async with open_store(view, empty=none_yet("MCP server", server)) as perdure:
        state = await perdure.mcp.get(server)
        what = f"server {visible(state.server.name)!r} with {plural(len(state.tools), 'tool')}"
        confirm(view, f"MCP {what} will be gone for good. Delete?", action="delete the MCP server", yes=yes)
        await perdure.mcp.remove(state.server.id)
        view.hint(deleted(f"MCP {what}", "`perdure mcp add` registers it again"))


def difference(tool: McpTool) -> list[str]:
    """What was approved and what is offered, as lines of a unified diff without its head."""
    before, after = _definition_lines(tool.pinned), _definition_lines(tool.seen)
    return [f"  {line}" for line in unified_diff("\n".join(before), "\n".join(after)).splitlines()]


def _definition_lines(definition: Definition | None) -> list[str]:
    """The definition of a tool as text: what a model is told, then its schema."""
    if definition is None:
        return []
    schema = {"input_schema": definition.parameters, "annotations": definition.annotations}
    text = json.dumps(schema, ensure_ascii=False, indent=1, sort_keys=True, default=dict)
    return [*definition.description.splitlines(), *text.splitlines()]


def _is_named(tool: McpTool, names: Sequence[str]) -> bool:
    """Whether one of the names is the tool's and it can still be approved."""
    return tool.status != "active" and not {tool.name, tool.local_name}.isdisjoint(names)


def _summary(tools: ToolsByStatus) -> str:
    """The names of a server's tools by status, on one line."""
    parts = [
        f"{len(names)} {status}: {_list_names(names, '…')}"
        for status in ("active", "pending", "changed", "missing", "removed", "unusable")
        if (names := getattr(tools, status))
    ]
    return visible("; ".join(parts) or "The server has no tools.")


def _list_names(names: Sequence[str], more: str) -> str:
    """The first names; `more` follows if there are others, with {} for their number."""
    text = ", ".join(names[:NAMES_MAX])
    return text + more.format(len(names) - NAMES_MAX) if len(names) > NAMES_MAX else text


def _left_out(entry: InvalidEntry) -> str:
    """A tool that is left out, and why."""
    return visible(f"{entry.name}  left out  {entry.reason}")


def _server_shape(server: McpServer, tools: Sequence[McpTool]) -> dict[str, object]:
    """A server for programs."""
    return {
        **fields(server, "name", "id", "transport", "place", "trusted", "private", "listed_at", "failure"),
        "left_out": len(server.left_out),
        "tools": Counter(tool.status for tool in tools),
    }


def _parse_header(option: str) -> tuple[str, str]:
    """The name and the value of HEADER=VARIABLE. Raises: InvalidInput."""
    name, equals, variable = option.partition("=")
    if not equals:
        raise InvalidInput(f"--header-from-env {name!r:.80}: write HEADER=VARIABLE, as in X-Api-Key=MY_KEY")
    return name, _read_variable(variable)


def _parse_variable(option: str) -> tuple[str, str]:
    """The name and the value of NAME or NAME=secret:NAME. Raises: InvalidInput."""
    name, equals, value = option.partition("=")
    if not equals:
        return name, _read_variable(name)
    if not value.startswith(REFERENCE):
        raise InvalidInput(
            f"--env {name[:80]}: other users of this machine see arguments, so write --env {name[:80]} alone, to take"
            f" its value from this shell, or --env {name[:80]}=secret:NAME"
        )
    return name, value


def _read_variable(name: str) -> str:
    """The value of a variable of this shell. Raises: InvalidInput: it is not set."""
    value = os.environ.get(name, "")
    if not value:
        raise InvalidInput(f"the variable {name[:80]!r} is not set in this shell")
    return value
