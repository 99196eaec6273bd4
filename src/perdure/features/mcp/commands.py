"""`perdure mcp`: add MCP servers, list them and their tools, refresh, approve and delete."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from perdure.cli.commands.run import Yes, argument, command, flag, for_work, option

if for_work(__name__):
    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.session.work import confirm, deleting, open_store, read_pairs
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import Output, first_names, local_time, plural, visible
    from perdure.core.errors import InvalidInput, NotFound
    from perdure.core.secrets import REFERENCE
    from perdure.core.text.line_diff import unified_diff
    from perdure.features.mcp.units import ToolsByStatus
    from perdure.features.mcp.values import InvalidEntry, McpServer, McpTool, ToolDefinition
    from perdure.library.perdure import AsyncPerdure

Server = Annotated[str, argument("Its name or id.", "SERVER")]

NO_SERVER = "There are no MCP servers yet: `perdure mcp add NAME --url URL` registers one."
NAMES_MAX = 8


@command("mcp add")
async def add_server(
    view: Output,
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
    headers = read_pairs("--header-from-env", headers_from, "HEADER=VARIABLE, as in X-Api-Key=MY_KEY")
    environment = dict(_parse_variable(option) for option in variables or ())
    async with open_store() as perdure:
        view.show_status(f"connecting to {name}…")
        server = await perdure.mcp.add(
            name,
            url=url or "",
            command=program,
            args=tuple(arguments),
            transport="sse" if sse else None,
            token=token,
            headers={name: _read_variable(variable) for name, variable in headers.items()},
            environment=environment,
            trusted=trust,
            private=private,
        )
        view.clear_status()
        state = await perdure.mcp.get(server.name)
        tools = [tool.local_name for tool in state.tools]
        listing = f": {first_names(tools, NAMES_MAX)}" if tools else ""
        view.hint(f"Registered {visible(name)} with {plural(len(tools), 'tool')}{listing}.")
        for entry in state.server.left_out:
            view.hint(_left_out_line(entry))
        view.show(_server_shape(state.server, state.tools))
        if tools:
            view.hint(f"`perdure tool attach {visible(tools[0])} AGENT` gives an agent one of them.")


@command("mcp list", none=NO_SERVER)
async def list_servers(view: Output, perdure: AsyncPerdure) -> None:
    """List the servers and the state of each."""
    shapes, lines = [], []
    for server in await perdure.mcp.list():
        shapes.append(_server_shape(server, await perdure.mcp.tools(server.id)))
        counts = shapes[-1]["tools"]
        text = plural(counts.total(), "tool")
        if waiting := counts["pending"] + counts["changed"]:
            text += f", {waiting} to approve"
        if server.left_out:
            text += f", {len(server.left_out)} left out"
        text += ", not read yet" if server.listed_at is None else f", read {local_time(server.listed_at)}"
        if server.failure:
            text += f"; failed: {server.failure}"
        lines.append(visible(f"{server.name}  {server.transport}  {server.place}  {text}"))
    view.show(shapes, *lines)
    view.hint("`perdure mcp show SERVER` lists the tools of one." if shapes else NO_SERVER)


def _server_shape(server: McpServer, tools: Sequence[McpTool]) -> dict[str, Any]:
    """A server as `--json` prints it, with the number of its tools in each state."""
    names = ("name", "id", "transport", "place", "trusted", "private", "listed_at", "failure")
    counts = Counter(tool.status for tool in tools)
    return {**fields(server, *names), "left_out": len(server.left_out), "tools": counts}


@command("mcp show", finds="MCP server")
async def show_server(view: Output, perdure: AsyncPerdure, server: Server) -> None:
    """Show the tools of a server, and the state of each."""
    state = await perdure.mcp.get(server)
    rows: list[tuple[str | None, ...]] = [
        (tool.name, tool.local_name, tool.tool_id, tool.status, tool.problem or None) for tool in state.tools
    ]
    rows += [(entry.name, None, None, "left_out", entry.reason) for entry in state.server.left_out]
    shapes = [dict(zip(("name", "tool", "id", "status", "problem"), row, strict=True)) for row in rows]
    view.show(shapes, *map(_tool_line, state.tools), *map(_left_out_line, state.server.left_out))
    view.hint("`perdure tool attach TOOL AGENT` gives an agent one of them.")


def _tool_line(tool: McpTool) -> str:
    """Return a line about a tool: its name, status, and purpose or problem."""
    definition = tool.pinned or tool.seen
    about = "" if definition is None else definition.description.strip().partition("\n")[0][:100]
    return visible(f"{tool.local_name}  {tool.status}  {tool.problem or about}")


@command("mcp refresh", finds="MCP server")
async def refresh(view: Output, perdure: AsyncPerdure, server: Server) -> None:
    """Connect to a server and read its tools again."""
    view.show_status(f"connecting to {server}…")
    tools = await perdure.mcp.refresh(server)
    view.show(asdict(tools))
    view.hint(_summary(tools))
    for entry in tools.left_out:
        view.hint(_left_out_line(entry))
    if tools.pending or tools.changed or tools.removed:
        view.hint(f"`perdure mcp approve {shell_word(server)}` shows and approves what waits.")


@command("mcp approve", finds="MCP server")
async def approve(
    view: Output,
    perdure: AsyncPerdure,
    server: Server,
    tools: Annotated[
        list[str] | None, argument("Only these; by default all that wait for approval.", "[TOOL...]")
    ] = None,
    yes: Yes = False,
) -> None:
    """Show what has changed in a server's tools since you approved them, and approve it.

    Read the descriptions as you would read code: a model will follow them.
    """
    all_tools = await perdure.mcp.tools(server)
    names = {name for tool in all_tools for name in (tool.name, tool.local_name)}
    if unknown := [name for name in tools or () if name not in names]:
        raise NotFound("MCP tool", unknown[0], hint=f"there are {', '.join(tool.name for tool in all_tools)}")
    if tools:
        waiting = [
            tool for tool in all_tools if tool.status != "active" and {tool.name, tool.local_name}.intersection(tools)
        ]
    else:
        waiting = [tool for tool in all_tools if tool.status not in ("active", "unusable")]
    if not waiting:
        view.show(asdict(ToolsByStatus(active=tuple(tool.name for tool in all_tools if tool.status == "active"))))
        view.hint("Nothing waits for approval.")
        return
    for tool in waiting:
        view.print(visible(f"{tool.local_name}: {tool.status}"), *map(visible, difference(tool)))
    confirm(view, f"Approve {plural(len(waiting), 'tool')}?", action="approve these differences", yes=yes)
    expected = {tool.name: tool.seen.digest for tool in waiting if tool.seen is not None}
    approved = await perdure.mcp.approve(server, [tool.name for tool in waiting], expected=expected)
    view.show(asdict(approved))
    view.hint(_summary(approved))


@command("mcp delete", finds="MCP server")
async def delete(view: Output, perdure: AsyncPerdure, server: Server, yes: Yes = False) -> None:
    """Delete a server and its tools, also from all agents."""
    state = await perdure.mcp.get(server)
    what = f"MCP server {visible(state.server.name)!r} with {plural(len(state.tools), 'tool')}"
    with deleting(view, what, yes=yes, after="`perdure mcp add` registers it again", id_=state.server.id):
        await perdure.mcp.remove(state.server.id)


def difference(tool: McpTool) -> list[str]:
    """What was approved and what is offered, as lines of a unified diff without its head."""
    before, after = _definition_lines(tool.pinned), _definition_lines(tool.seen)
    return [f"  {line}" for line in unified_diff("\n".join(before), "\n".join(after)).splitlines()]


def _definition_lines(definition: ToolDefinition | None) -> list[str]:
    """The definition of a tool as text: what a model is told, then its schema."""
    if definition is None:
        return []
    schema = {"input_schema": definition.parameters, "annotations": definition.annotations}
    text = json.dumps(schema, ensure_ascii=False, indent=1, sort_keys=True, default=dict)
    return [*definition.description.splitlines(), *text.splitlines()]


def _summary(tools: ToolsByStatus) -> str:
    """The names of a server's tools by status, on one line."""
    parts = [
        f"{len(names)} {status}: {first_names(names, NAMES_MAX)}"
        for status in ("active", "pending", "changed", "missing", "removed", "unusable")
        if (names := getattr(tools, status))
    ]
    return visible("; ".join(parts) or "The server has no tools.")


def _left_out_line(entry: InvalidEntry) -> str:
    """A tool that is left out, and why."""
    return visible(f"{entry.name}  left out  {entry.reason}")


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
