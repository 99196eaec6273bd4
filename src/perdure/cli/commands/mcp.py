"""MCP servers from the command line: registered, listed, read anew, compared and approved, removed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence

from perdure.cli.open_store import Shown, with_store
from perdure.cli.views.fold import local_time, visible
from perdure.core.errors import InvalidInput, NotFound, PerdureError
from perdure.core.mcp import Definition, LeftOut, McpServer, McpTool
from perdure.core.secrets import REFERENCE
from perdure.core.text.line_diff import diff_of
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.mcp import ToolsByStatus
from perdure.settings import Settings

__all__ = ["add_server", "approve", "list_servers", "list_tools", "refresh", "remove"]

NOTHING_YET = "There are no MCP servers yet: `perdure mcp add NAME --url URL` registers one."
NAMES_SHOWN = 8


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
    shown = Shown(as_json=False)
    try:
        headers = dict(_header(one) for one in headers_from)
        environment = dict(_environment(one) for one in variables)
        token = None if token_from is None else _variable(token_from)
        async with await AsyncPerdure.open(settings=Settings.from_environment()) as perdure:
            shown.terminal.waiting(f"connecting to {name}…")
            server = await perdure.mcp.add(
                name,
                url=url or "",
                command=command[0] if command else "",
                args=tuple(command[1:]),
                transport="sse" if sse else None,
                token=token,
                headers=headers,
                environment=environment,
                trusted=trust,
                private=private,
            )
            state = await perdure.mcp.get(server.name)
            tools = [one.local_name for one in state.tools]
    except PerdureError as error:
        shown.view.error(error)
        return 1
    shown.terminal.idle()
    names = ", ".join(tools[:NAMES_SHOWN]) + (f" and {len(tools) - NAMES_SHOWN} more" * (len(tools) > NAMES_SHOWN))
    shown.view.hint(f"Registered {visible(name)} with {_count(len(tools))}{f': {names}' if tools else ''}.")
    for one in state.server.left_out:
        shown.view.hint(_left_out(one))
    if tools:
        shown.view.hint(f"`perdure tool attach {visible(tools[0])} --agent NAME` gives an agent one of them.")
    return 0


async def list_servers(*, as_json: bool) -> int:
    """Print the servers. A data folder that is not there is left so."""
    shown = Shown(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        servers = await perdure.mcp.list()
        states = [(server, await perdure.mcp.tools(server.id)) for server in servers]
        if as_json:
            shown.json([_server_json(server, tools) for server, tools in states])
        elif not servers:
            shown.view.hint(NOTHING_YET)
        for server, tools in () if as_json else states:
            read = "not read yet" if server.listed_at is None else f"read {local_time(server.listed_at)}"
            waiting = sum(one.status in ("pending", "changed") for one in tools)
            wait = f", {waiting} to approve" if waiting else ""
            wait += f", {len(server.left_out)} left out" if server.left_out else ""
            told = f"; failed: {server.failure}" if server.failure else ""
            shown.print(
                visible(f"{server.name}  {server.transport}  {server.place}  {_count(len(tools))}{wait}, {read}{told}")
            )
        return 0

    return await with_store(shown, work, empty=NOTHING_YET)


async def list_tools(*, server: str, as_json: bool) -> int:
    """Print a server's tools with their states."""

    async def work(perdure: AsyncPerdure, shown: Shown) -> None:
        state = await perdure.mcp.get(server)
        tools, left_out = state.tools, state.server.left_out
        if as_json:
            shown.json(
                [
                    {
                        "name": one.name,
                        "tool": one.local_name,
                        "id": one.tool_id,
                        "status": one.status,
                        "problem": one.problem or None,
                    }
                    for one in tools
                ]
                + [
                    {"name": one.name, "tool": None, "id": None, "status": "left_out", "problem": one.reason}
                    for one in left_out
                ]
            )
            return
        for one in tools:
            said = one.pinned or one.seen
            about = "" if said is None else said.description.strip().partition("\n")[0][:100]
            shown.print(visible(f"{one.local_name}  {one.status}  {one.problem or about}"))
        for out in left_out:
            shown.print(_left_out(out))

    return await _with_server(work, as_json=as_json)


async def refresh(*, server: str) -> int:
    """Read the tools anew and print what that showed."""

    async def work(perdure: AsyncPerdure, shown: Shown) -> None:
        shown.terminal.waiting(f"connecting to {server}…")
        synced = await perdure.mcp.refresh(server)
        shown.terminal.idle()
        shown.view.hint(_told(synced))
        for one in synced.left_out:
            shown.view.hint(_left_out(one))
        if synced.pending or synced.changed or synced.removed:
            shown.view.hint(f"`perdure mcp approve {server}` shows and approves what waits.")

    return await _with_server(work)


async def approve(*, server: str, tools: Sequence[str] | None, yes: bool) -> int:
    """Show the differences, ask, and approve exactly what was shown."""

    async def work(perdure: AsyncPerdure, shown: Shown) -> None:
        known = await perdure.mcp.tools(server)
        if tools is not None and (strange := [one for one in tools if not any(_is(other, one) for other in known)]):
            raise NotFound("MCP tool", strange[0], hint=f"there are {', '.join(one.name for one in known)}")
        left = ("active", "unusable") if tools is None else ("active",)
        waiting = [
            one for one in known if one.status not in left and (tools is None or any(_is(one, name) for name in tools))
        ]
        if not waiting:
            shown.view.hint("Nothing waits for approval.")
            return
        for one in waiting:
            shown.print(visible(f"{one.local_name}: {one.status}"))
            for line in difference(one):
                shown.print(visible(line))
        if not yes and not _agreed(len(waiting)):
            shown.view.hint("Nothing was approved.")
            return
        expected = {one.name: one.seen.digest for one in waiting if one.seen is not None}
        synced = await perdure.mcp.approve(server, [one.name for one in waiting], expected=expected)
        shown.view.hint(_told(synced))

    return await _with_server(work)


async def remove(*, server: str) -> int:
    """Remove a server."""

    async def work(perdure: AsyncPerdure, shown: Shown) -> None:
        await perdure.mcp.remove(server)
        shown.view.hint(f"Removed {visible(server)} and its tools.")

    return await _with_server(work)


def difference(tool: McpTool) -> list[str]:
    """What was approved and what is offered, as lines of a unified diff without its head."""
    before, after = _lines(tool.pinned), _lines(tool.seen)
    return [f"  {line}" for line in diff_of("\n".join(before), "\n".join(after)).splitlines()]


async def _with_server(work: Callable[[AsyncPerdure, Shown], Awaitable[None]], *, as_json: bool = False) -> int:
    """Do something with the open store. Where there is none, there is no server either."""
    shown = Shown(as_json=as_json)
    try:
        settings = Settings.from_environment()
        if not settings.store_path.exists():
            raise NotFound("MCP server", "", hint="there is none yet")
        async with await AsyncPerdure.open(settings=settings) as perdure:
            await work(perdure, shown)
    except PerdureError as error:
        shown.terminal.idle()
        shown.view.error(error)
        return 1
    return 0


def _lines(definition: Definition | None) -> list[str]:
    if definition is None:
        return []
    told = {"input_schema": definition.parameters, "annotations": definition.annotations}
    text = json.dumps(told, ensure_ascii=False, indent=1, sort_keys=True, default=dict)
    return [*definition.description.splitlines(), *text.splitlines()]


def _agreed(count: int) -> bool:
    """Whether a person says yes. Raises: InvalidInput: there is nobody to ask."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInput("there is no terminal to ask at: look at the differences, then add --yes")
    return input(f"Approve {_count(count)}? [y/N] ").strip().lower() in ("y", "yes")


def _is(tool: McpTool, name: str) -> bool:
    return name in (tool.name, tool.local_name)


def _told(synced: ToolsByStatus) -> str:
    parts = [
        f"{len(names)} {status}: {', '.join(names[:NAMES_SHOWN])}{'…' if len(names) > NAMES_SHOWN else ''}"
        for status in ("active", "pending", "changed", "missing", "removed", "unusable")
        if (names := getattr(synced, status))
    ]
    return visible("; ".join(parts) or "The server has no tools.")


def _left_out(one: LeftOut) -> str:
    return visible(f"{one.name}  left out  {one.reason}")


def _server_json(server: McpServer, tools: Sequence[McpTool]) -> dict[str, object]:
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
        "tools": {status: sum(one.status == status for one in tools) for status in sorted({o.status for o in tools})},
    }


def _header(given: str) -> tuple[str, str]:
    name, is_there, variable = given.partition("=")
    if not is_there:
        raise InvalidInput(f"--header-from-env {name!r:.80}: write HEADER=VARIABLE, as in X-Api-Key=MY_KEY")
    return name, _variable(variable)


def _environment(given: str) -> tuple[str, str]:
    name, is_there, value = given.partition("=")
    if not is_there:
        return name, _variable(name)
    if not value.startswith(REFERENCE):
        raise InvalidInput(
            f"--env {name[:80]}: other users of this machine see arguments, so write --env {name[:80]} alone, to have"
            f" it as it is here, or --env {name[:80]}=secret:NAME"
        )
    return name, value


def _variable(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise InvalidInput(f"the variable {name[:80]!r} is not set in this shell")
    return value


def _count(number: int) -> str:
    return f"{number:,} tool{'' if number == 1 else 's'}"
