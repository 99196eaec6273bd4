"""The vectors of a filter's rows, gathered when the filter is asked for again: they are searched as a scope of their
own, which costs by the rows that it lets through and not by those that there are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from perdure.core.tx import Scope, Tx
from perdure.search.vectors.rows import NO_ROW, Form, IntArray, Rows, Sample, decoded, form_of, hashed

__all__ = ["Filters"]

MAX_BYTES = 12 * 2**20
"""Of vectors that are gathered of one scope: 16,384 rows at 384 dimensions."""

SHARE = 4  # a filter that lets more than one row in so many through is as fast without
FILTERS = 8
BLOCK = 1_024


class Filters:
    """The filters that one scope was searched with last. A filter is known by its array of numbers: who asks again
    gives the same object. To be used by one thread at a time."""

    def __init__(self) -> None:
        self._source: Rows | None = None
        self._held: OrderedDict[int, tuple[IntArray, Rows | None]] = OrderedDict()
        self.gathered = 0
        """How often vectors were gathered."""

    @property
    def nbytes(self) -> int:
        """The memory that the gathered vectors take, in bytes."""
        return sum(0 if rows is None else rows.nbytes for _, rows in self._held.values())

    def of(self, tx: Tx, scope: Scope, source: Rows, only: IntArray) -> Rows | None:
        """The rows of `source` that `only` (sorted) lets through, numbered by their places in it; None: this was not
        asked for before, or is too much."""
        if source is not self._source:
            self._source, self._held = source, OrderedDict()
        many = 2 * len(only) * source.dimensions > MAX_BYTES or SHARE * len(only) > source.count
        if source.form == "floats" or many:
            return None
        key = id(only)
        if key not in self._held:
            self._held[key] = (only, None)
            if len(self._held) > FILTERS:
                self._held.popitem(last=False)
            return None
        self._held.move_to_end(key)
        rows = self._held[key][1]
        if rows is None:
            self._held[key] = (only, rows := _gathered(tx, scope, source, only))
            self.gathered += 1
            while self.nbytes > MAX_BYTES and len(self._held) > 1:
                self._held.popitem(last=False)
        return rows


def _gathered(tx: Tx, scope: Scope, source: Rows, only: IntArray) -> Rows:
    dimensions = source.dimensions
    form: Form = "floats" if form_of(len(only), dimensions) == "floats" else "halves"
    rows = Rows(generation=source.generation, version=source.version, dimensions=dimensions)
    below = Sample.below_of(len(only))
    places: list[IntArray] = [np.empty(0, np.int64)]
    vectors: list[npt.NDArray[np.float16]] = [np.empty((0, dimensions), np.float16)]
    for some, found in _vectors(tx, scope, source, only):
        rows = rows.extended(some, np.zeros(len(some), np.int64), found, form=form, expected=len(only))
        chosen = hashed(some) < below
        places.append(some[chosen])
        vectors.append(found[chosen])
    return rows.sampled_by(Sample.of(np.concatenate(places), np.concatenate(vectors), below), ())


def _vectors(tx: Tx, scope: Scope, source: Rows, only: IntArray) -> Iterator[tuple[IntArray, npt.NDArray[np.float16]]]:
    """Places in `only` and their vectors."""
    at = source.rows_of(only)
    there = np.flatnonzero(at != NO_ROW)
    for first in range(0, len(there), BLOCK):
        places = there[first : first + BLOCK]
        if source.form == "halves":
            yield places, source.halves_of(at[places])
        else:
            size = 2 * source.dimensions
            stored = sorted(row for row in tx.vectors.read(scope, only[places].tolist()) if len(row[1]) == size)
            seqs = np.array([row[0] for row in stored], np.int64)
            yield np.searchsorted(only, seqs), decoded([row[1] for row in stored], source.dimensions)
