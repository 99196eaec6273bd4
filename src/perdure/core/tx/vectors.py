"""`tx.vectors`: the vectors of texts, and the queue of texts that wait for theirs.

A **scope** is what is searched at once: the messages of an agent, or the passages of an archive, named by the number of
its root row. A scope has one model; every change of its vectors gives it the next version, which each changed row
keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

__all__ = ["Claim", "OwnerKind", "Scope", "ScopeCounts", "VectorBlock", "VectorRow", "Vectors"]

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


class Vectors(Protocol):
    @property
    def queued(self) -> int:
        """How many texts were queued through this connection: a unit of work that queued some has made it larger."""
        ...

    def embedding_new(self, model: str) -> AbstractContextManager[None]:
        """Within it, agents and archives that are added have a scope with this model from the beginning."""
        ...

    def scope(self, number: int) -> Scope | None: ...

    def open(self, number: int, owner_kind: OwnerKind, owner_id: str, model: str) -> Scope:
        """Have what is written from now on embedded by `model`, and what is there already looked through (`fill`). A
        scope that is open is left as it is. Raises: NotFound."""
        ...

    def restart(self, number: int, model: str) -> Scope:
        """Begin again with `model`: no vector is left, every text is looked at again. Raises: NotFound."""
        ...

    def refill(self, number: int) -> Scope:
        """Look at every text again, and queue those without a vector, also those that were given up. Raises:
        NotFound."""
        ...

    def close(self, number: int, *, limit: int | None = None) -> bool:
        """Remove the scope with its vectors and all that waits; with `limit` so many of them at a time, and the scope
        when none is left. Whether all is gone."""
        ...

    def fill(self, model: str, *, limit: int) -> bool:
        """Look at the next `limit` texts of a scope with this model that is not looked through, and queue those without
        a vector; False: there is no such scope."""
        ...

    def enqueue(self, number: int, seqs: Sequence[int]) -> None:
        """Have these texts embedded, as they are now."""
        ...

    def put(
        self,
        number: int,
        rows: Sequence[tuple[int, bytes]],
        *,
        model: str,
        dimensions: int,
        claimed: datetime | None = None,
    ) -> Sequence[int]:
        """Store vectors of 16-bit floats and take their texts from the queue; the numbers of those that were stored.

        Args:
            claimed: store only those whose text is still claimed until then: it has not changed meanwhile.

        Raises: NotFound: no such scope; EmbeddingMismatch: it holds vectors of another model or length.
        """
        ...

    def remove(self, number: int, seqs: Sequence[int]) -> None:
        """These texts are gone or have changed: they have no vector and wait for none."""
        ...

    def block(self, scope: Scope, *, after_seq: int = -1, limit: int = 1_024) -> VectorBlock:
        """The next rows of the scope's generation behind a number, at most `limit`, fewer where numbers are missing."""
        ...

    def changed(
        self, scope: Scope, *, after_version: int, after_seq: int = 1 << 32, limit: int = 8_192
    ) -> Sequence[VectorRow]:
        """Rows that changed after (version, number), in this order, removed ones included."""
        ...

    def read(self, scope: Scope, seqs: Sequence[int]) -> Sequence[tuple[int, bytes]]:
        """(number, vector) of those that have one, in any order."""
        ...

    def claim(self, model: str, *, at: datetime, until: datetime, limit: int) -> Sequence[Claim]:
        """Take texts that wait for a vector of this model; nobody else gets them before `until`."""
        ...

    def waits(self, model: str, *, at: datetime) -> bool:
        """Whether `claim` or `fill` would find something."""
        ...

    def renew(self, claims: Sequence[Claim], *, claimed: datetime, until: datetime) -> None:
        """Keep texts that are claimed until `claimed` for longer."""
        ...

    def release(self, claims: Sequence[Claim], *, claimed: datetime, at: datetime | None = None) -> None:
        """Give texts back, to be claimed again at once or from `at` on; the try is not counted. Those that are not
        claimed until `claimed` any more are left alone."""
        ...

    def fail(self, claim: Claim, reason: str, *, claimed: datetime, again: datetime | None) -> None:
        """The text was refused: try again from then on; None: never, until somebody asks (`refill`)."""
        ...

    def drop(self, claims: Sequence[Claim], *, claimed: datetime) -> None:
        """Take texts from the queue that need no vector."""
        ...

    def counts(self, *, after: int = -1, limit: int = 1_000) -> Sequence[ScopeCounts]:
        """Scopes in order of their numbers. It counts what waits: for people who ask, not for the hot path."""
        ...

    def cached(self, model: str, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """hash -> vector of texts that were embedded lately."""
        ...

    def cache(self, model: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Remember (hash, vector); each takes the place of another one once the cache is full."""
        ...
