"""Ports: what the engine asks of the world. Adapters stand in `storage`, `providers`, `toolbox` and `testing`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.messages import Message, Part
from perdure.core.runs import StopReason, Usage
from perdure.core.tools import ToolOutcome, ToolSpec
from perdure.core.tx import Tx

__all__ = [
    "CallContext",
    "Clock",
    "Embedder",
    "Ids",
    "Model",
    "ModelDelta",
    "ModelReply",
    "ModelRequest",
    "Models",
    "Randomness",
    "Store",
    "TokenCounter",
    "Toolbox",
]

P = ParamSpec("P")
T = TypeVar("T")


class Store(Protocol):
    """The database, as two verbs that carry a unit of work to it.

    A unit is one synchronous function whose first argument is a `Tx`. It holds no await, no clock and no randomness.
    """

    async def read(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `unit` returns, over one consistent snapshot. Raises: StoreError; what the unit raises."""
        ...

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `unit` returns, once its changes are durable. Raises: StoreError, nothing then being written; what the
        unit raises, nothing then being written either."""
        ...

    async def close(self) -> None: ...


class Clock(Protocol):
    def now(self) -> datetime:
        """The time, as a UTC datetime. Waiting is the event loop's: a simulated clock comes with a simulated loop."""
        ...


class Ids(Protocol):
    def new(self, kind: str) -> str:
        """A fresh id of a kind named in `core.ids.PREFIXES`."""
        ...


class Randomness(Protocol):
    def random(self) -> float:
        """A number from [0, 1)."""
        ...


class TokenCounter(Protocol):
    def count(self, text: str) -> int:
        """An upper estimate of the tokens of `text`."""
        ...


class Embedder(Protocol):
    @property
    def dimensions(self) -> int: ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One unit-length vector of `dimensions` numbers for each text, in order. Raises: ModelError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request, as the model port takes it: a pure function of the log and a recipe.

    Order of the bytes: `tools` (sorted by name), `system`, `messages` (append-only), `tail` (volatile, after
    everything).
    """

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    tail: str = ""
    tool_choice: Literal["auto", "required", "none"] | str = "auto"
    max_output_tokens: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """For whom a tool is run."""

    agent_id: AgentId
    conversation_id: ConversationId
    run_id: RunId
    call_id: str


class Toolbox(Protocol):
    """The foreign tools this process can run."""

    def specs(self) -> Sequence[ToolSpec]: ...

    def has(self, name: str) -> bool: ...

    async def call(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        """What came of it; a tool that raises is an outcome with status `error`. Raises: ToolError: arguments
        unusable."""
        ...
