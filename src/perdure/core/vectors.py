"""What is kept of vectors: their scopes, and the texts that wait for one.

A **scope** is what is searched at once: the messages of an agent, or the passages of an archive, named by the number of
its root row. A scope has one model; every change of its vectors gives it the next version, which each changed row
keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Claim",
    "OwnerKind",
    "Scope",
    "ScopeCounts",
    "VectorBlock",
    "VectorRow",
]


OwnerKind = Literal["agent", "archive"]


VectorRow = tuple[int, int, bytes | None]
"""(sequence number, version, vector): little-endian 16-bit floats of a unit vector; None: it was removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The vectors of one agent's messages or one archive's passages.

    Args:
        dimensions: of every vector in it; None until the first is there.
        generation: counts the models it has had; vectors of an older one are not there any more.
        version: counts its changes over all generations.
        row_count: how many vectors it has.
        fill_from: the first number of its texts that were not looked at yet since it got this model; None: all were.
        settled: what this transaction sees is committed, and so the same for everybody at this version.
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
    """Some rows of a scope in order of their numbers, as few pieces: many thousands are read in one breath.

    Args:
        seqs, versions: of the rows that have a vector of the scope's length.
        vectors: theirs, end to end.
        gone: (number, version) of those that were removed.
        last: the last number that was looked at; None: there is none left.
    """

    seqs: Sequence[int] = ()
    versions: Sequence[int] = ()
    vectors: bytes = b""
    gone: Sequence[tuple[int, int]] = ()
    last: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A text that a worker has taken for a while. `tries`: how often one did, this time included."""

    number: int
    owner_kind: OwnerKind
    owner_id: str
    seq: int
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeCounts:
    """How far a scope is: vectors it has, texts that wait for one, texts that were given up, and why the first was."""

    scope: Scope
    waiting: int
    failed: int
    failure: str | None
