"""`perdure tool`: add a tool from a file, list, show, test, attach, detach and delete tools."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from perdure.cli.run import LastAgent, Yes, agent_option, argument, command, flag, for_work, option

if for_work(__name__):
    from rich.table import Table

    from perdure.cli.chat.agent_choice import chat_command
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import View, fold, new_table, visible
    from perdure.cli.work import confirm, deleted, get_agent, load_all, named_agent, none_yet, open_store
    from perdure.core.errors import InvalidInput
    from perdure.core.tools.arguments import read_json
    from perdure.core.tools.portable import schema_warnings
    from perdure.core.tools.spec import Tool, ToolCode, ToolOutcome
    from perdure.library.perdure import AsyncPerdure

ToolName = Annotated[str, argument("Name or id of the tool.", "NAME")]

SOURCE_BYTES = 2_000_000
SIGNATURE_CHARS = 48
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")
NO_TOOL = "There are no tools of your own yet: `perdure tool add FILE.py` makes one."


@command("tool add")
async def add_tool(
    view: View,
    file: Annotated[Path, argument("Python; its last public function is the tool.", "FILE.py")],
    name: Annotated[str | None, option("Another function of the file.", "NAME")] = None,
    requirements: Annotated[
        list[str] | None, option("A package for pip; may be repeated.", "PACKAGE", name="--requirement")
    ] = None,
    environment: Annotated[
        list[str] | None, option("A variable; secret:NAME for a secret; may be repeated.", "NAME=VALUE", name="--env")
    ] = None,
    network: Annotated[
        list[str] | None, option("A host it needs; '*' means every public one; may be repeated.", "HOST")
    ] = None,
    approval: Annotated[bool, flag("--approval", "A person has to approve each call.")] = False,
    timeout_s: Annotated[float | None, option("By default 30.", "SECONDS", name="--timeout")] = None,
) -> None:
    """Create a tool from a file, or change the tool of that name. The file is read, not run."""
    async with open_store(view) as perdure:
        options: dict[str, Any] = {} if name is None else {"name": name}
        tool = await perdure.tools.upsert(
            _read_source(file),
            requirements=list(requirements or ()),
            environment=_parse_variables(environment or ()),
            network=list(network or ()),
            requires_approval=approval,
            timeout_s=timeout_s,
            **options,
        )
        view.show(_shape(tool, await perdure.tools.code(tool.id)), _signature(tool))
        view.hint(
            f"Stored {tool.spec.name}. `perdure tool test {tool.spec.name} '{_example(tool)}'` tries it,"
            f" `perdure tool attach {tool.spec.name}` gives it to the agent used last."
        )


@command("tool list")
async def list_tools(view: View, everything: Annotated[bool, flag("--all", "With the built-in ones.")] = False) -> None:
    """List the tools, and the agents that have them."""
    async with open_store(view, empty=NO_TOOL) as perdure:
        tools = await load_all(perdure.tools.list)
        tools = [tool for tool in tools if everything or not tool.spec.tool_type.startswith("letta_")]
        agents = await _agents_by_tool(perdure)
        shapes = [_shape(tool, None) | {"agents": agents[tool.spec.name]} for tool in tools]
        view.show(shapes, *([_table(tools, agents)] if tools else []))
        view.hint("`perdure tool show NAME` shows one; `perdure tool test NAME ARGS` tries it." if tools else NO_TOOL)


@command("tool show")
async def show_tool(view: View, name: ToolName) -> None:
    """Show the description of a tool that models see, and its source."""
    async with open_store(view, empty=none_yet("tool", name)) as perdure:
        tool = await perdure.tools.get(name)
        code = await perdure.tools.code(tool.id)
        parts = [_signature(tool), visible(tool.spec.description), _how_it_runs(tool, code)]
        parts.append(json.dumps(dict(tool.spec.parameters), ensure_ascii=False, indent=2))
        if code is not None:
            parts.append(visible(code.source).strip())
        view.show(_shape(tool, code), "\n\n".join(parts))
        view.hint(f"`perdure tool test {tool.spec.name} '{_example(tool)}'` tries it.")


@command("tool test")
async def test_tool(
    view: View,
    name: Annotated[str, argument("Name or id of a tool, or a file that is not added yet.", "NAME")],
    arguments: Annotated[str, argument("A JSON object.", "ARGS")] = "{}",
    agent: Annotated[str | None, agent_option("Run it for this agent, which must have it.")] = None,
) -> int:
    """Run a tool with arguments, as an agent would: checked, limited, in the sandbox."""

    def progress(line: str) -> None:
        print(line, file=sys.stderr)

    async with open_store(view) as perdure:
        values = _parse_arguments(arguments)
        if agent is not None:
            outcome = await (await get_agent(view, perdure, agent)).tools.run(name, values)
        elif name.endswith(".py"):
            outcome = await perdure.tools.test_source(_read_source(Path(name)), values, progress=progress)
        else:
            outcome = await perdure.tools.test(name, values, progress=progress)
        return _show_outcome(view, outcome)


@command("tool attach", json=False)
async def attach_tool(view: View, name: ToolName, agent: LastAgent = None) -> None:
    """Give a tool to an agent."""
    async with named_agent(view, agent, change=True, empty=none_yet("tool", name)) as (_, owner):
        tool = await owner.tools.attach(name)
        for warning in schema_warnings(tool.spec):
            view.note(warning)
        view.hint(f"{owner.name} has {tool.spec.name} from its next answer on: `{chat_command(owner)}`.")


@command("tool detach", json=False)
async def detach_tool(view: View, name: ToolName, agent: LastAgent = None) -> None:
    """Take a tool from an agent."""
    async with named_agent(view, agent, change=True, empty=none_yet("tool", name)) as (_, owner):
        await owner.tools.detach(name)
        view.hint(f"{owner.name} has {name} no longer; the tool itself stays.")


@command("tool delete", json=False)
async def delete_tool(view: View, name: ToolName, yes: Yes = False) -> None:
    """Take a tool from all agents and delete it."""
    async with open_store(view, empty=none_yet("tool", name)) as perdure:
        tool = await perdure.tools.get(name)
        agents = (await _agents_by_tool(perdure))[tool.spec.name]
        also = f", also for {visible(', '.join(agents))}" if agents else ""
        question = f"Tool {visible(tool.spec.name)!r} will be gone for good{also}. Delete?"
        confirm(view, question, action="delete the tool", yes=yes)
        await perdure.tools.delete(tool.id)
        view.hint(deleted(f"tool {tool.spec.name!r}", "`perdure tool add FILE.py` makes it again"))


def _read_source(file: Path) -> str:
    """The text of a Python file. Raises: InvalidInput: it is too large, no text, or can't be read."""
    try:
        if file.stat().st_size > SOURCE_BYTES:
            raise InvalidInput(f"{file} is larger than {SOURCE_BYTES:,} bytes: that is no tool's source")
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is no text in UTF-8 ({error})") from error
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{str(file)!r} can't be read: {getattr(error, 'strerror', None) or error}") from error


def _parse_variables(options: Sequence[str]) -> dict[str, str]:
    """Name -> value of options as NAME=VALUE. Raises: InvalidInput."""
    variables: dict[str, str] = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidInput(f"--env is {text[:80]!r}: write NAME=VALUE, or NAME=secret:NAME for a secret")
        variables[name] = value
    return variables


def _parse_arguments(text: str) -> dict[str, Any]:
    """The arguments in a JSON object. Raises: InvalidInput."""
    reason = ""
    try:
        arguments = read_json(text)
    except (ValueError, RecursionError) as error:
        arguments, reason = None, f" ({error!s:.200})" if str(error) else ""
    if not isinstance(arguments, dict):
        raise InvalidInput(f'ARGS is {text[:80]!r}{reason}: write a JSON object, such as \'{{"city": "Rome"}}\'')
    return arguments


async def _agents_by_tool(perdure: AsyncPerdure) -> defaultdict[str, list[str]]:
    """Name of a tool -> names of the agents that have it."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for agent in await load_all(perdure.agents):
        for tool in await agent.tools.list():
            names[tool.spec.name].append(agent.name)
    return names


def _shape(tool: Tool, code: ToolCode | None) -> dict[str, Any]:
    """The JSON object that `--json` prints for a tool."""
    spec = fields(tool.spec, "name", "tool_type", "description", "requires_approval", "timeout_s")
    shape = spec | {"id": tool.id, "parameters": dict(tool.spec.parameters), "tags": list(tool.tags)}
    if code is not None:
        shape |= fields(code, "source", "requirements", "network") | {"environment": dict(code.environment)}
    return shape


def _signature(tool: Tool) -> str:
    """The tool as a call, such as `roll(sides, label?)`."""
    required = tool.spec.parameters.get("required", ())
    names = [name if name in required else f"{name}?" for name in tool.spec.parameters.get("properties", {})]
    return f"{visible(tool.spec.name)}({', '.join(map(visible, names))})"


def _how_it_runs(tool: Tool, code: ToolCode | None) -> str:
    """Kind, limits and permissions of a tool, on one line."""
    spec = tool.spec
    facts = [_kind_text(tool)]
    if spec.requires_approval:
        facts.append("a person approves each call")
    if code is not None:
        if spec.timeout_s is not None:
            facts.append(f"up to {spec.timeout_s:g} s")
        facts.append(f"reaches {', '.join(code.network)}, where it is allowed" if code.network else "no network")
        facts += [f"needs {requirement}" for requirement in code.requirements]
        facts += [f"sees {name}" for name in code.environment]
    return visible("; ".join(facts))


def _kind_text(tool: Tool) -> str:
    """The kind of a tool in words."""
    kind = tool.spec.tool_type
    return "built in" if kind.startswith("letta_") else {"external_mcp": "MCP"}.get(kind, kind)


def _example(tool: Tool) -> str:
    """Sample values of the required arguments, as JSON."""
    samples = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    properties = tool.spec.parameters.get("properties", {})
    required = [name for name in tool.spec.parameters.get("required", ()) if name in properties]
    return json.dumps({name: samples.get(properties[name].get("type"), "...") for name in required})


def _show_outcome(view: View, outcome: ToolOutcome) -> int:
    """Show the result of a call and what it printed; return the exit code."""
    failed = outcome.status != "success"
    shape = {
        "status": outcome.status,
        "result": outcome.text,
        "stdout": "".join(outcome.stdout),
        "stderr": "".join(outcome.stderr),
    }
    view.show(shape, *([] if failed else [visible(outcome.text)]))
    for text in (*outcome.stdout, *outcome.stderr):
        view.note(text.rstrip("\n"))
    if failed:
        view.error(InvalidInput(outcome.text.removeprefix("error:").strip()))
    return int(failed)


def _table(tools: Sequence[Tool], agents: Mapping[str, Sequence[str]]) -> Table:
    """The table of tools with their agents."""
    table = new_table("tool", "kind", "agents", "what it does", styles={"tool": "bold", "kind": "dim"})
    for tool in tools:
        names = visible(", ".join(agents.get(tool.spec.name, ()))) or "-"
        about = visible(_SENTENCE.split(tool.spec.description.strip(), maxsplit=1)[0])
        table.add_row(fold(_signature(tool), SIGNATURE_CHARS), _kind_text(tool), names, about)
    return table
