"""Ports: what the engine asks of the world. Adapters stand in `storage`, `providers`, `toolbox` and `testing`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, runtime_checkable

from perdure.core.documents import Document
from perdure.core.ids import AgentId, ConversationId, Ids, RunId
from perdure.core.tools.spec import Tool, ToolOutcome

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "CallContext",
    "Clock",
    "Converter",
    "EmbedPurpose",
    "Embedder",
    "Ids",
    "Randomness",
    "TokenCounter",
    "Toolbox",
    "WordEmbedder",
]

EmbedPurpose = Literal["document", "query"]
"""What a vector is for: some models want the two told apart."""

P = ParamSpec("P")
T = TypeVar("T")


class Clock(Protocol):
    def now(self) -> datetime:
        """The time, as a UTC datetime. Waiting is the event loop's: a simulated clock comes with a simulated loop."""
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


class Converter(Protocol):
    """Files to text."""

    async def __call__(self, name: str, file: Path, *, progress: Callable[[int, int], None]) -> Document:
        """The text of a file called `name`, which lies at `file`. `progress` is told what is done, of how much.

        Raises: InvalidInput, ConversionFailed, ExtraMissing: this file gives no text; others may.
        """
        ...


class Embedder(Protocol):
    """Texts to vectors. Those of one `handle` can be compared with each other, and with no others."""

    @property
    def handle(self) -> str:
        """The vector space, as provider/model: "local/all-MiniLM-L6-v2", "openai/text-embedding-3-small"."""
        ...

    @property
    def dimensions(self) -> int | None:
        """Numbers in a vector; None until the first answer of an endpoint told it."""
        ...

    @property
    def local(self) -> bool:
        """Whether it works without a network, in milliseconds."""
        ...

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        """One row of length 1 for each text, in order: shape (len(texts), `dimensions`). No text is refused; of one
        that is too long for the model what it can take of it counts.

        Raises: ModelError: `retryable` tells whether the same texts may succeed a little later. Nothing is tried again
            here.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and memory. It can still be used."""
        ...


@runtime_checkable
class WordEmbedder(Protocol):
    """Texts to a vector for each of their word pieces, for late interaction. Only local embedders have it."""

    async def embed_words(self, texts: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        """For each text, in order, one row of length 1 for each word piece: shape (pieces, `dimensions`). The two
        special pieces of the model are left out, and so is what is too long for it. Raises: ModelError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """For whom a tool is run."""

    agent_id: AgentId
    conversation_id: ConversationId
    run_id: RunId
    call_id: str


class Toolbox(Protocol):
    """What runs foreign tools in this process."""

    def missing(self, tool: Tool) -> str | None:
        """Why this tool can't be run here, in words for the model; None: it can."""
        ...

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        """What came of it; a tool that raises is an outcome with status `error`. Raises: ToolError: arguments
        unusable."""
        ...
