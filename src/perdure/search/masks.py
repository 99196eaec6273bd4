"""Which passages a filter lets through, remembered as long as the archive stays as it is."""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from perdure.core.ids import ArchiveId
from perdure.core.passages import Archive
from perdure.core.tx import PassageFilter, Tx

__all__ = ["Masks"]

MAX_BYTES = 32_000_000


class Masks:
    """The filters that were used last. Several threads may use it."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[tuple[ArchiveId, int, PassageFilter], NDArray[np.int64]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, tx: Tx, archive: Archive, where: PassageFilter) -> NDArray[np.int64]:
        """The numbers of the passages, sorted; `archive` as this transaction sees it."""
        key = (archive.id, archive.version, where)
        with self._lock:
            if (held := self._held.get(key)) is not None:
                self._held.move_to_end(key)
                return held
        seqs = np.asarray(tx.passages.seqs(archive.id, where=where), np.int64)
        with self._lock:
            self._held[key] = seqs
            while sum(kept.nbytes for kept in self._held.values()) > self._max_bytes and len(self._held) > 1:
                self._held.popitem(last=False)
        return seqs
