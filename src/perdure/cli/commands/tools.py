"""Tools from the command line: made of a file, listed, shown, tried, given to agents, removed."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from perdure.cli.open_store import Shown, with_store
from perdure.cli.views.fold import fold, visible
from perdure.core.errors import InvalidInput, NotFound, PerdureError
from perdure.core.tools.arguments import read_json
from perdure.core.tools.spec import Tool, ToolCode, ToolOutcome
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings

__all__ = ["add_tool", "attach_tool", "detach_tool", "list_tools", "remove_tool", "show_tool", "test_tool"]

SOURCE_BYTES = 2_000_000
PAGE = 100
SIGNATURE_CHARS = 48
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")
NOTHING_YET = "There are no tools of your own yet: `perdure tool add FILE.py` makes one."


async def add_tool(
    file: Path,
    *,
    name: str | None,
    requirements: Sequence[str],
    environment: Sequence[str],
    network: Sequence[str],
    requires_approval: bool,
    timeout_s: float | None,
    as_json: bool,
) -> int:
    """Make a tool of a file, or change the one of its name."""
    shown = Shown(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        options: dict[str, Any] = {
            "requirements": list(requirements),
            "environment": _variables(environment),
            "network": list(network),
            "requires_approval": requires_approval,
            "timeout_s": timeout_s,
        }
        if name is not None:
            options["name"] = name
        tool = await perdure.tools.upsert(await asyncio.to_thread(_source, file), **options)
        if as_json:
            shown.json(_shape(tool, await perdure.tools.code(tool.id)))
            return 0
        shown.print(_signature(tool))
        shown.view.hint(
            f"Stored {tool.spec.name}. `perdure tool test {tool.spec.name} '{_example(tool)}'` tries it,"
            f" `perdure tool attach {tool.spec.name}` gives it to the agent used last."
        )
        return 0

    return await _opened(shown, work)


async def list_tools(*, everything: bool, as_json: bool) -> int:
    """Print the tools. A data folder that is not there is left so."""
    shown = Shown(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        tools = [tool for tool in await _all(perdure) if everything or not tool.spec.tool_type.startswith("letta_")]
        having = await _having(perdure)
        if as_json:
            shown.json([_shape(tool, None) | {"agents": having.get(tool.spec.name, [])} for tool in tools])
        elif not tools:
            shown.view.hint(NOTHING_YET)
        else:
            shown.terminal.show(_table(tools, having))
            shown.view.hint("`perdure tool show NAME` shows one; `perdure tool test NAME ARGS` tries it.")
        return 0

    return await with_store(shown, work, empty=NOTHING_YET)


async def show_tool(name: str, *, as_json: bool) -> int:
    """Print what a model is told of a tool, and its source."""
    shown = Shown(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        tool = await perdure.tools.get(name)
        code = await perdure.tools.code(tool.id)
        if as_json:
            shown.json(_shape(tool, code))
            return 0
        shown.print(f"{_signature(tool)}\n\n{visible(tool.spec.description)}\n")
        shown.print(f"{_how_it_runs(tool, code)}\n")
        shown.print(json.dumps(dict(tool.spec.parameters), ensure_ascii=False, indent=2))
        if code is not None:
            shown.print(f"\n{visible(code.source).strip()}")
        return 0

    return await _opened(shown, work, must_exist=name)


async def test_tool(name: str, arguments: str, *, agent: str | None, as_json: bool) -> int:
    """Run a tool, or a file that is not added yet, and print its result; 1 if it failed.

    Args:
        agent: of the one that it is run for; None: for none.
    """
    shown = Shown(as_json=as_json)
    told = sys.stderr if shown.watched else None

    def progress(line: str) -> None:
        print(line, file=told or sys.stderr)

    async def work(perdure: AsyncPerdure) -> int:
        given = _arguments(arguments)
        file = Path(name)
        if agent is not None:
            outcome = await (await _agent(perdure, agent)).tools.run(name, given)
        elif name.endswith(".py"):
            outcome = await perdure.tools.test_source(await asyncio.to_thread(_source, file), given, progress=progress)
        else:
            outcome = await perdure.tools.test(name, given, progress=progress)
        _show(shown, outcome)
        return 0 if outcome.status == "success" else 1

    return await _opened(shown, work)


async def attach_tool(name: str, *, agent: str | None) -> int:
    """Give a tool to an agent."""
    shown = Shown(as_json=False)

    async def work(perdure: AsyncPerdure) -> int:
        owner = await _agent(perdure, agent)
        tool = await owner.tools.attach(name)
        shown.view.hint(f"{owner.name} has {tool.spec.name} from its next answer on: `perdure chat {owner.name}`.")
        return 0

    return await _opened(shown, work, must_exist=name)


async def detach_tool(name: str, *, agent: str | None) -> int:
    """Take a tool from an agent."""
    shown = Shown(as_json=False)

    async def work(perdure: AsyncPerdure) -> int:
        owner = await _agent(perdure, agent)
        await owner.tools.detach(name)
        shown.view.hint(f"{owner.name} has {name} no longer; the tool itself stays.")
        return 0

    return await _opened(shown, work, must_exist=name)


async def remove_tool(name: str) -> int:
    """Remove a tool."""
    shown = Shown(as_json=False)

    async def work(perdure: AsyncPerdure) -> int:
        await perdure.tools.delete(name)
        shown.view.hint(f"Removed {name}.")
        return 0

    return await _opened(shown, work, must_exist=name)


async def _opened(
    shown: Shown, work: Callable[[AsyncPerdure], Awaitable[int]], *, must_exist: str | None = None
) -> int:
    """What `work` returns, given the store of the data folder, which is made if need be.

    Args:
        must_exist: the name of a tool that there can't be where there is no store.
    """
    try:
        settings = Settings.from_environment()
        if must_exist is not None and not settings.store_path.exists():
            raise NotFound("tool", must_exist, hint="there is none yet")
        async with await AsyncPerdure.open(settings=settings) as perdure:
            return await work(perdure)
    except PerdureError as error:
        shown.view.error(error)
        return 1


def _source(file: Path) -> str:
    try:
        if file.stat().st_size > SOURCE_BYTES:
            raise InvalidInput(f"{file} is larger than {SOURCE_BYTES:,} bytes: that is no tool's source")
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is no text in UTF-8 ({error})") from error
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{str(file)!r} can't be read: {getattr(error, 'strerror', None) or error}") from error


def _variables(given: Sequence[str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise InvalidInput(f"--env is {one[:80]!r}: write NAME=VALUE, or NAME=secret:NAME for a secret")
        made[name] = value
    return made


def _arguments(text: str) -> dict[str, Any]:
    try:
        given = read_json(text)
    except (ValueError, RecursionError) as error:
        why = f" ({error!s:.200})" if str(error) else ""
        problem = f'ARGS is {text[:80]!r}{why}: write a JSON object, such as \'{{"city": "Rome"}}\''
        raise InvalidInput(problem) from error
    if not isinstance(given, dict):
        raise InvalidInput(f'ARGS is {text[:80]!r}: write a JSON object, such as \'{{"city": "Rome"}}\'')
    return given


async def _agent(perdure: AsyncPerdure, name: str | None) -> AsyncAgent:
    agent = await perdure.last_agent() if name is None else await perdure.agent(name)
    if agent is None:
        raise NotFound("agent", "used last", hint="there is none yet; `perdure` makes one")
    return agent


async def _all(perdure: AsyncPerdure) -> list[Tool]:
    found: list[Tool] = []
    while page := await perdure.tools.list(limit=PAGE, after=found[-1].id if found else None):
        found += page
    return found


async def _having(perdure: AsyncPerdure) -> dict[str, list[str]]:
    """Name of a tool -> names of the agents that have it."""
    having: dict[str, list[str]] = {}
    agents: list[AsyncAgent] = []
    while page := await perdure.agents(limit=PAGE, after=agents[-1].id if agents else None):
        agents += page
    for agent in agents:
        for tool in await agent.tools.list():
            having.setdefault(tool.spec.name, []).append(agent.name)
    return having


def _shape(tool: Tool, code: ToolCode | None) -> dict[str, Any]:
    spec = tool.spec
    shape: dict[str, Any] = {
        "name": spec.name,
        "id": tool.id,
        "tool_type": spec.tool_type,
        "description": spec.description,
        "parameters": dict(spec.parameters),
        "tags": list(tool.tags),
        "requires_approval": spec.requires_approval,
        "timeout_s": spec.timeout_s,
    }
    if code is not None:
        shape |= {
            "source": code.source,
            "requirements": list(code.requirements),
            "environment": dict(code.environment),
            "network": list(code.network),
        }
    return shape


def _signature(tool: Tool) -> str:
    """`roll(sides, label?)`"""
    required = tool.spec.parameters.get("required", ())
    names = [name if name in required else f"{name}?" for name in tool.spec.parameters.get("properties", {})]
    return f"{visible(tool.spec.name)}({', '.join(map(visible, names))})"


def _how_it_runs(tool: Tool, code: ToolCode | None) -> str:
    """Kind, limits and permissions, in a line."""
    spec = tool.spec
    told = [_kind(tool)]
    if spec.requires_approval:
        told.append("a person approves each call")
    if code is not None:
        if spec.timeout_s is not None:
            told.append(f"up to {spec.timeout_s:g} s")
        told.append(f"reaches {', '.join(code.network)}, where it is allowed" if code.network else "no network")
        told += [f"needs {requirement}" for requirement in code.requirements]
        told += [f"sees {name}" for name in code.environment]
    return visible("; ".join(told))


def _kind(tool: Tool) -> str:
    kind = tool.spec.tool_type
    return "built in" if kind.startswith("letta_") else {"external_mcp": "MCP"}.get(kind, kind)


def _example(tool: Tool) -> str:
    """Arguments to begin with: those that are required."""
    samples = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    properties = tool.spec.parameters.get("properties", {})
    required = [name for name in tool.spec.parameters.get("required", ()) if name in properties]
    return json.dumps({name: samples.get(properties[name].get("type"), "...") for name in required})


def _show(shown: Shown, outcome: ToolOutcome) -> None:
    if shown.as_json:
        shown.json(
            {
                "status": outcome.status,
                "result": outcome.text,
                "stdout": "".join(outcome.stdout),
                "stderr": "".join(outcome.stderr),
            }
        )
        return
    for text in (*outcome.stdout, *outcome.stderr):
        print(visible(text.rstrip("\n")), file=sys.stderr)
    if outcome.status == "success":
        shown.print(visible(outcome.text))
    else:
        shown.view.error(InvalidInput(outcome.text.removeprefix("error:").strip()))


def _table(tools: Sequence[Tool], having: dict[str, list[str]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("tool", "kind", "agents", "what it does"):
        table.add_column(name, overflow="fold")
    for tool in tools:
        table.add_row(
            Text(fold(_signature(tool), SIGNATURE_CHARS), style="bold"),
            Text(_kind(tool), style="dim"),
            Text(visible(", ".join(having.get(tool.spec.name, []))) or "-"),
            Text(visible(_SENTENCE.split(tool.spec.description.strip(), maxsplit=1)[0])),
        )
    return table
