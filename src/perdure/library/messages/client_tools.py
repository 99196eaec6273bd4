"""Client tools: the shapes that a request carries, and the Python functions among them, which run in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.app import Functions
from perdure.core.errors import InvalidArguments, InvalidInput
from perdure.core.ids import ToolId
from perdure.core.ports import CallContext
from perdure.core.specs import Tool
from perdure.core.tools.answers import PendingCall, ToolReturn
from perdure.core.tools.arguments import parse_arguments
from perdure.core.tools.schema import check_schema, plain_schema

ClientTool = Callable[..., Any] | Mapping[str, Any]
"""A tool that this program runs: a Python function, which the library then runs by itself, or a mapping with name,
description and parameters (a JSON schema), whose calls are left to the caller."""

CLIENT_TOOLS_MAX = 1_000

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
"""The names of tools that every provider takes."""


@dataclass(frozen=True, slots=True)
class ClientTools:
    """The client tools of a request, and the functions among them."""

    shapes: tuple[Mapping[str, Any], ...]
    functions: Functions

    def runs(self, calls: Sequence[PendingCall]) -> bool:
        """Whether there are calls and all of them are of functions here."""
        names = {spec.name for spec in self.functions.specs()}
        return bool(calls) and all(call.awaits_client and call.name in names for call in calls)

    async def run(self, calls: Sequence[PendingCall]) -> list[ToolReturn]:
        """Run the functions one after the other and return their results. What a function raises is its result."""
        return [await self._run(call) for call in calls]

    async def _run(self, call: PendingCall) -> ToolReturn:
        """Run the function of one call."""
        spec = next(spec for spec in self.functions.specs() if spec.name == call.name)
        context = CallContext(
            agent_id=call.agent_id, conversation_id=call.conversation_id, run_id=call.run_id, call_id=call.call_id
        )
        try:
            arguments = parse_arguments(call.name, spec.parameters, call.call.own_arguments)
            outcome = await self.functions.call(Tool(id=ToolId(""), spec=spec), arguments, context)
        except InvalidArguments as error:
            return ToolReturn(call.call_id, str(error), "error")
        return ToolReturn(call.call_id, outcome.text, outcome.status, outcome.stdout, outcome.stderr)


def client_tools_of(tools: Sequence[ClientTool]) -> ClientTools:
    """The tools that the caller runs. Raises: InvalidInput: one is no tool that all providers take; a name twice."""
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        raise InvalidInput(f"client_tools is {tools!r:.80}: give a list of tools")
    tools = list(tools)
    functions, shapes = Functions(), list[Mapping[str, Any]]()
    if len(tools) > CLIENT_TOOLS_MAX:
        raise InvalidInput(f"{len(tools):,} client tools are too many: send at most {CLIENT_TOOLS_MAX:,}")
    for tool in tools:
        if isinstance(tool, Mapping):
            shapes.append(_check_shape(tool))
        elif not callable(tool):
            raise InvalidInput(
                f"a client tool is {tool!r:.80}: give an object with name, description and parameters, or a function"
            )
        else:
            spec = functions.add(tool)
            shapes.append(
                _check_shape({"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)})
            )
    names = [shape["name"] for shape in shapes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(f"client_tools has {', '.join(twice)} more than once: give each tool one name")
    return ClientTools(tuple(shapes), functions)


def _check_shape(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tool with name, description and parameters. Raises: InvalidInput: models would refuse it."""
    name, description, parameters = tool.get("name"), tool.get("description"), tool.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        has = "no name" if name is None else f"the name {name!r:.80}"
        raise InvalidInput(f"a client tool has {has}: models take 1 to 64 letters (a to z), digits, _ and -")
    if description is not None and not isinstance(description, str):
        raise InvalidInput(f"client tool {name!r}: description is {description!r:.80}: give a text, or leave it out")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise InvalidInput(f"client tool {name!r}: parameters is {parameters!r:.80}: give a JSON schema, of an object")
    try:
        json.dumps(parameters, allow_nan=False)
        parameters = plain_schema(parameters or {})
        check_schema(parameters)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"client tool {name!r}: its parameters can't be written as JSON: {error}") from error
    except InvalidInput as error:
        raise InvalidInput(f"client tool {name!r}: parameters: {error}") from error
    return {
        "name": name,
        "description": description or "",
        "parameters": {"type": "object", "properties": {}, **parameters},
    }
