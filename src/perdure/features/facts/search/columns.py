"""Columns of a graph's facts, which a search keeps in memory: filters, and how far entities lie apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.core.ids import GraphId
from perdure.features.facts.tables import Facts
from perdure.features.facts.values.facts import FactFilter
from perdure.storage.tx import Tx

FAR = 9
"""The distance of all entities that are more than `STEPS` facts away."""
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
            scopes = [scope for scope in self.labels["scope"] if wanted <= set(json.loads(scope or "{}").items())]
            mask &= self._is_among("scope", scopes)
        return np.flatnonzero(mask)

    def distances(self, rows: NDArray[np.int64], entities: Sequence[int]) -> NDArray[np.int64]:
        """Return for each of these rows how many facts lie between it and the entities: 0 if it names one, 1 if it
        shares an entity with such a row, and so on up to `STEPS`; `FAR` for others. Only these rows are followed."""
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
        """Return these columns with newer rows: one whose number is here replaces that one, others are appended. `rows`
        uses the codes of these columns, and may have more."""
        is_new = rows.seq > self.seq.max(initial=0)
        places = self.seq.searchsorted(rows.seq[~is_new])

        def merge(own: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
            """Return a column with the changed rows in their places, and the new ones behind."""
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
        """Return for each row whether its label in a column is one of these values."""
        labels = self.labels[column]
        is_wanted = np.zeros(len(labels) + 1, np.bool_)
        is_wanted[[labels[value] for value in values if value in labels]] = True
        return is_wanted[self.codes[column]]


def load_fact_columns(tx: Tx, graph_id: GraphId, before: FactColumns | None = None) -> FactColumns:
    """Load all versions of a graph's facts as columns; `before`: older columns of it, to update. Raises: NotFound."""
    rows = tx.of(Facts).columns(graph_id, after_version=-1 if before is None else before.version)
    if before is not None and not rows:
        return before
    names = (*_NUMBERS, "rating", *_TIMES, "state", "trust", "version", "relation", "type", "scope")
    values = dict(zip(names, zip(*rows, strict=True) if rows else ((),) * len(names), strict=True))
    labels = {name: {} if before is None else dict(before.labels[name]) for name in _LABELS}
    arrays: dict[str, Any] = {name: np.array(values[name], np.int64) for name in _NUMBERS}
    arrays |= {name: _times(values[name], -np.inf if name == "valid_at" else np.inf) for name in _TIMES}
    loaded = FactColumns(
        **arrays,
        rating=np.array(values["rating"], np.float64),
        labels=labels,
        codes={name: _codes(values[name], labels[name]) for name in _LABELS},
        version=max(values["version"], default=0),
    )
    return loaded if before is None else before.replace_rows(loaded)


def _codes(column: Sequence[str | None], labels: dict[str | None, int]) -> NDArray[np.int32]:
    """Return the codes of values; `labels` has them, and gains codes for new values."""
    return np.array([labels.setdefault(value, len(labels)) for value in column], np.int32)


def _times(column: Sequence[Any], nothing: float) -> NDArray[np.float64]:
    """Return times of the store, texts in ISO 8601, as epoch seconds; None becomes `nothing`."""
    texts = set(column) - {None}
    known: dict[Any, float] = {None: nothing, **{text: datetime.fromisoformat(text).timestamp() for text in texts}}
    return np.array([known[text] for text in column], np.float64)
