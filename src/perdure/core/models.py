"""Requests to a language model and its replies, in one shape for every provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from perdure.core.messages import Message, Part
from perdure.core.runs import StopReason, Usage

ToolChoice: TypeAlias = Literal["auto", "required", "none"] | tuple[str, ...]
"""Which tools may be called: the model's choice, at least one, none; or at least one of these names."""

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """The options of a model's answer. None: the provider's default.

    Args:
        response_format: as in the OpenAI API: `{"type": "json_object"}` or `{"type": "json_schema", ...}`.
        max_reasoning_tokens: a budget for providers that take one.
        logprobs: whether the answer comes with the logarithm of each token's probability, where the provider has it.
        top_logprobs: how many of the most likely tokens come with it at each place.
        token_ids: whether the answer comes with the numbers of its tokens, where the provider has them.
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
    logprobs: bool = False
    top_logprobs: int | None = None
    token_ids: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> ModelOptions:
        """Return the options among an agent's settings, by the names of the fields."""
        if not settings:
            return _DEFAULTS
        options = {name: settings[name] for name in cls.__slots__ if settings.get(name) is not None}
        if isinstance(choice := options.get("tool_choice"), list):  # settings are stored as JSON
            options["tool_choice"] = tuple(choice)
        return cls(**options) if options else _DEFAULTS


_DEFAULTS = ModelOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request of the model port: a pure function of the log and a recipe.

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
    """The request and response on the wire, for inspection, with masked secrets.

    `request` has the address, the options and the number of bytes, without the messages, which the recipe rebuilds.
    `response` is the provider's answer, joined if it was streamed; with `logprobs` (OpenAI's shape) and `token_ids` if
    they were asked for and came.
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
        """Yield deltas while the answer streams, then exactly one `ModelReply`. Raises: ModelError."""


class Models(Protocol):
    """The models this process can reach."""

    def find(self, handle: str) -> Model | None:
        """Return the model of a handle `provider/model`; None: it is not available here."""

    def handles(self) -> Sequence[str]:
        """Return the handles of all models."""

    def window_tokens(self, handle: str) -> int | None:
        """Return the model's window; None: unknown."""

    def most_window_tokens(self, handle: str) -> int | None:
        """Return what no window of the model may exceed; None: unknown, so a setting decides."""
