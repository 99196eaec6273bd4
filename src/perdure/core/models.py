"""What is asked of a language model, and what comes back: one shape for every provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from perdure.core.messages import Message, Part
from perdure.core.runs import StopReason, Usage

__all__ = [
    "Exchange",
    "Model",
    "ModelDelta",
    "ModelOptions",
    "ModelReply",
    "ModelRequest",
    "Models",
    "ReasoningEffort",
    "ToolChoice",
]

ToolChoice: TypeAlias = Literal["auto", "required", "none"] | tuple[str, ...]
"""Whether tools may be called: as the model likes, at least one, none; or at least one of these names."""

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """How the model should answer. None means: as the provider does by default.

    Args:
        response_format: as in the OpenAI API: `{"type": "json_object"}` or `{"type": "json_schema", ...}`.
        max_reasoning_tokens: a budget for providers that take one.
        extra: fields of the provider's own request body, passed on as they are.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, Any] | None = None
    reasoning_effort: ReasoningEffort | None = None
    max_reasoning_tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ModelOptions:
        """The options among an agent's settings, under the names of the fields; whatever else stands there is left."""
        if not settings:
            return _DEFAULTS
        found = {name: settings[name] for name in cls.__slots__ if settings.get(name) is not None}
        if isinstance(choice := found.get("tool_choice"), list):  # settings are stored as JSON
            found["tool_choice"] = tuple(choice)
        return cls(**found) if found else _DEFAULTS


_DEFAULTS = ModelOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request, as the model port takes it: a pure function of the log and a recipe.

    Order of the bytes: `tools` (the agent's own sorted by name, then the engine's), `system`, `messages` (append-only),
    `tail` (volatile, after everything).

    Args:
        purpose: an answer that goes into the log, or a summary of messages that leave the view.
    """

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    tail: str = ""
    options: ModelOptions = _DEFAULTS
    purpose: Literal["reply", "summary"] = "reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What went over the wire, for inspection. Secrets are masked before they come here.

    `request` leaves out what the recipe can rebuild (the messages); it has the address, the options, and how many
    bytes went out. `response` is the provider's answer, put together if it was streamed.
    """

    request: Mapping[str, Any]
    response: Mapping[str, Any]
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class ModelDelta:
    """A piece of the answer. `index` numbers the tool calls of the answer, from 0."""

    kind: Literal["text", "reasoning", "tool_name", "tool_arguments"]
    text: str
    index: int = 0
    call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """The whole answer: text, reasoning and tool calls, in order."""

    parts: tuple[Part, ...]
    usage: Usage = field(default_factory=Usage)
    stop_reason: StopReason = "end_turn"
    exchange: Exchange | None = None


class Model(Protocol):
    def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        """Deltas while the answer is made, then exactly one `ModelReply`, last. Raises: ModelError."""
        ...


class Models(Protocol):
    """The models this process can reach."""

    def find(self, handle: str) -> Model | None:
        """The model of a handle `provider/model`, or None if it is not available here."""
        ...

    def handles(self) -> Sequence[str]: ...

    def window_tokens(self, handle: str) -> int | None:
        """How much the model takes; None where nobody knows."""
        ...
