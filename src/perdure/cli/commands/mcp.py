"""`perdure mcp`: add MCP servers, list them and their tools, refresh, approve and remove."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from perdure.cli.confirm import confirm
from perdure.cli.open_store import Output, with_store
from perdure.cli.views.fold import local_time, plural, visible
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.mcp import Definition, LeftOut, McpServer, McpTool
from perdure.core.secrets import REFERENCE
from perdure.core.text.line_diff import diff_of
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.mcp import ToolsByStatus
from perdure.settings import Settings

NO_SERVER = "There are no MCP servers yet: `perdure mcp add NAME --url URL` registers one."
NOT_FOUND = NotFound("MCP server", "", hint="there is none yet")
NAMES_MAX = 8


async def add_server(
    *,
    name: str,
    command: Sequence[str],
    url: str | None,
    sse: bool,
    token_from: str | None,
    headers_from: Sequence[str],
    variables: Sequence[str],
    trust: bool,
    private: bool | None,
) -> int:
    """Register a server and show its tools."""
    output = Output()
    credentials: dict[str, Any] = {}

    def check(settings: Settings) -> None:
        credentials["token"] = None if token_from is None else _read_variable(token_from)
        credentials["headers"] = dict(_parse_header(option) for option in headers_from)
        credentials["environment"] = dict(_parse_variable(option) for option in variables)

    async def work(perdure: AsyncPerdure) -> int:
        output.terminal.show_status(f"connecting to {name}…")
        server = await perdure.mcp.add(
            name,
            url=url or "",
            command=command[0] if command else "",
            args=tuple(command[1:]),
            transport="sse" if sse else None,
            **credentials,
            trusted=trust,
            private=private,
        )
        output.terminal.clear_status()
        state = await perdure.mcp.get(server.name)
        tools = [tool.local_name for tool in state.tools]
        listed = f": {_list_names(tools, ' and {} more')}" if tools else ""
        output.view.hint(f"Registered {visible(name)} with {plural(len(tools), 'tool')}{listed}.")
        for entry in state.server.left_out:
            output.view.hint(_left_out(entry))
        if tools:
            output.view.hint(f"`perdure tool attach {visible(tools[0])} --agent NAME` gives an agent one of them.")
        return 0

    return await with_store(output, work, check=check)


async def list_servers(*, as_json: bool) -> int:
    """Print the servers. No store is made."""
    output = Output(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        servers = await perdure.mcp.list()
        states = [(server, await perdure.mcp.tools(server.id)) for server in servers]
        if as_json:
            output.json([_server_shape(server, tools) for server, tools in states])
            return 0
        if not servers:
            output.view.hint(NO_SERVER)
        for server, tools in states:
            facts = plural(len(tools), "tool")
            if waiting := sum(tool.status in ("pending", "changed") for tool in tools):
                facts += f", {waiting} to approve"
            if server.left_out:
                facts += f", {len(server.left_out)} left out"
            facts += ", not read yet" if server.listed_at is None else f", read {local_time(server.listed_at)}"
            if server.failure:
                facts += f"; failed: {server.failure}"
            output.print(visible(f"{server.name}  {server.transport}  {server.place}  {facts}"))
        return 0

    return await with_store(output, work, empty=NO_SERVER)


async def list_tools(*, server: str, as_json: bool) -> int:
    """Print a server's tools with their states."""
    output = Output(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        state = await perdure.mcp.get(server)
        if as_json:
            rows: list[tuple[str | None, ...]] = [
                (tool.name, tool.local_name, tool.tool_id, tool.status, tool.problem or None) for tool in state.tools
            ]
            rows += [(entry.name, None, None, "left_out", entry.reason) for entry in state.server.left_out]
            output.json([dict(zip(("name", "tool", "id", "status", "problem"), row, strict=True)) for row in rows])
            return 0
        for tool in state.tools:
            definition = tool.pinned or tool.seen
            about = "" if definition is None else definition.description.strip().partition("\n")[0][:100]
            output.print(visible(f"{tool.local_name}  {tool.status}  {tool.problem or about}"))
        for entry in state.server.left_out:
            output.print(_left_out(entry))
        return 0

    return await with_store(output, work, empty=NOT_FOUND)


async def refresh(*, server: str) -> int:
    """Read a server's tools again and print what changed."""
    output = Output()

    async def work(perdure: AsyncPerdure) -> int:
        output.terminal.show_status(f"connecting to {server}…")
        synced = await perdure.mcp.refresh(server)
        output.view.hint(_summary(synced))
        for entry in synced.left_out:
            output.view.hint(_left_out(entry))
        if synced.pending or synced.changed or synced.removed:
            output.view.hint(f"`perdure mcp approve {server}` shows and approves what waits.")
        return 0

    return await with_store(output, work, empty=NOT_FOUND)


async def approve(*, server: str, tools: Sequence[str] | None, yes: bool) -> int:
    """Show the differences, ask, and approve exactly what was shown."""
    output = Output()

    async def work(perdure: AsyncPerdure) -> int:
        known = await perdure.mcp.tools(server)
        names = {name for tool in known for name in (tool.name, tool.local_name)}
        if unknown := [name for name in tools or () if name not in names]:
            raise NotFound("MCP tool", unknown[0], hint=f"there are {', '.join(tool.name for tool in known)}")
        waiting = [
            tool
            for tool in known
            if (tool.status not in ("active", "unusable") if tools is None else _is_named(tool, tools))
        ]
        if not waiting:
            output.view.hint("Nothing waits for approval.")
            return 0
        for tool in waiting:
            output.print(visible(f"{tool.local_name}: {tool.status}"))
            for line in difference(tool):
                output.print(visible(line))
        question = f"Approve {plural(len(waiting), 'tool')}?"
        if not confirm(question, action="approve these differences", yes=yes):
            output.view.hint("Nothing was approved.")
            return 0
        expected = {tool.name: tool.seen.digest for tool in waiting if tool.seen is not None}
        synced = await perdure.mcp.approve(server, [tool.name for tool in waiting], expected=expected)
        output.view.hint(_summary(synced))
        return 0

    return await with_store(output, work, empty=NOT_FOUND)


async def remove(*, server: str) -> int:
    """Remove a server and its tools."""
    output = Output()

    async def work(perdure: AsyncPerdure) -> int:
        await perdure.mcp.remove(server)
        output.view.hint(f"Removed {visible(server)} and its tools.")
        return 0

    return await with_store(output, work, empty=NOT_FOUND)


def difference(tool: McpTool) -> list[str]:
    """What was approved and what is offered, as lines of a unified diff without its head."""
    before, after = _lines(tool.pinned), _lines(tool.seen)
    return [f"  {line}" for line in diff_of("\n".join(before), "\n".join(after)).splitlines()]


def _lines(definition: Definition | None) -> list[str]:
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


def _left_out(entry: LeftOut) -> str:
    return visible(f"{entry.name}  left out  {entry.reason}")


def _server_shape(server: McpServer, tools: Sequence[McpTool]) -> dict[str, object]:
    statuses = sorted({tool.status for tool in tools})
    return {
        "name": server.name,
        "id": server.id,
        "transport": server.transport,
        "place": server.place,
        "trusted": server.trusted,
        "private": server.private,
        "listed_at": None if server.listed_at is None else server.listed_at.isoformat(),
        "failure": server.failure,
        "left_out": len(server.left_out),
        "tools": {status: sum(tool.status == status for tool in tools) for status in statuses},
    }


def _parse_header(option: str) -> tuple[str, str]:
    name, equals, variable = option.partition("=")
    if not equals:
        raise InvalidInput(f"--header-from-env {name!r:.80}: write HEADER=VARIABLE, as in X-Api-Key=MY_KEY")
    return name, _read_variable(variable)


def _parse_variable(option: str) -> tuple[str, str]:
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
    value = os.environ.get(name, "")
    if not value:
        raise InvalidInput(f"the variable {name[:80]!r} is not set in this shell")
    return value
