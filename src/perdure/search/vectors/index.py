"""Search by meaning: the stored vectors nearest to a query's, from matrices in memory that are what is committed.

A search reads its scope's version in its own transaction and then looks at exactly the rows of that version: a matrix
that is older takes up what has changed since, and from one that is newer the later rows are left out and what they
replaced is read from the file, which still holds it for this transaction.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perdure.core.errors import EmbeddingMismatch
from perdure.core.vectors import Scope, VectorRow
from perdure.search.vectors.loading import load_rows
from perdure.search.vectors.rows import NO_ROW, FloatArray, IntArray, Rows, decode, scores
from perdure.storage.tx import Tx

MAX_BYTES = 256 * 2**20
PAGE = 8_192

ESTIMATED_ROWS = 1_024
"""So many rows with the fewest differing signs, or one in 128, are looked at more closely."""

SCORED_ROWS = 512
"""The same where the vectors are in memory, so that a closer look is the last one; or one in 192."""
NEAR_EACH = 6  # so many of them for each row that is wanted, at least
NEAR_SHARE = 3  # but of few rows only one in so many, or half of that number for each that is wanted

RESCORED_MIN, RESCORED_MAX, RESCORED_STEP = 128, 1_024, 128
CERTAIN_TOP = 10
"""Stored vectors are read until none is likely to be left that belongs to the best ten."""

CERTAINTY = 3.0  # standard deviations of the estimate's error
FARTHEST = 2**16 - 1  # signs that differ, of a row that is not snapshot


@dataclass(frozen=True, slots=True, eq=False)
class NearestRows:
    """What a search by meaning found.

    Args:
        seqs: the best rows' numbers, best first, equal ones the later first.
        scores: their cosines.
        mean, std: of the cosines of all rows that were searched; of many rows an estimate to some hundredths of `std`.
        rows: how many were searched.
        scores_of: the cosine of each of these numbers, nan where there is no vector; within the transaction only.
    """

    seqs: IntArray
    scores: FloatArray
    mean: float
    std: float
    rows: int
    scores_of: Callable[[Sequence[int] | IntArray], FloatArray]


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    rows: Rows | None = None

    @property
    def nbytes(self) -> int:
        return 0 if self.rows is None else self.rows.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class _Snapshot:
    """What one transaction sees: `rows` without `hidden` ones, and `extra` rows beside them."""

    rows: Rows
    hidden: npt.NDArray[np.int32]
    extra_seqs: IntArray
    extra: FloatArray

    @property
    def count(self) -> int:
        return self.rows.count - self.rows.dead - len(self.hidden) + len(self.extra_seqs)


class VectorIndexes:
    """The matrices of one store's scopes, those used last, together at most `max_bytes`; safe to use from any thread.

    A single scope may be larger than that: then it is the only one that is kept.
    """

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, _Entry] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """The memory they take, in bytes."""
        with self._lock:
            return sum(entry.nbytes for entry in self._entries.values())

    def search(
        self,
        tx: Tx,
        number: int,
        query: FloatArray,
        *,
        limit: int,
        only: IntArray | None = None,
        model: str | None = None,
        scope: Scope | None = None,
    ) -> NearestRows | None:
        """The rows of scope `number` nearest to `query`; None when the scope has no vectors and will get none.

        Args:
            query: a unit vector, shape (dimensions,).
            limit: how many at most.
            only: look at these numbers alone; sorted.
            model: the handle of what made the query.
            scope: as this transaction sees it, if the caller has it.

        Raises: EmbeddingMismatch: the scope's vectors are of another model, or of another length.
        """
        if scope is None:
            scope = tx.vectors.scope(number)
        if scope is None:
            self.forget(number)
            return None
        if scope.dimensions not in (None, len(query)) or (model is not None and model != scope.model):
            raise EmbeddingMismatch(
                scope.owner_id,
                stored_model=scope.model,
                stored_dimensions=scope.dimensions,
                model=model or scope.model,
                dimensions=len(query),
            )
        query = np.ascontiguousarray(query, np.float32)
        snapshot = self._snapshot(tx, scope, len(query))
        return _Search(tx, scope, snapshot, query, limit, only).result()

    def forget(self, number: int) -> None:
        """Release a scope's matrix."""
        with self._lock:
            self._entries.pop(number, None)

    def _snapshot(self, tx: Tx, scope: Scope, dimensions: int) -> _Snapshot:
        with self._lock:
            entry = self._entries.setdefault(scope.number, _Entry())
            self._entries.move_to_end(scope.number)
        with entry.lock:  # one of several that came at once does the work, the others find it done
            before = entry.rows
            snapshot = _load_snapshot(tx, scope, dimensions, entry)
            grown = entry.rows is not None and entry.rows is not before
        if grown:
            self._make_room()
        return snapshot

    def _make_room(self) -> None:
        with self._lock:
            sizes = {number: entry.nbytes for number, entry in self._entries.items() if entry.rows is not None}
            total = sum(sizes.values())
            for number in list(self._entries)[:-1]:
                if total <= self._max_bytes:
                    return
                total -= sizes.get(number, 0)
                del self._entries[number]


def _load_snapshot(tx: Tx, scope: Scope, dimensions: int, entry: _Entry) -> _Snapshot:
    """Load what this transaction sees; keep the newest committed rows in `entry`."""
    rows = entry.rows
    if rows is None or rows.generation != scope.generation or rows.dimensions != dimensions:
        found = load_rows(tx, scope, dimensions)
        if scope.settled and (rows is None or rows.generation < scope.generation):
            entry.rows = found
        return _snapshot_of(found)
    if rows.version == scope.version:
        return _snapshot_of(rows)
    if rows.version > scope.version:
        newer = rows.newer_than(scope.version)
        if newer is None:
            return _snapshot_of(load_rows(tx, scope, dimensions))
        there = tx.vectors.read(scope, newer.tolist())
        return _snapshot_with_changes(rows, newer, [(seq, 0, vector) for seq, vector in there])
    changes: list[VectorRow] = []
    at, after = rows.version, 1 << 32
    while page := tx.vectors.changed(scope, after_version=at, after_seq=after, limit=PAGE):
        if scope.settled:
            rows = rows.apply(page, page[-1][1])
        else:
            changes += page
        at, after = page[-1][1], page[-1][0]
    if not scope.settled:
        return _snapshot_with_changes(rows, np.array([row[0] for row in changes], np.int64), changes)
    entry.rows = rows = rows.apply((), scope.version)
    return _snapshot_of(rows)


def _snapshot_of(rows: Rows) -> _Snapshot:
    nothing = np.empty(0, np.int64)
    return _Snapshot(rows, np.empty(0, np.int32), nothing, np.empty((0, rows.dimensions), np.float32))


def _snapshot_with_changes(rows: Rows, changed: IntArray, there: Sequence[VectorRow]) -> _Snapshot:
    """Return `rows` where of the numbers `changed` only those in `there` exist."""
    hidden = rows.rows_of(changed)
    size = 2 * rows.dimensions
    extra = [(row[0], row[2]) for row in there if row[2] is not None and len(row[2]) == size]
    return _Snapshot(
        rows,
        hidden[hidden != NO_ROW],
        np.array([seq for seq, _ in extra], np.int64),
        decode([vector for _, vector in extra], rows.dimensions).astype(np.float32),
    )


class _Search:
    """One search over what one transaction sees."""

    def __init__(
        self, tx: Tx, scope: Scope, snapshot: _Snapshot, query: FloatArray, limit: int, only: IntArray | None
    ) -> None:
        self._tx, self._scope, self._snapshot, self._query, self._limit = tx, scope, snapshot, query, limit
        self._rows, self._only = snapshot.rows, only
        self._all_scores: FloatArray | None = None  # the score of each row, where all were computed
        self._best: tuple[IntArray, FloatArray] | None = None  # numbers and scores of what was found

    def result(self) -> NearestRows:
        seqs, found, mean, std, rows = self._search_only() if self._only is not None else self._search_all()
        best = np.lexsort((-seqs, -found))[: self._limit]
        seqs, found = self._best = seqs[best], found[best]
        return NearestRows(seqs, found, mean, std, rows, self._scores_of)

    def _search_all(self) -> tuple[IntArray, FloatArray, float, float, int]:
        """Candidates and their scores, among them the best; mean, deviation and number of all."""
        rows, count = self._rows, self._snapshot.count
        extra = scores(self._snapshot.extra, self._query)
        if count == len(extra):
            return self._snapshot.extra_seqs, extra, *_spread(extra), count
        dead = self._dead_rows()
        if rows.form == "floats":
            found = self._all_scores = rows.score(self._query)
            living = found if dead is None else found[~dead]
            mean, std = _spread(np.concatenate([living, extra]))
            if dead is not None:
                found = np.where(dead, -np.inf, found)
            at = _largest(found, self._limit)
            at = at[found[at] > -np.inf]
            return *self._join_extra(rows.seqs_of(at), found[at], extra), mean, std, count
        differing = rows.count_differing(self._query)
        if dead is not None:
            differing[dead] = FARTHEST
        shares = _shares(differing)
        mean, std = self._estimated_spread(shares)
        at = _fewest(differing, self._shortlist_size(rows.count), shares)
        if dead is not None:
            at = at[differing[at] < FARTHEST]
        return *self._join_extra(*self._rescore(at), extra), mean, std, count

    def _search_only(self) -> tuple[IntArray, FloatArray, float, float, int]:
        """Return the same for the rows of `only`."""
        only, rows = np.asarray(self._only, np.int64), self._rows
        extra_seqs, beside = self._snapshot.extra_seqs, self._snapshot.extra
        if len(extra_seqs):  # or it would sort `only` for nothing
            kept = np.isin(extra_seqs, only)
            extra_seqs, beside = extra_seqs[kept], beside[kept]
        extra = scores(beside, self._query)
        at = rows.rows_of(only)
        at = at[at != NO_ROW]
        if len(self._snapshot.hidden):
            at = at[~np.isin(at, self._snapshot.hidden)]
        count = len(at) + len(extra)
        if rows.form == "floats" or not len(at):
            found = rows.score(self._query, at) if len(at) else np.empty(0, np.float32)
            mean, std = _spread(np.concatenate([found, extra]))
            best = _largest(found, self._limit)
            return (
                np.concatenate([rows.seqs_of(at[best]), extra_seqs]),
                np.concatenate([found[best], extra]),
                mean,
                std,
                count,
            )
        if len(at) <= (SCORED_ROWS if rows.form == "halves" else RESCORED_MIN):
            seqs, found = self._rescore(at) if rows.form == "halves" else self._score_stored(rows.seqs_of(at))
            found = np.concatenate([found, extra])
            return np.concatenate([seqs, extra_seqs]), found, *_spread(found), count
        many = 16 * len(at) > rows.count  # then picking them one by one costs more than looking at all
        differing = rows.count_differing(self._query)[at] if many else rows.count_differing(self._query, at)
        shares = _shares(differing)
        mean, std = self._estimated_spread(shares)
        near = at[_fewest(differing, self._shortlist_size(len(at)), shares)]
        seqs, found = self._rescore(near)
        return np.concatenate([seqs, extra_seqs]), np.concatenate([found, extra]), mean, std, count

    def _shortlist_size(self, rows: int) -> int:
        """Of so many rows, how many of those with the fewest differing signs are looked at."""
        if self._rows.form == "signs":
            return max(ESTIMATED_ROWS, rows // 128, NEAR_EACH * self._limit)
        most = max(rows // NEAR_SHARE, NEAR_EACH // 2 * self._limit)
        return min(most, max(SCORED_ROWS, rows // 192, NEAR_EACH * self._limit))

    def _join_extra(self, seqs: IntArray, found: FloatArray, extra: FloatArray) -> tuple[IntArray, FloatArray]:
        return np.concatenate([seqs, self._snapshot.extra_seqs]), np.concatenate([found, extra])

    def _dead_rows(self) -> npt.NDArray[np.bool_] | None:
        """The rows that this transaction does not see."""
        rows = self._rows
        if rows.alive is None and not len(self._snapshot.hidden):
            return None
        dead = np.zeros(rows.count, np.bool_) if rows.alive is None else ~rows.alive[: rows.count]
        dead[self._snapshot.hidden] = True
        return dead

    def _rescore(self, at: npt.NDArray[np.int64]) -> tuple[IntArray, FloatArray]:
        """The best of these rows by their stored vectors: those that look best, and then as many as may belong to the
        best ten as well, going by how far the estimates were off."""
        if self._rows.form == "halves":
            return self._rows.score_rows(self._query, at)
        estimated = self._rows.estimate(self._query, at)
        order = np.argsort(-estimated)
        at, estimated = at[order], estimated[order]
        seqs = self._rows.seqs_of(at)
        first = max(RESCORED_MIN, self._limit + self._limit // 2)
        last = max(RESCORED_MAX, first)
        found_seqs, found = self._score_stored(seqs[:first])
        while first < min(last, len(at)):
            slope, base, error = _fit_line(estimated[:first], self._scores_in_order(seqs[:first], found_seqs, found))
            wanted = np.sort(found)[-min(len(found), self._limit, CERTAIN_TOP)] if len(found) else -1.0
            if slope * estimated[first] + base + CERTAINTY * error < wanted:
                break
            more_seqs, more = self._score_stored(seqs[first : first + RESCORED_STEP])
            found_seqs, found = np.concatenate([found_seqs, more_seqs]), np.concatenate([found, more])
            first += RESCORED_STEP
        return found_seqs, found

    def _score_stored(self, seqs: IntArray) -> tuple[IntArray, FloatArray]:
        """Numbers, sorted, and scores of those that have a stored vector."""
        there = sorted(self._tx.vectors.read(self._scope, seqs.tolist()))
        size = 2 * len(self._query)
        there = [row for row in there if len(row[1]) == size]
        vectors = decode([row[1] for row in there], len(self._query))
        return np.array([row[0] for row in there], np.int64), scores(vectors, self._query)

    def _scores_in_order(self, seqs: IntArray, found_seqs: IntArray, found: FloatArray) -> FloatArray:
        """The score of each of `seqs`, nan where there is none."""
        out = np.full(len(seqs), np.nan, np.float32)
        if len(found_seqs) and len(seqs):
            order = np.argsort(found_seqs)
            at = np.minimum(np.searchsorted(found_seqs, seqs, sorter=order), len(found_seqs) - 1)
            same = found_seqs[order[at]] == seqs
            out[same] = found[order[at]][same]
        return out

    def _estimated_spread(self, shares: npt.NDArray[np.int64]) -> tuple[float, float]:
        """Mean and deviation of the scores of rows with these numbers of differing signs, by a sample of both."""
        of, to = self._rows.score_sample(self._query)
        slope, base, error = _fit_line(of.astype(np.float32), to)
        places, rows = np.arange(len(shares)), max(1, int(shares.sum()))
        mean = float(places @ shares) / rows
        std = math.sqrt(max(0.0, float(places * places @ shares) / rows - mean * mean))
        return base + slope * mean, math.hypot(slope * std, error)

    def _scores_of(self, seqs: Sequence[int] | IntArray) -> FloatArray:
        wanted = np.asarray(seqs, np.int64)
        at = self._rows.rows_of(wanted)
        if self._all_scores is not None and not len(self._snapshot.hidden) and (at != NO_ROW).all():
            return self._all_scores.take(at)
        if len(self._snapshot.extra_seqs):
            out = self._scores_in_order(wanted, self._snapshot.extra_seqs, scores(self._snapshot.extra, self._query))
        else:
            out = np.full(len(wanted), np.nan, np.float32)
        if len(self._snapshot.hidden):
            at[np.isin(at, self._snapshot.hidden)] = NO_ROW
        there = at != NO_ROW
        if self._all_scores is None and self._best is not None:  # about half of what is asked for
            out = np.where(there, self._scores_in_order(wanted, *self._best), out)
            there &= np.isnan(out)
        if not there.any():
            return out
        if self._all_scores is not None:
            out[there] = self._all_scores[at[there]]
        elif self._rows.form != "signs":
            out[there] = self._rows.score(self._query, at[there])
        else:
            out[there] = self._scores_in_order(wanted[there], *self._score_stored(np.unique(wanted[there])))
        return out


def _spread(found: npt.NDArray[np.float32]) -> tuple[float, float]:
    if not len(found):
        return 0.0, 0.0
    mean = float(found.sum(dtype=np.float64)) / len(found)
    apart = found - np.float32(mean)
    return mean, math.sqrt(float(apart @ apart) / len(found))


def _fit_line(of: FloatArray, to: FloatArray) -> tuple[float, float, float]:
    """Slope, base and standard error of the line that leads from one to the other; nan is left out."""
    known = ~np.isnan(to)
    if not known.all():
        of, to = of[known], to[known]
    size = len(of)
    if size < 2:
        return 0.0, float(to[0]) if size else 0.0, 0.0
    middle_of, middle_to = float(of.sum()) / size, float(to.sum()) / size
    x, y = of - middle_of, to - middle_to
    together = float(x @ y)
    slope = together / max(float(x @ x), 1e-9)
    left = max(0.0, float(y @ y) - slope * together)  # of the squares, what the line does not explain
    return slope, middle_to - slope * middle_of, math.sqrt(left / size)


def _largest(found: FloatArray, limit: int) -> npt.NDArray[np.int64]:
    """Where the `limit` largest are, in any order; of equal ones at the edge the later."""
    if len(found) <= limit:
        return np.arange(len(found))
    edge = np.partition(found, len(found) - limit)[len(found) - limit]
    above, equal = np.flatnonzero(found > edge), np.flatnonzero(found == edge)
    return np.concatenate([above, equal[len(equal) - (limit - len(above)) :]])


def _step(rows: int) -> int:
    return 16 if rows > 16 * 1_024 else 1


def _shares(differing: npt.NDArray[np.uint16]) -> npt.NDArray[np.int64]:
    """Of one row in `_step`, how many have 0, 1, 2, ... differing signs: counting all takes longer than comparing them
    did."""
    return np.bincount(differing[:: _step(len(differing))], minlength=1)[:FARTHEST]


def _fewest(differing: npt.NDArray[np.uint16], limit: int, shares: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where about the `limit` smallest are, at least; of equal ones at the edge the later."""
    if len(differing) <= limit:
        return np.arange(len(differing))
    edge = int(np.searchsorted(np.cumsum(shares), limit / _step(len(differing))))
    at = np.flatnonzero(differing <= edge)
    while len(at) < limit and edge < len(shares):
        edge += 1
        at = np.flatnonzero(differing <= edge)
    if len(at) < limit:  # those that were not counted are all farther than those that were
        return np.flatnonzero(differing < FARTHEST)
    if len(at) <= 2 * limit:
        return at
    below, equal = np.flatnonzero(differing < edge), np.flatnonzero(differing == edge)
    return np.concatenate([below, equal[-limit:]])
