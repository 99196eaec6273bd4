"""Passages that searches read before, remembered as long as their archive stays as it is."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.core.ids import ArchiveId
from perdure.core.passages import Archive, Passage, PassageTexts
from perdure.core.tx import Tx

__all__ = ["Texts"]

MAX_BYTES = 16 * 2**20
"""Of all archives, what was read last: some 16,000 passages of the length of a message."""

ROW_BYTES = 400
"""What a passage takes beside its strings, about."""

_Entry = tuple[int, str, float, str | None, Any]


@dataclass(slots=True)
class _Held:
    version: int
    make: Callable[[Any], Passage]
    entries: dict[int, _Entry] = field(default_factory=dict)  # in the order in which they were read
    nbytes: int = 0


class Texts:
    """The passages of the archives that were searched last. Several threads may use it."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[ArchiveId, _Held] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The memory that they take, in bytes; about."""
        with self._lock:
            return sum(held.nbytes for held in self._held.values())

    def of(self, tx: Tx, archive: Archive, seqs: Sequence[int]) -> PassageTexts:
        """What `tx.passages.texts` gives; `archive` as the transaction sees it."""
        with self._lock:
            held = self._held.get(archive.id)
            known = held.entries if held is not None and held.version == archive.version else {}
            entries = [known.get(seq) for seq in seqs]
        missing = [seq for seq, entry in zip(seqs, entries, strict=True) if entry is None]
        if missing:
            read = tx.passages.texts(archive.id, missing)
            self.keep(archive, read)
            if len(missing) == len(seqs):
                return read
            there = {entry[0]: entry for entry in _entries(read)}
            entries = [there.get(seq) if entry is None else entry for seq, entry in zip(seqs, entries, strict=True)]
        found = [entry for entry in entries if entry is not None]
        if held is None or not found:
            return PassageTexts()
        numbers, texts, times, origins, rows = zip(*found, strict=True)
        used = tx.passages.uses(archive.id, numbers)
        uses = [used.get(seq, 0) for seq in numbers] if used else [0] * len(numbers)
        return PassageTexts(numbers, texts, times, origins, rows, uses, held.make)

    def keep(self, archive: Archive, read: PassageTexts) -> None:
        """Remember what was read of an archive, as the transaction sees that."""
        if not read.seqs:
            return
        entries = {entry[0]: entry for entry in _entries(read)}
        size = sum(map(_size, entries.values()))
        with self._lock:
            held = self._held.get(archive.id)
            if held is None or held.version < archive.version:
                held = self._held[archive.id] = _Held(archive.version, read.make)
            elif held.version > archive.version:  # a search that began before it
                return
            self._held.move_to_end(archive.id)
            held.nbytes += size - sum(_size(held.entries[seq]) for seq in entries if seq in held.entries)
            held.entries.update(entries)
            self._make_room()

    def _make_room(self) -> None:
        total = sum(held.nbytes for held in self._held.values())
        while total > self._max_bytes and len(self._held) > 1:
            total -= self._held.popitem(last=False)[1].nbytes
        if total > self._max_bytes:  # of the one that is left; some more than need be, or each search would come here
            (held,) = self._held.values()
            for seq in list(held.entries):
                held.nbytes -= _size(held.entries.pop(seq))
                if held.nbytes <= self._max_bytes - self._max_bytes // 16:
                    break


def _entries(read: PassageTexts) -> Sequence[_Entry]:
    return list(zip(read.seqs, read.texts, read.occurred_at, read.origins, read.rows, strict=True))


def _size(entry: _Entry) -> int:
    return ROW_BYTES + sum(map(sys.getsizeof, entry[4]))
