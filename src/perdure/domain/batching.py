"""Batches of texts that one transaction writes or deletes; other writers wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

BATCH = 500
"""The most texts of one transaction."""

BATCH_CHARS = 250_000
"""The most characters of one transaction: indexing a million takes 0.5 s."""


class HasText(Protocol):
    """A passage or a message."""

    @property
    def text(self) -> str: ...


T = TypeVar("T", bound=HasText)


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items in order, in batches of at least one that fit a transaction."""
    batch: list[T] = []
    chars = 0
    for item in items:
        if batch and (len(batch) == BATCH or chars + len(item.text) > BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(item)
        chars += len(item.text)
    if batch:
        yield batch
