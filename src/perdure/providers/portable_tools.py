"""`PortableTools`: a model that gets each tool as every provider takes it; its calls have the tool's own names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace

from perdure.core.incoming.json_limits import parse_json
from perdure.core.messages import Part, ToolCall
from perdure.core.models import Model, ModelDelta, ModelPiece, ModelReply, ModelRequest
from perdure.core.text.json_strings import compact_json
from perdure.core.tools.arguments import ARGUMENTS
from perdure.core.tools.portable import portable, renamed

Aliases = Mapping[str, Mapping[str, str]]
"""Tool -> its names of arguments, or the names that they have where it is sent -> the other ones."""


def portable_request(request: ModelRequest) -> tuple[ModelRequest, Aliases]:
    """The request as it is sent, and the aliases of its tools."""
    tools = [portable(tool) for tool in request.tools]
    aliases = {str(tool.shape["name"]): tool.aliases for tool in tools if tool.aliases}
    if all(tool.shape is own for tool, own in zip(tools, request.tools, strict=True)):
        return request, {}
    messages = tuple(
        replace(message, parts=_renamed(message.parts, aliases))
        if any(call.name in aliases for call in message.calls)
        else message
        for message in request.messages
    )
    return replace(request, tools=tuple(tool.shape for tool in tools), messages=messages), aliases


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
        sent, aliases = portable_request(request)
        own = {tool: {alias: name for name, alias in names.items()} for tool, names in aliases.items()}
        held: set[int] = set()
        async with aclosing(self.model.respond(sent)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if isinstance(piece, ModelDelta) and piece.kind == "tool_name" and piece.text in own:
                    held.add(piece.index)
                if isinstance(piece, ModelReply):
                    piece = replace(piece, parts=_renamed(piece.parts, own))
                    for index, call in enumerate(part for part in piece.parts if isinstance(part, ToolCall)):
                        if index in held:
                            yield ModelDelta("tool_arguments", call.arguments, index, call.call_id)
                if not (isinstance(piece, ModelDelta) and piece.kind == "tool_arguments" and piece.index in held):
                    yield piece


def _renamed(parts: tuple[Part, ...], names: Aliases) -> tuple[Part, ...]:
    """The parts of a message with other names of arguments in its calls; arguments that are no JSON stay."""
    changed: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall) and part.name in names:
            with suppress(ValueError, RecursionError):
                arguments = renamed(parse_json(part.arguments, ARGUMENTS), names[part.name])
                part = replace(part, arguments=compact_json(arguments))
        changed.append(part)
    return tuple(changed)
