"""What a full-text match gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.core.text.words import Clause

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Matches", "Postings"]


class Postings(dict[tuple[tuple[Clause, ...], int], "NDArray[Any]"]):
    """Clauses that a row holds all of, and how many rows were asked for -> the newest of them, as one state of a scope
    and one filter have them."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The candidates of a full-text search in one scope.

    Args:
        seqs: their sequence numbers, those first that hold the rarest words of the query, then the newest.
        frequency: for each clause of the query, how many rows of the scope hold it; an estimate where there are very
            many.
    """

    seqs: Sequence[int] = ()
    frequency: Sequence[int] = ()
