"""Vectors: their scopes, rows and claims.

A scope is the unit of a search: the messages of an agent, or the passages of an archive, named by the number of its
root row. A scope has one model. Every change of its vectors gives it the next version, which each changed row stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

OwnerKind = Literal["agent", "archive"]


VectorRow = tuple[int, int, bytes | None]
"""(sequence number, version, vector): little-endian 16-bit floats of a unit vector; None: it was removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorScope:
    """The vectors of one agent's messages or one archive's passages.

    Args:
        number: the number of the agent's or archive's row.
        dimensions: the length of every vector; None before the first.
        generation: how many embedding models it has had; vectors of older models are deleted.
        version: how many changes it has had, over all generations.
        row_count: how many vectors it has.
        fill_from: the first text that is not queued yet for this model; None: all are.
        settled: this transaction sees committed data only, equal for every reader of this version.
    """

    number: int
    owner_kind: OwnerKind
    owner_id: str
    model: str
    dimensions: int | None
    generation: int
    version: int
    row_count: int
    fill_from: int | None
    settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorBlock:
    """Consecutive rows of a scope, in order of their numbers.

    Args:
        seqs, versions: numbers and versions of the rows with a vector of the scope's length.
        vectors: the vectors of these rows, end to end, as in `VectorRow`.
        removed: (number, version) of the removed rows.
        last: the last number of the block; None: there are no more.
    """

    seqs: Sequence[int] = ()
    versions: Sequence[int] = ()
    vectors: bytes = b""
    removed: Sequence[tuple[int, int]] = ()
    last: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingClaim:
    """A worker's right to embed the text `seq` of a scope for some time; `tries`: how often it was claimed so far."""

    number: int
    owner_kind: OwnerKind
    owner_id: str
    seq: int
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeCounts:
    """The progress of a scope: how many texts wait for a vector, how many failed, and why the first one did."""

    scope: VectorScope
    waiting: int
    failed: int
    failure: str | None


FaultKind = Literal["words", "stale words", "tags", "counts", "vectors", "queue", "damage"]
"""`damage`: a text differs from what was written; nothing repairs it.

`stale words`: the full-text index differs from the text; on SQLite only a rebuild repairs it."""


@dataclass(frozen=True, slots=True)
class IndexOwner:
    """An agent or archive whose derived rows (index, vectors) are checked; `rows`: the number of its next text."""

    number: int
    kind: OwnerKind
    id: str
    rows: int


@dataclass(frozen=True, slots=True)
class IndexFault:
    """A difference between texts and what is derived from them, `count` times; `owner_id`: for damage also a block."""

    kind: FaultKind
    owner_id: str
    text: str
    count: int
    repaired: bool


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CheckResult(Generic[T]):
    """The result of one part of a check of the store: some texts of an owner, some blocks, or some entities of graphs.

    Args:
        after: behind which the next part begins: the number of a text, or a block with a version, or a graph with an
            entity; None: this was the last part.
        without_checksum: how many rows had no checksum, so that damage can't be seen.
    """

    faults: Sequence[IndexFault]
    after: T | None
    without_checksum: int = 0
