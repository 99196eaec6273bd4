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
        dimensions: of every vector; None before the first.
        generation: counts its models; vectors of older models are deleted.
        version: counts its changes over all generations.
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
    """A block of a scope's rows in order of their numbers.

    Args:
        seqs, versions: of the rows with a vector of the scope's length.
        vectors: their vectors, end to end.
        removed: (number, version) of the removed rows.
        last: the last number of the block; None: there are no more.
    """

    seqs: Sequence[int] = ()
    versions: Sequence[int] = ()
    vectors: bytes = b""
    removed: Sequence[tuple[int, int]] = ()
    last: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A worker's claim of a text for some time. `tries`: how often the text was claimed, including this time."""

    number: int
    owner_kind: OwnerKind
    owner_id: str
    seq: int
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeCounts:
    """The progress of a scope: its waiting texts, its failed ones, and the failure of the first."""

    scope: VectorScope
    waiting: int
    failed: int
    failure: str | None


FaultKind = Literal["words", "stale words", "tags", "counts", "vectors", "queue", "damage"]
"""`damage`: a text differs from what was written; nothing repairs it.

`stale words`: the full-text index differs from the text; on SQLite only a rebuild repairs it."""


@dataclass(frozen=True, slots=True)
class Owner:
    """An agent or an archive whose derived rows are compared; `rows`: the number of its next text."""

    number: int
    kind: OwnerKind
    id: str
    rows: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A difference in plain words, how often it occurs, and whether it was repaired. For damage `owner_id` may be a
    block's."""

    kind: FaultKind
    owner_id: str
    text: str
    count: int
    repaired: bool


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CheckResult(Generic[T]):
    """The result for some texts of an owner, some blocks, or some entities of graphs.

    Args:
        after: where to continue: the number of a text, or the block or graph with the version or entity to continue
            behind; None: the end.
        without_checksum: how many rows had none.
    """

    faults: Sequence[Fault]
    after: T | None
    without_checksum: int = 0
