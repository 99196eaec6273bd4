"""Load all vectors of a scope into memory, at its first search."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perdure.core.vectors import Scope
from perdure.search.vectors.arithmetic import IntArray, hash_numbers
from perdure.search.vectors.rows import Rows, Sample, form_of
from perdure.storage.tx import Tx

BLOCK = 1_024
"""Rows per query; 256 to 8,192 are equally fast."""


def load_rows(tx: Tx, scope: Scope, dimensions: int) -> Rows:
    """Load the vectors of a scope as this transaction sees them."""
    rows = Rows(generation=scope.generation, version=scope.version, dimensions=dimensions)
    below = Sample.below_of(scope.row_count)
    numbers: list[IntArray] = [np.empty(0, np.int64)]
    vectors: list[npt.NDArray[np.float16]] = [np.empty((0, dimensions), np.float16)]
    removed: list[tuple[int, int]] = []
    after = -1
    while (block := tx.vectors.block(scope, after_seq=after, limit=BLOCK)).last is not None:
        after = block.last
        removed += block.removed
        if not block.seqs:
            continue
        seqs = np.array(block.seqs, np.int64)
        halves = np.frombuffer(block.vectors, "<f2").reshape(-1, dimensions)
        # The final form from the start: a later change would copy all rows.
        form = form_of(max(scope.row_count, rows.count + len(seqs)), dimensions)
        versions = np.array(block.versions, np.int64)
        rows = rows.extend(seqs, versions, halves, form=form, expected=scope.row_count)
        sampled = hash_numbers(seqs) < below
        numbers.append(seqs[sampled])
        vectors.append(halves[sampled])
    return rows.with_sample(Sample.of(np.concatenate(numbers), np.concatenate(vectors), below), removed)
