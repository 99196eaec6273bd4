"""Which passages hold a word, remembered as long as the archive stays as it is."""

from __future__ import annotations

import threading
from collections import OrderedDict

from perdure.core.ids import ArchiveId
from perdure.core.passages import Archive
from perdure.core.tx import PassageFilter, Postings

__all__ = ["Words"]

SCOPES = 64
CLAUSES = 500
"""Of one archive and filter. A clause takes 8 kB at most (200 numbers, sometimes 1,000), most take far less."""


class Words:
    """What was read of the full-text index for the archives and filters that were searched last. Several threads may
    use it."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[ArchiveId, PassageFilter], tuple[int, Postings]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, archive: Archive, where: PassageFilter) -> Postings:
        """To be read and added to; `archive` as the transaction sees it that does so."""
        key = (archive.id, where)
        with self._lock:
            version, known = self._held.get(key, (-1, {}))
            if version != archive.version or len(known) >= CLAUSES:
                known = {}
            self._held[key] = (archive.version, known)
            self._held.move_to_end(key)
            while len(self._held) > SCOPES:
                self._held.popitem(last=False)
        return known
