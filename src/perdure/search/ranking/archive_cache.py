"""A cache of postings and filtered numbers of archives, valid for one version of an archive."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from perdure.core.ids import ArchiveId
from perdure.core.passages import Archive, PassageFilter
from perdure.core.text.words import Postings
from perdure.storage.tx import Tx

FILTERS = 64
CLAUSES = 500
"""The most clauses of one archive and filter. A clause takes at most 8 kB (200 numbers, sometimes 1,000), among
filtered facts at most 60 kB."""
MAX_BYTES = 32_000_000
"""The most bytes of filtered numbers."""
ARCHIVES = 16
"""The most archives whose columns are kept."""


class SizedColumns(Protocol):
    """Columns of numbers."""

    @property
    def nbytes(self) -> int:
        """How much memory these columns take, in bytes."""


C = TypeVar("C", bound=SizedColumns)


@dataclass(slots=True)
class _CachedArchive:
    """The cached postings and numbers of one archive and filter, as of one version of the archive."""

    version: int
    postings: Postings = field(default_factory=Postings)
    seqs: NDArray[np.int64] | None = None

    @property
    def nbytes(self) -> int:
        """The memory of the numbers, in bytes."""
        return 0 if self.seqs is None else self.seqs.nbytes


class ArchiveCache:
    """The archives and filters of the latest searches. Several threads may use it."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[tuple[ArchiveId, PassageFilter], _CachedArchive] = OrderedDict()
        self._columns: OrderedDict[ArchiveId, tuple[int, SizedColumns]] = OrderedDict()  # with the archive's version
        self._lock = threading.Lock()

    def columns(self, archive: Archive, load: Callable[[C | None], C]) -> C:
        """Return what a feature knows of the passages of its archive, from the cache if `archive`, as the transaction
        sees it, has the cached version. Else `load` makes it of what was cached of an older version, if anything."""
        with self._lock:
            version, columns = self._columns.get(archive.id, (-1, None))
            if columns is not None and version == archive.version:
                self._columns.move_to_end(archive.id)
                return cast(C, columns)
        columns = load(cast(C, columns) if version < archive.version else None)
        with self._lock:
            if version < archive.version:
                self._columns[archive.id] = (archive.version, columns)
                self._make_room()
        return columns

    def postings(self, archive: Archive, where: PassageFilter) -> Postings:
        """Return the cached postings of an archive, as the transaction sees it, and a filter, to read and to extend."""
        with self._lock:
            entry = self._entry(archive, where)
            if len(entry.postings) >= CLAUSES:
                entry.postings = Postings()
            return entry.postings

    def seqs(self, tx: Tx, archive: Archive, where: PassageFilter) -> NDArray[np.int64]:
        """Load the sorted numbers of the passages that match the filter; `archive` as the transaction sees it."""
        with self._lock:
            cached = self._entry(archive, where).seqs
        if cached is not None:
            return cached
        seqs = np.asarray(tx.passages.seqs(archive.id, where=where), np.int64)
        with self._lock:
            self._entry(archive, where).seqs = seqs
            self._make_room()
        return seqs

    def _entry(self, archive: Archive, where: PassageFilter) -> _CachedArchive:
        """Return the entry of this version, or a new one; a newer entry stays in the cache."""
        key = (archive.id, where)
        entry = self._entries.get(key)
        if entry is None or entry.version < archive.version:
            entry = self._entries[key] = _CachedArchive(archive.version)
        elif entry.version > archive.version:  # this search began before the newer one
            return _CachedArchive(archive.version)
        self._entries.move_to_end(key)
        if len(self._entries) > FILTERS:
            self._entries.popitem(last=False)
        return entry

    def _make_room(self) -> None:
        """Drop the entries that were used longest ago until the numbers fit `max_bytes`."""
        while sum(entry.nbytes for entry in self._entries.values()) > self._max_bytes and len(self._entries) > 1:
            self._entries.popitem(last=False)
        while len(self._columns) > ARCHIVES or (
            sum(columns.nbytes for _, columns in self._columns.values()) > self._max_bytes and len(self._columns) > 1
        ):
            self._columns.popitem(last=False)
