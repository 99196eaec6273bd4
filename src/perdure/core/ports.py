"""Ports: what the engine asks of the world. Adapters stand in `storage`, `providers`, `toolbox` and `testing`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.tools import ToolOutcome, ToolSpec
from perdure.core.tx import Tx

__all__ = [
    "CallContext",
    "Clock",
    "Embedder",
    "Ids",
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

    def at_least(self, text: str) -> int:
        """A lower estimate of them: no tokenizer in use makes fewer."""
        ...


class Embedder(Protocol):
    @property
    def dimensions(self) -> int: ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One unit-length vector of `dimensions` numbers for each text, in order. Raises: ModelError."""
        ...


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
