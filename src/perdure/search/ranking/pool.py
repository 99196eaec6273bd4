"""The input of ranking: the rows of a pool as columns, and statistics of the scope that they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]

NO_ROLE, USER, ASSISTANT, TOOL = -1, 0, 1, 2

ASKS, ANSWERS, SPEAKER, ROLE = range(4)
"""Rows of `Pool.traits`."""

AskedKind = Literal["", "time", "name"]
"""What a query asks for, as far as it matters which rows hold such a thing."""

SESSION_SPAN = 1 << 32
"""A row's `spot` is the number of its session times this, plus its place there, which is less than half of it."""

BOUND = 1e6


def role_number(role: str) -> int:
    """Return the number of a message's role in `Pool.traits`."""
    return {"user": USER, "assistant": ASSISTANT, "tool": TOOL}.get(role, NO_ROLE)


def traits_of(*, asks: Column, answers: Column, speaker: Column, role: Column) -> NDArray[np.float32]:
    """Return (4, n) the traits of each row, as 32-bit floats.

    `ASKS`: whether it holds a question; `ANSWERS`: whether the row before it does; `SPEAKER`: index into the scope's
    names, -1: nobody; `ROLE`: `USER`, `ASSISTANT`, `TOOL` or `NO_ROLE`.
    """
    return np.array([asks, answers, speaker, role], np.float32)


def clip(values: Column) -> Column:
    """Return the values clipped to 0 to a million; nan becomes 0."""
    # In one order of memory, whatever that of the values: a sum's last bit depends on it.
    found: Column = np.fmax(values, 0.0, order="C")
    return np.fmin(found, BOUND, out=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolScope:
    """Statistics of all rows that were searched; the pool is a part of them.

    Attributes:
        rows, sessions: how many there are.
        session_rows: the number of rows of each session, by its number; None: one each. A session with a negative
            number has one.
        clause_rows: in how many rows each clause of the query occurs; None: count them in the pool. That is
            right unless candidates were cut off.
    """

    rows: int
    sessions: int = 1
    session_rows: Column | None = None
    mean_chars: float = 150.0
    dense_mean: float = 0.0
    dense_std: float = 0.0
    clause_rows: Sequence[float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """Candidates and their neighbours, one row each, in any order: n rows, k clauses.

    `Pool.of` clips any numbers; the constructor expects counts, uses and lengths from 0 to a million.

    Attributes:
        seq: (n) the row's number in its scope; a larger one is newer.
        spot: (n) its session, file or archive, and its place there, as one number (`SESSION_SPAN`). Rows whose places
            differ by 1, 2 or 3 are neighbours.
        traits: (4, n) from `traits_of`.
        chars: (n) length of the text.
        occurred_at: (n) epoch seconds; minus infinity: unknown.
        counts: (k, n) how often each clause of the query occurs in the text, from `matching.clause_counts`.
        related: (k, n) the degree of its word that is most related to each clause, 0 to 9; None: they do not count.
        first_person: (n) whether it says "I" or "we"; None: it does not matter.
        dense: (n) cosine to the query; nan: unknown.
        asked: (n) how much of what the query asks for it holds, from `hints.count_asked`; None: it does not matter.
        uses: (n) how often the row was used; None: never.
    """

    seq: Column
    spot: Column
    traits: Column
    chars: Column
    occurred_at: Column
    counts: Column
    dense: Column
    asked: Column | None = None
    uses: Column | None = None
    related: Column | None = None
    first_person: Column | None = None
    scope: PoolScope

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.seq)

    def select(self, rows: Column) -> Pool:
        """Return these rows, in this order."""
        return replace(
            self,
            seq=self.seq[rows],
            spot=self.spot[rows],
            traits=self.traits.take(rows, axis=1),
            chars=self.chars[rows],
            occurred_at=self.occurred_at[rows],
            counts=self.counts.take(rows, axis=1),
            dense=self.dense[rows],
            asked=None if self.asked is None else self.asked[rows],
            uses=None if self.uses is None else self.uses[rows],
            first_person=None if self.first_person is None else self.first_person[rows],
            related=None if self.related is None else self.related.take(rows, axis=1),
        )

    @classmethod
    def of(cls, seq: Column, scope: PoolScope, **columns_by_name: Column | None) -> Pool:
        """Build a pool; neutral values replace the columns that are not known.

        Args:
            columns_by_name: `session`, `place`, `speaker`, `role`, `occurred_at`, `chars`, `asks`, `answers`, `asked`,
                `uses`, `counts`, `related`, `first_person`, `dense`; None means unknown. Sessions and places are whole
                numbers, places from 0 to 2^31. Without places no row has neighbours.
        Raises: ValueError: columns of different lengths, or with other names.
        """
        size = len(seq)
        columns = {name: column for name, column in columns_by_name.items() if column is not None}
        if others := columns.keys() - _NEUTRAL.keys() - {"chars", "asked", "uses", "related", "first_person"}:
            raise ValueError(f"no columns of a pool: {', '.join(sorted(others))}")
        lengths = {name: np.shape(column)[-1] for name, column in columns.items()}
        if set(lengths.values()) - {size}:
            raise ValueError(f"columns of different lengths: seq has {size} rows, {lengths}")
        known = {**{name: neutral(size) for name, neutral in _NEUTRAL.items()}, **columns}
        occurred_at, uses, related = known["occurred_at"], columns.get("uses"), columns.get("related")
        return cls(
            seq=seq,
            spot=known["session"].astype(np.int64) * SESSION_SPAN + known["place"],
            traits=traits_of(
                asks=known["asks"], answers=known["answers"], speaker=known["speaker"], role=known["role"]
            ),
            chars=clip(columns.get("chars", np.full(size, scope.mean_chars))),
            occurred_at=np.where(np.isnan(occurred_at), -np.inf, occurred_at),
            counts=clip(known["counts"]),
            dense=known["dense"],
            asked=columns.get("asked"),
            uses=None if uses is None else clip(uses),
            related=None if related is None else clip(related),
            first_person=columns.get("first_person"),
            scope=scope,
        )


# The values of a column that is not known.
_NEUTRAL: Mapping[str, Callable[[int], Column]] = {
    "session": lambda size: np.zeros(size, np.int64),
    "place": lambda size: np.arange(size) * 1000,
    "speaker": lambda size: np.full(size, -1),
    "role": lambda size: np.full(size, NO_ROLE),
    "occurred_at": lambda size: np.full(size, -np.inf),
    "asks": lambda size: np.zeros(size, bool),
    "answers": lambda size: np.zeros(size, bool),
    "counts": lambda size: np.zeros((0, size)),
    "dense": lambda size: np.full(size, np.nan),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryHints:
    """Hints of a query about the rows it wants, from `hints.hints_of`.

    Attributes:
        speakers: indexes of the names that it mentions.
        role: whose words it means: `USER` ("what did I say"), `ASSISTANT` ("what did you suggest") or `NO_ROLE`.
        spans: (start, end) of the times it names, in epoch seconds.
        asked: what it asks for.
        now: epoch seconds; nan: age does not count.
    """

    speakers: tuple[int, ...] = ()
    role: int = NO_ROLE
    spans: tuple[tuple[float, float], ...] = ()
    asked: AskedKind = ""
    now: float = float("nan")
