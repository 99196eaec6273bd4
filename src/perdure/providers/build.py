"""Handles and names of models: which of them a provider means, takes or lists; and how the model of one is built."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perdure.core.incoming.json_limits import parse_json
from perdure.core.messages import Part, ToolCall
from perdure.core.models import Model, ModelDelta, ModelPiece, ModelReply, ModelRequest
from perdure.core.text.json_strings import compact_json
from perdure.core.tools.arguments import ARGUMENTS
from perdure.core.tools.portable import PortableTool, portable, rename_members
from perdure.providers.provider import PROVIDERS, Endpoint, ModelSource, ModelWrapper

if TYPE_CHECKING:
    from perdure.providers.retrying import Retrying

Aliases = Mapping[str, Mapping[str, str]]
"""Name of a tool -> old name of an argument -> new name: from the tool's own names to those sent, or back."""


def portable_request(request: ModelRequest, tools: Sequence[PortableTool]) -> tuple[ModelRequest, Aliases]:
    """The request with its tools in their portable form, and its earlier calls with the names of arguments there; and
    tool -> own name of an argument -> name sent, of the tools where names differ."""
    aliases = {str(tool.shape["name"]): tool.aliases for tool in tools if tool.aliases}
    if all(tool.shape is own for tool, own in zip(tools, request.tools, strict=True)):
        return request, {}
    messages = tuple(
        replace(message, parts=_rename_arguments(message.parts, aliases))
        if any(call.name in aliases for call in message.calls)
        else message
        for message in request.messages
    )
    return replace(request, tools=tuple(tool.shape for tool in tools), messages=messages), aliases


class PortableTools(ModelWrapper):
    """A model that is sent each tool in a form that every provider takes; the calls that it yields have the tool's own
    names of arguments. Where names differ, the arguments of a call come as one delta, with the reply."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        # The tools of the newest request and their portable forms: the next request of an agent mostly has the same.
        self._tools: tuple[Sequence[Mapping[str, Any]], Sequence[PortableTool]] = ((), ())

    def respond(self, request: ModelRequest) -> AsyncIterator[ModelPiece]:
        """Answer a request by the model. Raises: ModelError."""
        own_tools, tools = self._tools
        if own_tools is not request.tools:
            tools = [portable(tool) for tool in request.tools]
            self._tools = request.tools, tools
        sent, aliases = portable_request(request, tools)
        return self._with_own_names(sent, aliases) if aliases else self.model.respond(sent)

    async def _with_own_names(self, sent: ModelRequest, aliases: Aliases) -> AsyncIterator[ModelPiece]:
        """Yield the pieces of an answer, with the tools' own names of arguments."""
        own_names = {tool: {alias: name for name, alias in names.items()} for tool, names in aliases.items()}
        indexes: set[int] = set()  # of calls with renamed arguments
        async with aclosing(self.model.respond(sent)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if isinstance(piece, ModelDelta) and piece.kind == "tool_name" and piece.text in own_names:
                    indexes.add(piece.index)
                if isinstance(piece, ModelReply):
                    piece = replace(piece, parts=_rename_arguments(piece.parts, own_names))
                    for index, call in enumerate(part for part in piece.parts if isinstance(part, ToolCall)):
                        if index in indexes:
                            yield ModelDelta("tool_arguments", call.arguments, index, call.call_id)
                if not (isinstance(piece, ModelDelta) and piece.kind == "tool_arguments" and piece.index in indexes):
                    yield piece


def _rename_arguments(parts: tuple[Part, ...], names: Aliases) -> tuple[Part, ...]:
    """The parts of a message with other names of arguments in its calls; arguments that are no JSON stay."""
    changed: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall) and part.name in names:
            with suppress(ValueError, RecursionError):
                arguments = rename_members(parse_json(part.arguments, ARGUMENTS), names[part.name])
                part = replace(part, arguments=compact_json(arguments))
        changed.append(part)
    return tuple(changed)


class Handles(list[str]):
    """The known handles. `in` is also true for handles that a provider accepts without listing them."""

    def __init__(self, handles: Sequence[str], takes: Callable[[str], bool]) -> None:
        super().__init__(handles)
        self._takes = takes

    def __contains__(self, handle: object) -> bool:
        return isinstance(handle, str) and self._takes(handle)


def is_served(name: str, listed: Sequence[str]) -> bool:
    """Whether a server of local models has this one. Ollama's `qwen3` is its `qwen3:latest`."""
    return name in listed or f"{name}:latest" in listed or name.removesuffix(":latest") in listed


def is_listed(name: str, listed: Sequence[str]) -> bool:
    """Whether a provider's list has this name, or another one of the same model."""
    if name in listed or name.partition(":")[0] in listed:  # OpenRouter's ways to the same model, such as `:nitro`
        return True
    base = f"{name.removesuffix('-latest')}-"  # lists have the day of a model's release, people often don't
    return any(other.startswith(base) and other[len(base) :].isdigit() for other in listed)


def build_model(source: ModelSource) -> Retrying:
    """Return a provider's model, with retries and portable tools. Raises: InvalidInput: a bad address or key."""
    from perdure.providers.retrying import Retrying

    return Retrying(PortableTools(source.endpoint.entry.api.build(source)))


def takes_images(model: Model) -> bool:
    """Whether a model accepts pictures; a model that does not declare it is taken to."""
    return bool(getattr(_innermost(model), "takes_images", True))


def _innermost(model: Model) -> Any:
    """The model that others are built around."""
    while (inner := getattr(model, "model", None)) is not None and not isinstance(inner, str):
        model = inner
    return model


async def payload_of(model: Model, request: ModelRequest) -> Mapping[str, Any]:
    """The body by which a model would send a request. That of one without an API has the form of OpenAI's.

    Raises: ModelError.
    """
    model = _innermost(model)
    sent, _ = portable_request(request, [portable(tool) for tool in request.tools])
    if (payload := getattr(model, "payload", None)) is not None:
        body: Mapping[str, Any] = await payload(sent)
        return body
    unknown = Endpoint(provider="openai", base_url=PROVIDERS["openai"].default_url)
    return await payload_of(build_model(ModelSource(endpoint=unknown, name=request.model.partition("/")[2])), request)
