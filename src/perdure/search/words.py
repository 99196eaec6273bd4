"""Which passages hold a word, remembered as long as the archive stays as it is."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perdure.core.ids import ArchiveId
from perdure.core.passages import Archive
from perdure.core.text.words import Clause, index_words
from perdure.core.tx import PassageFilter, Postings, Tx
from perdure.search.texts import Texts

__all__ = ["Words"]

SCOPES = 64
CLAUSES = 500
"""Of one archive and filter. A clause takes 8 kB at most (200 numbers, sometimes 1,000), most take far less."""

GATHERED_AFTER = 16
"""Searches with one filter, and then the words of its passages are gathered. That takes as long as some forty searches
of the index, which walks over all passages that the filter leaves out; from then on they cost next to nothing."""
GATHERED_ROWS = 16_384
GATHERED_CHARS = 4_000_000
GATHERED_BYTES = 16 * 2**20
"""Of all filters, those used last."""
PAGE = 64


class _Gathered:
    """The passages that hold each word, of some passages."""

    def __init__(self, places: dict[str, int], seqs: NDArray[np.uint32], starts: NDArray[np.int64]) -> None:
        self._places, self._seqs, self._starts = places, seqs, starts

    @property
    def nbytes(self) -> int:
        return self._seqs.nbytes + self._starts.nbytes + 160 * len(self._places)

    def every(self, clause: Clause) -> NDArray[np.int64] | None:
        """All that hold it, in order; None: it is more than a word."""
        if clause.prefix or len(clause.tokens) != 1:
            return None
        at = self._places.get(clause.tokens[0])
        if at is None:
            return np.empty(0, np.int64)
        return self._seqs[self._starts[at] : self._starts[at + 1]].astype(np.int64)


@dataclass(slots=True)
class _Held:
    version: int
    known: Postings = field(default_factory=Postings)
    searches: int = 0
    gathered: _Gathered | None = None


class Words:
    """What was read of the full-text index for the archives and filters that were searched last. Several threads may
    use it. Passages whose words are gathered are put into `texts`."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._held: OrderedDict[tuple[ArchiveId, PassageFilter], _Held] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The memory that gathered words take, in bytes."""
        with self._lock:
            return self._gathered_bytes()

    def of(self, tx: Tx, archive: Archive, where: PassageFilter, only: NDArray[np.int64] | None = None) -> Postings:
        """To be read and added to; `archive` as the transaction sees it. For each search once.

        Args:
            only: the numbers of the passages that the filter lets through, sorted, if they are known.
        """
        key = (archive.id, where)
        with self._lock:
            held = self._held.get(key)
            if held is None or held.version != archive.version:
                held = self._held[key] = _Held(archive.version)
            elif len(held.known) >= CLAUSES:
                held.known = _postings(held.gathered)
            self._held.move_to_end(key)
            while len(self._held) > SCOPES:
                self._held.popitem(last=False)
            if only is None or len(only) > GATHERED_ROWS:
                return held.known
            held.searches += 1
            if held.searches != GATHERED_AFTER:  # one of several that come at once does the work
                return held.known
        gathered = _gather(tx, archive, only, self._texts)
        with self._lock:
            held.gathered, held.known = gathered, _postings(gathered)
            self._make_room()
        return held.known

    def _gathered_bytes(self) -> int:
        return sum(held.gathered.nbytes for held in self._held.values() if held.gathered is not None)

    def _make_room(self) -> None:
        for held in list(self._held.values())[:-1]:
            if self._gathered_bytes() <= GATHERED_BYTES:
                return
            if held.gathered is not None:
                held.gathered, held.known, held.searches = None, Postings(), 0


def _postings(gathered: _Gathered | None) -> Postings:
    known = Postings()
    known.every = None if gathered is None else gathered.every
    return known


def _gather(tx: Tx, archive: Archive, only: NDArray[np.int64], texts: Texts) -> _Gathered | None:
    """The words of these passages, which are put into `texts`; None: there are too many."""
    places: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    found: list[int] = []
    seqs: list[int] = []
    sizes: list[int] = []
    chars = 0
    for first in range(0, len(only), PAGE):
        read = tx.passages.texts(archive.id, only[first : first + PAGE].tolist())
        texts.keep(archive, read)
        seqs += read.seqs
        for text in read.texts:
            chars += len(text)
            if chars > GATHERED_CHARS:
                return None
            before = len(found)
            found.extend(map(places.__getitem__, set(index_words(text).split())))
            sizes.append(len(found) - before)
    at = np.array(found, np.int32)
    rows = np.repeat(np.array(seqs, np.uint32), sizes)
    starts = np.zeros(len(places) + 1, np.int64)
    np.cumsum(np.bincount(at, minlength=len(places)), out=starts[1:])
    return _Gathered(dict(places), rows[np.argsort(at, kind="stable")], starts)
