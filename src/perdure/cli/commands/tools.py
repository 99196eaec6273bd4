"""`perdure tool`: add a tool from a file, list, show, test, attach, detach and remove tools."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.cli.open_store import Output, with_store
from perdure.cli.pages import PAGE, load_agents, load_all
from perdure.cli.views.fold import fold, visible
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.tools.arguments import read_json
from perdure.core.tools.spec import Tool, ToolCode, ToolOutcome
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

if TYPE_CHECKING:
    from rich.table import Table

SOURCE_BYTES = 2_000_000
SIGNATURE_CHARS = 48
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")
NO_TOOL = "There are no tools of your own yet: `perdure tool add FILE.py` makes one."


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
    output = Output(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        options: dict[str, Any] = {
            "requirements": list(requirements),
            "environment": _parse_variables(environment),
            "network": list(network),
            "requires_approval": requires_approval,
            "timeout_s": timeout_s,
        }
        if name is not None:
            options["name"] = name
        tool = await perdure.tools.upsert(_read_source(file), **options)
        if as_json:
            output.json(_shape(tool, await perdure.tools.code(tool.id)))
            return 0
        output.print(_signature(tool))
        output.view.hint(
            f"Stored {tool.spec.name}. `perdure tool test {tool.spec.name} '{_example(tool)}'` tries it,"
            f" `perdure tool attach {tool.spec.name}` gives it to the agent used last."
        )
        return 0

    return await with_store(output, work)


async def list_tools(*, everything: bool, as_json: bool) -> int:
    """Print the tools with their agents. No store is made."""
    output = Output(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        tools = await load_all(lambda last: perdure.tools.list(limit=PAGE, after=last.id if last else None))
        tools = [tool for tool in tools if everything or not tool.spec.tool_type.startswith("letta_")]
        users = await _users(perdure)
        if as_json:
            output.json([_shape(tool, None) | {"agents": users.get(tool.spec.name, [])} for tool in tools])
        elif not tools:
            output.view.hint(NO_TOOL)
        else:
            output.terminal.show(_table(tools, users))
            output.view.hint("`perdure tool show NAME` shows one; `perdure tool test NAME ARGS` tries it.")
        return 0

    return await with_store(output, work, empty=NO_TOOL)


async def show_tool(name: str, *, as_json: bool) -> int:
    """Print what a model is told of a tool, and its source."""
    output = Output(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        tool = await perdure.tools.get(name)
        code = await perdure.tools.code(tool.id)
        if as_json:
            output.json(_shape(tool, code))
            return 0
        output.print(f"{_signature(tool)}\n\n{visible(tool.spec.description)}\n")
        output.print(f"{_how_it_runs(tool, code)}\n")
        output.print(json.dumps(dict(tool.spec.parameters), ensure_ascii=False, indent=2))
        if code is not None:
            output.print(f"\n{visible(code.source).strip()}")
        return 0

    return await with_store(output, work, empty=_not_found(name))


async def test_tool(name: str, arguments: str, *, agent: str | None, as_json: bool) -> int:
    """Run a tool, or a file that is not added yet, and print its result; the exit code is 1 if it failed.

    Args:
        agent: run it for this agent, by name or id; None: for no agent.
    """
    output = Output(as_json=as_json)

    def progress(line: str) -> None:
        print(line, file=sys.stderr)

    async def work(perdure: AsyncPerdure) -> int:
        values = _parse_arguments(arguments)
        if agent is not None:
            outcome = await (await _agent(perdure, agent)).tools.run(name, values)
        elif name.endswith(".py"):
            outcome = await perdure.tools.test_source(_read_source(Path(name)), values, progress=progress)
        else:
            outcome = await perdure.tools.test(name, values, progress=progress)
        _print_outcome(output, outcome)
        return 0 if outcome.status == "success" else 1

    return await with_store(output, work)


async def attach_tool(name: str, *, agent: str | None) -> int:
    """Give a tool to an agent."""
    output = Output()

    async def work(perdure: AsyncPerdure) -> int:
        owner = await _agent(perdure, agent)
        tool = await owner.tools.attach(name)
        output.view.hint(f"{owner.name} has {tool.spec.name} from its next answer on: `perdure chat {owner.name}`.")
        return 0

    return await with_store(output, work, empty=_not_found(name))


async def detach_tool(name: str, *, agent: str | None) -> int:
    """Take a tool from an agent."""
    output = Output()

    async def work(perdure: AsyncPerdure) -> int:
        owner = await _agent(perdure, agent)
        await owner.tools.detach(name)
        output.view.hint(f"{owner.name} has {name} no longer; the tool itself stays.")
        return 0

    return await with_store(output, work, empty=_not_found(name))


async def remove_tool(name: str) -> int:
    """Remove a tool."""
    output = Output()

    async def work(perdure: AsyncPerdure) -> int:
        await perdure.tools.delete(name)
        output.view.hint(f"Removed {name}.")
        return 0

    return await with_store(output, work, empty=_not_found(name))


def _read_source(file: Path) -> str:
    try:
        if file.stat().st_size > SOURCE_BYTES:
            raise InvalidInput(f"{file} is larger than {SOURCE_BYTES:,} bytes: that is no tool's source")
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is no text in UTF-8 ({error})") from error
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{str(file)!r} can't be read: {getattr(error, 'strerror', None) or error}") from error


def _parse_variables(options: Sequence[str]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise InvalidInput(f"--env is {option[:80]!r}: write NAME=VALUE, or NAME=secret:NAME for a secret")
        variables[name] = value
    return variables


def _parse_arguments(text: str) -> dict[str, Any]:
    reason = ""
    try:
        arguments = read_json(text)
    except (ValueError, RecursionError) as error:
        arguments, reason = None, f" ({error!s:.200})" if str(error) else ""
    if not isinstance(arguments, dict):
        raise InvalidInput(f'ARGS is {text[:80]!r}{reason}: write a JSON object, such as \'{{"city": "Rome"}}\'')
    return arguments


def _not_found(name: str) -> NotFound:
    return NotFound("tool", name, hint="there is none yet")


async def _agent(perdure: AsyncPerdure, name: str | None) -> AsyncAgent:
    agent = await perdure.last_agent() if name is None else await perdure.agent(name)
    if agent is None:
        raise NotFound("agent", "used last", hint="there is none yet; `perdure` makes one")
    return agent


async def _users(perdure: AsyncPerdure) -> dict[str, list[str]]:
    """Name of a tool -> names of the agents that have it."""
    users: dict[str, list[str]] = {}
    for agent in await load_agents(perdure):
        for tool in await agent.tools.list():
            users.setdefault(tool.spec.name, []).append(agent.name)
    return users


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
    """Kind, limits and permissions of a tool, on one line."""
    spec = tool.spec
    facts = [_kind(tool)]
    if spec.requires_approval:
        facts.append("a person approves each call")
    if code is not None:
        if spec.timeout_s is not None:
            facts.append(f"up to {spec.timeout_s:g} s")
        facts.append(f"reaches {', '.join(code.network)}, where it is allowed" if code.network else "no network")
        facts += [f"needs {requirement}" for requirement in code.requirements]
        facts += [f"sees {name}" for name in code.environment]
    return visible("; ".join(facts))


def _kind(tool: Tool) -> str:
    kind = tool.spec.tool_type
    return "built in" if kind.startswith("letta_") else {"external_mcp": "MCP"}.get(kind, kind)


def _example(tool: Tool) -> str:
    """Sample arguments as JSON: the required ones."""
    samples = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    properties = tool.spec.parameters.get("properties", {})
    required = [name for name in tool.spec.parameters.get("required", ()) if name in properties]
    return json.dumps({name: samples.get(properties[name].get("type"), "...") for name in required})


def _print_outcome(output: Output, outcome: ToolOutcome) -> None:
    if output.as_json:
        output.json(
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
        output.print(visible(outcome.text))
    else:
        output.view.error(InvalidInput(outcome.text.removeprefix("error:").strip()))


def _table(tools: Sequence[Tool], users: dict[str, list[str]]) -> Table:
    from rich.text import Text

    from perdure.cli.views.table import new_table

    table = new_table("tool", "kind", "agents", "what it does")
    for tool in tools:
        table.add_row(
            Text(fold(_signature(tool), SIGNATURE_CHARS), style="bold"),
            Text(_kind(tool), style="dim"),
            Text(visible(", ".join(users.get(tool.spec.name, []))) or "-"),
            Text(visible(_SENTENCE.split(tool.spec.description.strip(), maxsplit=1)[0])),
        )
    return table
