"""`PortableTools`: a model that gets each tool as every provider takes it; its calls have the tool's own names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from perdure.core.incoming.json_limits import parse_json
from perdure.core.messages import Message, Part, ToolCall
from perdure.core.models import Model, ModelDelta, ModelPiece, ModelReply, ModelRequest
from perdure.core.text.json_strings import compact_json
from perdure.core.tools.arguments import ARGUMENTS
from perdure.core.tools.portable import PortableTool, portable

Tools = Mapping[str, PortableTool]
"""Name -> a tool whose arguments have other names there."""


def portable_request(request: ModelRequest) -> tuple[ModelRequest, Tools]:
    """The request as it is sent, and its tools whose arguments have other names there."""
    tools = {str(tool["name"]): portable(tool) for tool in request.tools}
    shapes = tuple(tool.shape for tool in tools.values())
    if all(shape is tool for shape, tool in zip(shapes, request.tools, strict=False)):
        return request, {}
    renamed = {name: tool for name, tool in tools.items() if tool.aliases}
    messages = tuple(_sent(message, renamed) for message in request.messages) if renamed else request.messages
    return replace(request, tools=shapes, messages=messages), renamed


class PortableTools:
    """A model around another one; see the module. Whole arguments come as one delta where names differ."""

    def __init__(self, model: Model) -> None:
        self.model = model

    async def aclose(self) -> None:
        """Close the model, if it can be closed."""
        if (close := getattr(self.model, "aclose", None)) is not None:
            await close()

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelPiece]:
        """Answer a request by the model. Raises: ModelError."""
        sent, renamed = portable_request(request)
        held: set[int] = set()
        async with aclosing(self.model.respond(sent)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if isinstance(piece, ModelDelta) and piece.kind == "tool_name" and piece.text in renamed:
                    held.add(piece.index)
                if isinstance(piece, ModelReply):
                    piece = replace(piece, parts=tuple(_read(part, renamed) for part in piece.parts))
                    calls = [part for part in piece.parts if isinstance(part, ToolCall)]
                    for index in sorted(held & set(range(len(calls)))):
                        yield ModelDelta("tool_arguments", calls[index].arguments, index, calls[index].call_id)
                if not (isinstance(piece, ModelDelta) and piece.kind == "tool_arguments" and piece.index in held):
                    yield piece


def _sent(message: Message, renamed: Tools) -> Message:
    """A message of the log, with the names of arguments that the model knows."""
    if not any(isinstance(part, ToolCall) and part.name in renamed for part in message.parts):
        return message
    return replace(message, parts=tuple(_with(part, renamed, lambda tool: tool.sent) for part in message.parts))


def _read(part: Part, renamed: Tools) -> Part:
    """A part of an answer, with the tool's own names of arguments."""
    return _with(part, renamed, lambda tool: tool.read)


def _with(part: Any, renamed: Tools, names: Callable[[PortableTool], Callable[[Any], Any]]) -> Any:
    """A call with other names of its arguments; any other part as it is, and arguments that are no JSON too."""
    if not isinstance(part, ToolCall) or part.name not in renamed:
        return part
    try:
        arguments = parse_json(part.arguments, ARGUMENTS)
    except (ValueError, RecursionError):
        return part
    return replace(part, arguments=compact_json(names(renamed[part.name])(arguments)))
