"""How much of an archive one transaction writes or removes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.core.passages import Passage

__all__ = ["BATCH", "BATCH_CHARS", "batches"]

BATCH = 500
"""So many passages are written or removed in one transaction: everybody else waits for it."""

BATCH_CHARS = 250_000
"""The same in characters: words are counted and indexed in the transaction, 0.5 s for a million."""


def batches(passages: Sequence[Passage]) -> Iterator[Sequence[Passage]]:
    """The passages in order, as many at a time as one transaction may write or remove; at least one."""
    first = chars = 0
    for index, passage in enumerate(passages):
        if index > first and (index - first == BATCH or chars + len(passage.text) > BATCH_CHARS):
            yield passages[first:index]
            first, chars = index, 0
        chars += len(passage.text)
    if passages:
        yield passages[first:]
