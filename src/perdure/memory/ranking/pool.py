"""The columns that ranking sees: rows of a pool, and what is known of the whole scope they were taken from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.core.quick import quick

__all__ = ["ASSISTANT", "NO_ROLE", "TOOL", "USER", "Column", "Pool", "QueryHints", "Scope", "role_number"]

Column = NDArray[Any]

NO_ROLE, USER, ASSISTANT, TOOL = -1, 0, 1, 2


def role_number(role: str) -> int:
    """The number that stands for a message's role in `Pool.role`."""
    return {"user": USER, "assistant": ASSISTANT, "tool": TOOL}.get(role, NO_ROLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Statistics of everything that was searched, of which the pool is a part.

    `clause_rows`: in how many of the rows each clause of the query stands; None: as many as in the pool, which is
    right unless the candidates were cut off.
    """

    rows: int
    sessions: int = 1
    mean_chars: float = 150.0
    dense_mean: float = 0.0
    dense_std: float = 0.0
    clause_rows: Column | None = None


@quick
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """Candidates and their neighbours, one row each, in any order: n rows, k clauses.

    Attributes:
        seq: (n) the row's own number in its scope; a larger one is newer.
        session: (n) which session, file or archive the row stands in; neighbours share it.
        place: (n) position within the session; neighbours are those whose places differ by 1, 2, 3.
        session_rows: (n) how many rows the row's session has in all.
        speaker: (n) index into the scope's names, -1: nobody.
        role: (n) `USER`, `ASSISTANT`, `TOOL` or `NO_ROLE`.
        occurred_at: (n) epoch seconds, when it was said or happened.
        chars: (n) length of the text.
        asks: (n) whether it holds a question; after_question: whether the row before it does.
        timed: (n) whether it names a time ("yesterday", "2023").
        uses: (n) how often the row was used.
        counts: (k, n) how often each clause of the query stands in the text, from `matching.clause_counts`.
        dense: (n) cosine to the query; nan: not known.
    """

    seq: Column
    session: Column
    place: Column
    session_rows: Column
    speaker: Column
    role: Column
    occurred_at: Column
    chars: Column
    asks: Column
    after_question: Column
    timed: Column
    uses: Column
    counts: Column
    dense: Column
    scope: Scope

    @property
    def size(self) -> int:
        return len(self.seq)

    @classmethod
    def of(cls, seq: Column, scope: Scope, **columns: Column) -> Pool:
        """A pool of which some columns are not known: neutral values stand in for those.

        Raises: ValueError: columns of different lengths.
        """
        size = len(seq)
        for name, neutral in _NEUTRAL.items():
            if name not in columns:
                columns[name] = neutral(size)
        if "chars" not in columns:
            columns["chars"] = np.full(size, scope.mean_chars)
        pool = cls(seq=seq, scope=scope, **columns)
        lengths = {name: np.shape(column)[-1] for name, column in columns.items()}
        if set(lengths.values()) - {size}:
            raise ValueError(f"columns of different lengths: seq has {size} rows, {lengths}")
        return pool


# Of a column that is not known. Nobody is a neighbour, and all else says nothing.
_NEUTRAL: Mapping[str, Callable[[int], Column]] = {
    "session": lambda size: np.zeros(size, np.int64),
    "place": lambda size: np.arange(size) * 1000,
    "session_rows": lambda size: np.ones(size, np.int64),
    "speaker": lambda size: np.full(size, -1),
    "role": lambda size: np.full(size, NO_ROLE),
    "occurred_at": lambda size: np.full(size, np.nan),
    "asks": lambda size: np.zeros(size, bool),
    "after_question": lambda size: np.zeros(size, bool),
    "timed": lambda size: np.zeros(size, bool),
    "uses": np.zeros,
    "counts": lambda size: np.zeros((0, size)),
    "dense": lambda size: np.full(size, np.nan),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryHints:
    """What the query says of the rows it wants, beside its words. `query.hints_of` reads it from the text.

    Attributes:
        speakers: indexes of the names that it mentions.
        role: whose words are meant: `USER` ("what did I say"), `ASSISTANT` ("what did you suggest") or `NO_ROLE`.
        spans: (start, end) of the times it names, in epoch seconds.
        when: it asks for a time.
        now: epoch seconds; nan: nothing is old or new.
    """

    speakers: tuple[int, ...] = ()
    role: int = NO_ROLE
    spans: tuple[tuple[float, float], ...] = ()
    when: bool = False
    now: float = float("nan")
