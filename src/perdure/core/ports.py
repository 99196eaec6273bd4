"""The ports of the engine. Adapters are in `storage`, `providers`, `toolbox` and `testing`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol, runtime_checkable

from perdure.core.documents import Document
from perdure.core.ids import AgentId, ConversationId, OrgId, RunId
from perdure.core.specs import Tool, ToolOutcome

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

EmbedPurpose = Literal["document", "query"]
"""The purpose of a vector: some models embed documents and queries differently."""


class Clock(Protocol):
    """The time."""

    def now(self) -> datetime:
        """Return the time, as a UTC datetime. The event loop does the waiting; simulations replace both."""


class Randomness(Protocol):
    """A source of random numbers."""

    def random(self) -> float:
        """Return a number from [0, 1)."""


class TokenCounter(Protocol):
    """Estimates of the tokens of a text."""

    def count(self, text: str) -> int:
        """Return an upper estimate of the tokens of `text`."""

    def at_least(self, text: str) -> int:
        """Return a lower estimate of the tokens of `text`: no tokenizer in use makes fewer."""


class Converter(Protocol):
    """Files to text."""

    async def __call__(self, name: str, file: Path, *, progress: Callable[[int, int], None]) -> Document:
        """Convert the file `name`, stored at `file`. `progress` is called with (done, total). Raises: InvalidInput,
        ConversionFailed, ExtraMissing: this file gives no text; others may."""


class FileContents(Protocol):
    """A store for the bytes of uploaded files outside the database, each under a key. Stored bytes never change."""

    place: str
    """Where they are, for people."""

    async def put(self, key: str, source: BinaryIO) -> None:
        """Store all bytes of an open file, durably. Raises: StoreUnavailable."""

    def get(self, key: str) -> AsyncIterator[bytes]:
        """Yield the bytes in pieces. Raises: StoreUnavailable; StoreDamaged: there are none."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove what is under these keys; one that is not there is no error. Raises: StoreUnavailable."""

    def list(self, folder: str, *, before: datetime) -> AsyncIterator[Sequence[str]]:
        """Yield the keys in a folder, some at a time, of what was put before this time. Raises: StoreUnavailable."""


def folder_of(org_id: OrgId) -> str:
    """Return the beginning of the keys in `FileContents` of an organisation's files."""
    return f"{org_id}/"


class Embedder(Protocol):
    """Texts to vectors. Those of one `handle` can be compared with each other, and with no others."""

    @property
    def handle(self) -> str:
        """The vector space, as provider/model: "local/all-MiniLM-L6-v2", "openai/text-embedding-3-small"."""

    @property
    def dimensions(self) -> int | None:
        """Numbers in a vector; None before the first answer of an endpoint."""

    @property
    def local(self) -> bool:
        """Whether it works without a network, in milliseconds."""

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        """Return one row of length 1 for each text, in order: shape (len(texts), `dimensions`).

        A text that is too long for the model is cut. Nothing is retried here.
        Raises: ModelError: `retryable` says whether the same texts may succeed a little later.
        """

    async def close(self) -> None:
        """Release connections and memory. The embedder can still be used."""


@runtime_checkable
class WordEmbedder(Embedder, Protocol):
    """An embedder that also makes a vector for each word of a text, for late interaction. Only local ones do."""

    async def embed_with_words(
        self, texts: Sequence[str], *, purpose: EmbedPurpose = "document"
    ) -> tuple[npt.NDArray[np.float32], list[npt.NDArray[np.float32]]]:
        """Return what `embed` does, and for each text a row of length 1 per word: shape (words, `dimensions`).

        Of documents, words that say nothing may be left out, and the words of what is behind a long beginning.
        Raises: ModelError.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """The agent, conversation and run of a tool's call."""

    agent_id: AgentId
    conversation_id: ConversationId
    run_id: RunId
    call_id: str


class Toolbox(Protocol):
    """Runs foreign tools: those that are not part of the engine."""

    def missing(self, tool: Tool) -> str | None:
        """Return why this tool can't run here, in words for the model; None: it can."""

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        """Run a tool; one that raises gives an outcome with status `error`. Raises: ToolError: invalid arguments."""
