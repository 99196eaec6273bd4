"""Batches of passages that one transaction writes or deletes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.core.passages import Passage

BATCH = 500
"""The most passages of one transaction; other writers wait for it."""

BATCH_CHARS = 250_000
"""The most characters of one transaction: indexing a million takes 0.5 s."""


def batches(passages: Sequence[Passage]) -> Iterator[Sequence[Passage]]:
    """Yield the passages in order, in batches of at least one that fit a transaction."""
    first = chars = 0
    for index, passage in enumerate(passages):
        if index > first and (index - first == BATCH or chars + len(passage.text) > BATCH_CHARS):
            yield passages[first:index]
            first, chars = index, 0
        chars += len(passage.text)
    if passages:
        yield passages[first:]
