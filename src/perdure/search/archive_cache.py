"""A cache of postings, filtered numbers and facts of archives, valid for one version of an archive."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.core.facts.values import FactFilter, Graph
from perdure.core.ids import ArchiveId, GraphId
from perdure.core.passages import Archive, PassageFilter
from perdure.core.text.words import Postings
from perdure.storage.tx import Tx

FAR = 9
"""The distance of an entity that no path of interest reaches."""
STEPS = 1
"""How many facts away an entity may be from one that a query names."""
_NUMBERS = ("seq", "text_seq", "subject", "object")
_TIMES = ("valid_at", "invalid_at", "created_at", "expired_at")
_LABELS = ("relation", "type", "state", "trust", "scope")


@dataclass(frozen=True, slots=True, eq=False)
class FactColumns:
    """All versions of a graph's facts, expired ones too: n rows, in order of `seq`.

    Attributes:
        valid_at, invalid_at, created_at, expired_at: epoch seconds; minus infinity: unknown, infinity: not yet.
        labels: column (relation, type, state, trust, scope) -> value -> its code in `codes`.
        codes: column -> (n) the code of each row.
        version: of the graph, with which the row was written that was written last.
    """

    seq: NDArray[np.int64]
    text_seq: NDArray[np.int64]
    subject: NDArray[np.int64]
    object: NDArray[np.int64]
    rating: NDArray[np.float64]
    valid_at: NDArray[np.float64]
    invalid_at: NDArray[np.float64]
    created_at: NDArray[np.float64]
    expired_at: NDArray[np.float64]
    labels: Mapping[str, Mapping[str | None, int]]
    codes: Mapping[str, NDArray[np.int32]]
    version: int = 0

    @property
    def nbytes(self) -> int:
        """The memory of the columns, in bytes."""
        return 9 * self.seq.nbytes + 5 * 4 * len(self.seq)

    def match(self, where: FactFilter) -> NDArray[np.int64]:
        """Return the indexes of the rows that the filter lets through, in order."""
        if where.as_of is None:
            mask = self.expired_at == np.inf
        else:
            mask = (self.created_at <= where.as_of.timestamp()) & (self.expired_at > where.as_of.timestamp())
        for start, end in ((where.at, where.at), (where.since, where.until)):
            if start is not None:
                mask &= self.invalid_at > start.timestamp()
            if end is not None:
                mask &= self.valid_at <= end.timestamp()
        if where.ended_at is not None:
            mask &= self.invalid_at <= where.ended_at.timestamp()
        if where.entities:
            mask &= np.isin(self.subject, where.entities) | np.isin(self.object, where.entities)
        if where.min_rating > 0:
            mask &= self.rating >= where.min_rating
        for column, values in (("relation", where.relations), ("type", where.types)):
            if values:
                mask &= self._is_among(column, values)
        mask &= self._is_among("state", where.states)
        if where.trust is not None:
            mask &= self._is_among("trust", where.trust)
        if where.scope:
            wanted = set(where.scope)
            scopes = [one for one in self.labels["scope"] if wanted <= set(json.loads(one or "{}").items())]
            mask &= self._is_among("scope", scopes)
        return np.flatnonzero(mask)

    def distances(self, rows: NDArray[np.int64], entities: Sequence[int]) -> NDArray[np.int64]:
        """Return (rows) how many facts lie between each of these facts and the entities: 0 if it names one, 1 if it
        names one that such a fact names, `FAR` for all others. Only these rows are followed."""
        subject, object_ = self.subject[rows], self.object[rows]
        if not len(rows) or not entities:
            return np.full(len(rows), FAR)
        away = np.full(max(int(subject.max()), int(object_.max()), *entities) + 1, FAR)
        away[list(entities)] = 0
        for step in range(STEPS):
            near = np.minimum(away[subject], away[object_]) == step
            for reached in (subject[near], object_[near]):
                away[reached] = np.minimum(away[reached], step + 1)
        found: NDArray[np.int64] = np.minimum(away[subject], away[object_])
        return found

    def replace_rows(self, rows: FactColumns) -> FactColumns:
        """Return these columns with other rows: those of numbers that are here in their place, those of higher numbers
        behind them. `rows` has the codes of these columns, and may have more."""
        is_new = rows.seq > self.seq.max(initial=0)
        places = self.seq.searchsorted(rows.seq[~is_new])

        def merge(own: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
            merged = np.concatenate([own, other[is_new]])
            merged[places] = other[~is_new]
            return merged

        return FactColumns(
            **{name: merge(getattr(self, name), getattr(rows, name)) for name in (*_NUMBERS, "rating", *_TIMES)},
            labels=rows.labels,
            codes={name: merge(codes, rows.codes[name]) for name, codes in self.codes.items()},
            version=rows.version,
        )

    def _is_among(self, column: str, values: Sequence[str | None]) -> NDArray[np.bool_]:
        """Return (n) which rows have one of these values."""
        labels = self.labels[column]
        is_wanted = np.zeros(len(labels) + 1, np.bool_)
        is_wanted[[labels[value] for value in values if value in labels]] = True
        return is_wanted[self.codes[column]]


def load_fact_columns(tx: Tx, graph_id: GraphId, before: FactColumns | None = None) -> FactColumns:
    """Load the columns of all versions that the transaction sees, of those in `before` only what has changed since.

    Raises: NotFound.
    """
    rows = tx.facts.columns(graph_id, after_version=-1 if before is None else before.version)
    if before is not None and not rows:
        return before
    *columns, versions = zip(*rows, strict=True) if rows else ((),) * 15
    values = dict(zip((*_NUMBERS, "rating", *_TIMES, *_LABELS), columns, strict=True))
    labels = {name: {} if before is None else dict(before.labels[name]) for name in _LABELS}
    arrays: dict[str, Any] = {name: np.array(values[name], np.int64) for name in _NUMBERS}
    arrays |= {name: _times(values[name], -np.inf if name == "valid_at" else np.inf) for name in _TIMES}
    loaded = FactColumns(
        **arrays,
        rating=np.array(values["rating"], np.float64),
        labels=labels,
        codes={name: _codes(values[name], labels[name]) for name in _LABELS},
        version=max(versions, default=0),
    )
    return loaded if before is None else before.replace_rows(loaded)


def _codes(column: Sequence[str | None], labels: dict[str | None, int]) -> NDArray[np.int32]:
    """Return the codes of values; new values get the next ones in `labels`."""
    return np.array([labels.setdefault(value, len(labels)) for value in column], np.int32)


def _times(column: Sequence[Any], nothing: float) -> NDArray[np.float64]:
    """Return epoch seconds of the store's times; many facts have the same."""
    known: dict[Any, float] = {None: nothing}
    for text in set(column):
        if text is not None:
            known[text] = datetime.fromisoformat(text).timestamp()
    return np.array([known[text] for text in column], np.float64)


FILTERS = 64
CLAUSES = 500
"""The most clauses of one archive and filter. A clause takes at most 8 kB (200 numbers, sometimes 1,000), among
filtered facts at most 60 kB."""
MAX_BYTES = 32_000_000
"""The most bytes of filtered numbers."""
GRAPHS = 16
"""The most graphs whose facts are kept."""


@dataclass(slots=True)
class _Entry:
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
        self._entries: OrderedDict[tuple[ArchiveId, PassageFilter], _Entry] = OrderedDict()
        self._facts: OrderedDict[ArchiveId, tuple[int, FactColumns]] = OrderedDict()
        self._lock = threading.Lock()

    def facts(self, tx: Tx, graph: Graph, archive: Archive) -> FactColumns:
        """Load the columns of a graph's facts; `archive` is that of their texts as the transaction sees it."""
        with self._lock:
            version, columns = self._facts.get(archive.id, (-1, None))
            if columns is not None and version == archive.version:
                self._facts.move_to_end(archive.id)
                return columns
        columns = load_fact_columns(tx, graph.id, columns if version < archive.version else None)
        with self._lock:
            if version < archive.version:
                self._facts[archive.id] = (archive.version, columns)
                self._make_room()
        return columns

    def postings(self, archive: Archive, where: PassageFilter) -> Postings:
        """Return the cached postings, to read and to extend; `archive` as the transaction sees it."""
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

    def _entry(self, archive: Archive, where: PassageFilter) -> _Entry:
        """Return the entry of this version, or a new one; a newer entry stays in the cache."""
        key = (archive.id, where)
        entry = self._entries.get(key)
        if entry is None or entry.version < archive.version:
            entry = self._entries[key] = _Entry(archive.version)
        elif entry.version > archive.version:  # this search began before the newer one
            return _Entry(archive.version)
        self._entries.move_to_end(key)
        if len(self._entries) > FILTERS:
            self._entries.popitem(last=False)
        return entry

    def _make_room(self) -> None:
        """Drop the entries that were used longest ago until the numbers fit `max_bytes`."""
        while sum(entry.nbytes for entry in self._entries.values()) > self._max_bytes and len(self._entries) > 1:
            self._entries.popitem(last=False)
        while len(self._facts) > GRAPHS or (
            sum(columns.nbytes for _, columns in self._facts.values()) > self._max_bytes and len(self._facts) > 1
        ):
            self._facts.popitem(last=False)
