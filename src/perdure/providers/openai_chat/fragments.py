"""A cache of encoded JSON: each request sends the history again, and only its end is new."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

ENTRY_OVERHEAD = 200
"""The approximate size of an entry besides its bytes."""


class Fragments:
    """A bounded least-recently-used cache of encoded pieces.

    A piece belongs to one object by identity: a message that is loaded again, or revised, is encoded again. (Messages
    have slots, so weak references are not possible.)

    Args:
        limit_bytes: the size of the cache.
    """

    def __init__(self, limit_bytes: int = 32_000_000) -> None:
        self._limit_bytes = limit_bytes
        self._pieces: OrderedDict[Hashable, tuple[object, tuple[bytes, ...]]] = OrderedDict()
        self.size_bytes = 0

    def of(self, key: Hashable, owner: Any, encode: Callable[[Any], tuple[bytes, ...]]) -> tuple[bytes, ...]:
        """The pieces of `owner`, from the cache or by `encode`."""
        found = self._pieces.get(key)
        if found is not None and found[0] is owner:
            self._pieces.move_to_end(key)
            return found[1]
        pieces = encode(owner)
        if found is not None:
            self.size_bytes -= _size(found[1])
        self._pieces[key] = owner, pieces
        self._pieces.move_to_end(key)
        self.size_bytes += _size(pieces)
        while self.size_bytes > self._limit_bytes:
            _, (_, dropped) = self._pieces.popitem(last=False)
            self.size_bytes -= _size(dropped)
        return pieces


def _size(pieces: tuple[bytes, ...]) -> int:
    return ENTRY_OVERHEAD + sum(map(len, pieces))
