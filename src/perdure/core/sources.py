"""Sources of what is remembered: labels, and writes of memory with the sources that they may come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, get_args

from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, MessageId, RunId
from perdure.core.text.reprs import short_repr

TrustLabel = Literal["user", "agent", "import", "file", "tool", "other_agent", "mcp", "web"]
"""Who said what a memory comes from, from the most trusted to the least. A person's own correction counts as `user`."""

TRUST_LABELS: Final[tuple[TrustLabel, ...]] = get_args(TrustLabel)

TRUSTED: Final[frozenset[TrustLabel]] = frozenset({"user", "agent"})
"""Sources whose facts may stand in a profile and in automatic recall; those of others need a setting."""

OUTSIDE: Final[frozenset[TrustLabel]] = frozenset(TRUST_LABELS) - TRUSTED - {"import"}
"""Sources that a policy for writes is asked about: nobody of this store vouches for what they say."""

NAME_CHARS = 500
"""A longer name of a source, such as a URL, is cut."""

SOURCES_MAX = 100
"""How many sources one write names: those that entered the context last."""

Via = Literal["", "recall"]
"""How a source came into a message: as what the message says, or by what automatic recall added to its request."""

WriteKind = Literal["block", "passage", "fact"]


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """One source.

    Args:
        name: of `web` a URL, of `file` a file's id, of `mcp` a server, of `tool` a tool, of `agent` and `other_agent`
            an agent's id, of `user` a person's id, of `import` what was imported.
    """

    label: TrustLabel
    name: str

    def __str__(self) -> str:
        return f"{self.label}:{self.name}"

    @classmethod
    def of(cls, label: TrustLabel, name: str) -> Source:
        """Return a source with a name of one line and bounded length."""
        name = " ".join(name.split())
        return cls(label, name if len(name) <= NAME_CHARS else f"{name[: NAME_CHARS - 1]}…")

    @property
    def is_trusted(self) -> bool:
        """Whether the model is shown what it says without a label."""
        return self.label in TRUSTED


@dataclass(frozen=True, slots=True)
class WriteSource:
    """A source of a write, with the messages that brought it into the context, oldest first."""

    source: Source
    message_ids: tuple[MessageId, ...] = ()


@dataclass(frozen=True, slots=True)
class MessageSource:
    """A source that entered a conversation with a message."""

    seq: int
    message_id: MessageId
    source: Source
    via: Via = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWrite:
    """One write of memory.

    Args:
        owner_id: the block, archive or graph that it belongs to.
        ref: the version of the block, the id of the passage, or the id of the episode that facts were extracted from.
        sources: what it may come from, the least trusted first.
        agent_id, run_id, message_id: who wrote it, in which run, and the message with the call.
        reverted_by: the correction that took it back, as `agent-…/7`; None: none did.
    """

    __repr__ = short_repr("kind", "id", "label")

    kind: WriteKind
    owner_id: str
    ref: str
    sources: tuple[WriteSource, ...]
    agent_id: AgentId | None = None
    run_id: RunId | None = None
    message_id: MessageId | None = None
    created_at: datetime
    reverted_by: str | None = None

    @property
    def id(self) -> str:
        """The id of the write: `block-…@3` for a version of a block, else the id of the passage or episode."""
        return f"{self.owner_id}@{self.ref}" if self.kind == "block" else self.ref

    @property
    def label(self) -> TrustLabel:
        """The least trusted label of its sources."""
        return least_trusted(source.source.label for source in self.sources)


def least_trusted(labels: Iterable[TrustLabel]) -> TrustLabel:
    """Return the least trusted of these labels; of none `user`."""
    return max(labels, key=TRUST_LABELS.index, default="user")


def parse_source(text: str) -> Source:
    """Return the source of a text such as `web:https://example.com`. Raises: InvalidInput."""
    label, _, name = text.partition(":")
    for known in TRUST_LABELS:
        if known == label and name.strip():
            return Source.of(known, name)
    raise InvalidInput(
        f"source is {text!r:.120}: give a label and a name, such as 'web:https://example.com/page'; the labels are"
        f" {', '.join(TRUST_LABELS)}"
    )


def write_sources(entered: Iterable[MessageSource]) -> tuple[WriteSource, ...]:
    """Return the sources of a write made after the messages with `entered`, each with the messages that brought it:
    least trusted first, then oldest. Of more than `SOURCES_MAX`, the newest."""
    by_source: dict[Source, dict[MessageId, None]] = {}
    for one in sorted(entered, key=lambda one: one.seq):
        messages = by_source.pop(one.source, {})  # of a source the same: a copy for each message would be quadratic
        messages[one.message_id] = None
        by_source[one.source] = messages
    newest = list(by_source)[-SOURCES_MAX:]
    newest.sort(key=lambda source: -TRUST_LABELS.index(source.label))
    return tuple(WriteSource(source, tuple(by_source[source])) for source in newest)
