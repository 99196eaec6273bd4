"""Reading all vectors of a scope into memory: what the first search of an archive waits for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perdure.core.vectors import Scope
from perdure.search.vectors.rows import IntArray, Rows, Sample, form_of, hash_numbers
from perdure.storage.tx import Tx

BLOCK = 1_024
"""Rows that are read at once; of 256 to 8,192 all take about as long."""


def load_rows(tx: Tx, scope: Scope, dimensions: int) -> Rows:
    """Load the rows of a scope as this transaction sees them."""
    rows = Rows(generation=scope.generation, version=scope.version, dimensions=dimensions)
    below = Sample.below_of(scope.row_count)
    numbers: list[IntArray] = [np.empty(0, np.int64)]
    vectors: list[npt.NDArray[np.float16]] = [np.empty((0, dimensions), np.float16)]
    gone: list[tuple[int, int]] = []
    after = -1
    while (block := tx.vectors.block(scope, after_seq=after, limit=BLOCK)).last is not None:
        after = block.last
        gone += block.gone
        if not block.seqs:
            continue
        seqs = np.array(block.seqs, np.int64)
        some = np.frombuffer(block.vectors, "<f2").reshape(-1, dimensions)
        # As it will be in the end: changing the form copies all that is there.
        form = form_of(max(scope.row_count, rows.count + len(seqs)), dimensions)
        versions = np.array(block.versions, np.int64)
        rows = rows.extend(seqs, versions, some, form=form, expected=scope.row_count)
        chosen = hash_numbers(seqs) < below
        numbers.append(seqs[chosen])
        vectors.append(some[chosen])
    return rows.with_sample(Sample.of(np.concatenate(numbers), np.concatenate(vectors), below), gone)
