"""The search of vectors: the stored vectors nearest to a query's, from matrices in memory.

A search sees exactly the rows of its transaction. If the cached matrix is older, the search adds the changes since
then. If it is newer, the search hides the later rows, and reads from the file what they replaced.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perdure.core.vectors import VectorRow, VectorScope
from perdure.search.vectors.arithmetic import FloatArray, IntArray, decode, hash_numbers, scores
from perdure.search.vectors.rows import NO_ROW, VectorRows, VectorSample, form_of
from perdure.storage.tx import Tx

BLOCK = 1_024
"""Rows per query; 256 to 8,192 are equally fast."""


def load_rows(tx: Tx, scope: VectorScope, dimensions: int) -> VectorRows:
    """Load the vectors of a scope as this transaction sees them."""
    rows = VectorRows(generation=scope.generation, version=scope.version, dimensions=dimensions)
    below = VectorSample.below_of(scope.row_count)
    numbers: list[IntArray] = [np.empty(0, np.int64)]
    vectors: list[npt.NDArray[np.float16]] = [np.empty((0, dimensions), np.float16)]
    removed: list[tuple[int, int]] = []
    after = -1
    while (block := tx.vectors.block(scope, after_seq=after, limit=BLOCK)).last is not None:
        after = block.last
        removed += block.removed
        if not block.seqs:
            continue
        seqs = np.array(block.seqs, np.int64)
        halves = np.frombuffer(block.vectors, "<f2").reshape(-1, dimensions)
        # The final form from the start: a later change would copy all rows.
        form = form_of(max(scope.row_count, rows.count + len(seqs)), dimensions)
        versions = np.array(block.versions, np.int64)
        rows = rows.extend(seqs, versions, halves, form=form, expected=scope.row_count)
        sampled = hash_numbers(seqs) < below
        numbers.append(seqs[sampled])
        vectors.append(halves[sampled])
    return rows.with_sample(VectorSample.of(np.concatenate(numbers), np.concatenate(vectors), below), removed)


MAX_BYTES = 256 * 2**20
PAGE = 8_192

ESTIMATED_ROWS = 1_024
"""The length of the shortlist by signs, or one row in 128 if that is more."""

SCORED_ROWS = 512
"""The same where the vectors are in memory, or one row in 192."""
NEAR_EACH = 6  # shortlisted rows for each row that the caller wants, at least
NEAR_SHARE = 3  # of few rows only one in so many, or half of `NEAR_EACH` for each wanted row

RESCORED_MIN, RESCORED_MAX, RESCORED_STEP = 128, 1_024, 128
CERTAIN_TOP = 10
"""Stored vectors are read until no unread row is likely to belong to the best ten."""

CERTAINTY = 3.0  # standard deviations of the estimate's error
FARTHEST = 2**16 - 1  # the distance of a row that the transaction does not see


@dataclass(frozen=True, slots=True, eq=False)
class NearestRows:
    """The result of a vector search.

    Args:
        seqs: the numbers of the best rows, best first; of equal scores the later row first.
        scores: their cosines.
        mean, std: of the cosines of all rows searched; for many rows an estimate, exact to some hundredths of `std`.
        rows: how many rows were searched.
        scores_of: numbers -> their cosines, nan without a vector; valid within the transaction only.
    """

    seqs: IntArray
    scores: FloatArray
    mean: float
    std: float
    rows: int
    scores_of: Callable[[Sequence[int] | IntArray], FloatArray]


@dataclass(slots=True)
class _CachedMatrix:
    """The cached matrix of one scope. The lock lets one search at a time extend it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    rows: VectorRows | None = None

    @property
    def nbytes(self) -> int:
        """The memory of the matrix, in bytes."""
        return 0 if self.rows is None else self.rows.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class _Snapshot:
    """The rows that one transaction sees: `rows` without the `hidden` ones, and `extra` rows beside them."""

    rows: VectorRows
    hidden: npt.NDArray[np.int32]
    extra_seqs: IntArray
    extra: FloatArray

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.rows.count - self.rows.dead - len(self.hidden) + len(self.extra_seqs)


class VectorIndexes:
    """A thread-safe cache of vector matrices, one for each scope that was searched lately. Together they take at most
    `max_bytes`; a larger one is kept alone."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, _CachedMatrix] = OrderedDict()  # by number of the scope, last used last

    @property
    def nbytes(self) -> int:
        """The memory of all matrices, in bytes."""
        with self._lock:
            return sum(entry.nbytes for entry in self._entries.values())

    def search(
        self, tx: Tx, scope: VectorScope, query: FloatArray, *, limit: int, only: IntArray | None = None
    ) -> NearestRows:
        """Return the rows of a scope nearest to `query`.

        Args:
            scope: as this transaction sees it.
            query: a unit vector, shape (dimensions,), by the scope's model.
            limit: how many rows at most.
            only: the numbers of the rows to search, sorted; None searches all.
        """
        query = np.ascontiguousarray(query, np.float32)
        snapshot = self._snapshot(tx, scope, len(query))
        return _Search(tx, scope, snapshot, query, limit, only).result()

    def _snapshot(self, tx: Tx, scope: VectorScope, dimensions: int) -> _Snapshot:
        """Return what the transaction sees; searches that come together load it once."""
        with self._lock:
            entry = self._entries.setdefault(scope.number, _CachedMatrix())
            self._entries.move_to_end(scope.number)
        with entry.lock:
            before = entry.rows
            snapshot = _load_snapshot(tx, scope, dimensions, entry)
            grown = entry.rows is not None and entry.rows is not before
        if grown:
            self._make_room()
        return snapshot

    def _make_room(self) -> None:
        """Drop the matrices that were used longest ago until the others fit `max_bytes`."""
        with self._lock:
            sizes = {number: entry.nbytes for number, entry in self._entries.items() if entry.rows is not None}
            total = sum(sizes.values())
            for number in list(self._entries)[:-1]:
                if total <= self._max_bytes:
                    return
                total -= sizes.get(number, 0)
                del self._entries[number]


def _load_snapshot(tx: Tx, scope: VectorScope, dimensions: int, entry: _CachedMatrix) -> _Snapshot:
    """Load the rows that this transaction sees, and keep the newest committed rows in `entry`."""
    rows = entry.rows
    if rows is None or rows.generation != scope.generation or rows.dimensions != dimensions:
        loaded = load_rows(tx, scope, dimensions)
        if scope.settled and (rows is None or rows.generation < scope.generation):
            entry.rows = loaded
        return _snapshot_of(loaded)
    if rows.version == scope.version:
        return _snapshot_of(rows)
    if rows.version > scope.version:
        newer = rows.newer_than(scope.version)
        if newer is None:
            return _snapshot_of(load_rows(tx, scope, dimensions))
        replaced = tx.vectors.read(scope, newer.tolist())
        return _snapshot_with_changes(rows, newer, [(seq, 0, vector) for seq, vector in replaced])
    changes: list[VectorRow] = []
    at, after = rows.version, 1 << 32  # behind all numbers of that version
    while page := tx.vectors.list_changes(scope, after_version=at, after_seq=after, limit=PAGE):
        if scope.settled:
            rows = rows.apply(page, page[-1][1])
        else:
            changes += page
        at, after = page[-1][1], page[-1][0]
    if not scope.settled:
        return _snapshot_with_changes(rows, np.array([row[0] for row in changes], np.int64), changes)
    entry.rows = rows = rows.apply((), scope.version)
    return _snapshot_of(rows)


def _snapshot_of(rows: VectorRows) -> _Snapshot:
    """Build a snapshot without hidden or extra rows."""
    nothing = np.empty(0, np.int64)
    return _Snapshot(rows, np.empty(0, np.int32), nothing, np.empty((0, rows.dimensions), np.float32))


def _snapshot_with_changes(rows: VectorRows, changed: IntArray, present: Sequence[VectorRow]) -> _Snapshot:
    """Build a snapshot in which, of the numbers `changed`, only the rows in `present` exist."""
    hidden = rows.rows_of(changed)
    size = 2 * rows.dimensions
    extra = [(row[0], row[2]) for row in present if row[2] is not None and len(row[2]) == size]
    return _Snapshot(
        rows,
        hidden[hidden != NO_ROW],
        np.array([seq for seq, _ in extra], np.int64),
        decode([vector for _, vector in extra], rows.dimensions).astype(np.float32),
    )


class _Search:
    """One search over the rows that one transaction sees."""

    def __init__(
        self, tx: Tx, scope: VectorScope, snapshot: _Snapshot, query: FloatArray, limit: int, only: IntArray | None
    ) -> None:
        self._tx, self._scope, self._snapshot, self._query, self._limit = tx, scope, snapshot, query, limit
        self._rows, self._only = snapshot.rows, only
        self._all_scores: FloatArray | None = None  # the score of each row, where all were computed
        self._best: tuple[IntArray, FloatArray] | None = None  # numbers and scores of what was found

    def result(self) -> NearestRows:
        """Run the search."""
        seqs, found, mean, std, rows = self._search_only() if self._only is not None else self._search_all()
        best = np.lexsort((-seqs, -found))[: self._limit]
        seqs, found = self._best = seqs[best], found[best]
        return NearestRows(seqs, found, mean, std, rows, self._scores_of)

    def _search_all(self) -> tuple[IntArray, FloatArray, float, float, int]:
        """Search all rows; return (numbers and scores of candidates, mean, deviation and count of all rows)."""
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
        """Search the rows of `only`; return the same as `_search_all`, with mean, deviation and count of these rows."""
        only, rows = np.asarray(self._only, np.int64), self._rows
        extra_seqs, beside = self._snapshot.extra_seqs, self._snapshot.extra
        if len(extra_seqs):
            is_wanted = np.isin(extra_seqs, only)
            extra_seqs, beside = extra_seqs[is_wanted], beside[is_wanted]
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
            seqs, found = rows.seqs_of(at[best]), found[best]
        elif len(at) <= (SCORED_ROWS if rows.form == "halves" else RESCORED_MIN):
            seqs, found = self._rescore(at) if rows.form == "halves" else self._score_stored(rows.seqs_of(at))
            mean, std = _spread(np.concatenate([found, extra]))
        else:
            many = 16 * len(at) > rows.count  # then scoring all rows costs less than picking these
            differing = rows.count_differing(self._query)[at] if many else rows.count_differing(self._query, at)
            shares = _shares(differing)
            mean, std = self._estimated_spread(shares)
            seqs, found = self._rescore(at[_fewest(differing, self._shortlist_size(len(at)), shares)])
        return np.concatenate([seqs, extra_seqs]), np.concatenate([found, extra]), mean, std, count

    def _shortlist_size(self, rows: int) -> int:
        """Return how many rows with the fewest differing signs to score, of so many rows."""
        if self._rows.form == "signs":
            return max(ESTIMATED_ROWS, rows // 128, NEAR_EACH * self._limit)
        most = max(rows // NEAR_SHARE, NEAR_EACH // 2 * self._limit)
        return min(most, max(SCORED_ROWS, rows // 192, NEAR_EACH * self._limit))

    def _join_extra(self, seqs: IntArray, found: FloatArray, extra: FloatArray) -> tuple[IntArray, FloatArray]:
        """Append the extra rows of the snapshot, with these scores, to numbers and scores of others."""
        return np.concatenate([seqs, self._snapshot.extra_seqs]), np.concatenate([found, extra])

    def _dead_rows(self) -> npt.NDArray[np.bool_] | None:
        """Return (count) which rows this transaction does not see; None for none."""
        rows = self._rows
        if rows.alive is None and not len(self._snapshot.hidden):
            return None
        dead = np.zeros(rows.count, np.bool_) if rows.alive is None else ~rows.alive[: rows.count]
        dead[self._snapshot.hidden] = True
        return dead

    def _rescore(self, at: npt.NDArray[np.int64]) -> tuple[IntArray, FloatArray]:
        """Score rows by their stored vectors, those with the best estimates first, until no other row can be among the
        best ten, by the error of the estimates so far."""
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
        """Read the vectors of these numbers; return their numbers, sorted, and scores."""
        size = 2 * len(self._query)
        stored = [row for row in sorted(self._tx.vectors.read(self._scope, seqs.tolist())) if len(row[1]) == size]
        vectors = decode([row[1] for row in stored], len(self._query))
        return np.array([row[0] for row in stored], np.int64), scores(vectors, self._query)

    def _scores_in_order(self, seqs: IntArray, found_seqs: IntArray, found: FloatArray) -> FloatArray:
        """Return the score of each of `seqs`: of `found`, which are the scores of `found_seqs`; nan for the others."""
        out = np.full(len(seqs), np.nan, np.float32)
        if len(found_seqs) and len(seqs):
            order = np.argsort(found_seqs)
            at = np.minimum(np.searchsorted(found_seqs, seqs, sorter=order), len(found_seqs) - 1)
            same = found_seqs[order[at]] == seqs
            out[same] = found[order[at]][same]
        return out

    def _estimated_spread(self, shares: npt.NDArray[np.int64]) -> tuple[float, float]:
        """Estimate mean and deviation of all scores from `shares`: how many rows have 0, 1, 2, ... differing signs. A
        sample of rows with known scores gives the line from counts to scores."""
        differing, cosines = self._rows.score_sample(self._query)
        slope, base, error = _fit_line(differing.astype(np.float32), cosines)
        places, rows = np.arange(len(shares)), max(1, int(shares.sum()))
        mean = float(places @ shares) / rows
        std = math.sqrt(max(0.0, float(places * places @ shares) / rows - mean * mean))
        return base + slope * mean, math.hypot(slope * std, error)

    def _scores_of(self, seqs: Sequence[int] | IntArray) -> FloatArray:
        """Return the cosine of each of these numbers, nan without a vector."""
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
        missing = at != NO_ROW
        if self._all_scores is None and self._best is not None:  # about half of them are known
            out = np.where(missing, self._scores_in_order(wanted, *self._best), out)
            missing &= np.isnan(out)
        if not missing.any():
            return out
        if self._all_scores is not None:
            out[missing] = self._all_scores[at[missing]]
        elif self._rows.form != "signs":
            out[missing] = self._rows.score(self._query, at[missing])
        else:
            out[missing] = self._scores_in_order(wanted[missing], *self._score_stored(np.unique(wanted[missing])))
        return out


def _spread(found: npt.NDArray[np.float32]) -> tuple[float, float]:
    """Return (mean, standard deviation); zeros for no values."""
    if not len(found):
        return 0.0, 0.0
    mean = float(found.sum(dtype=np.float64)) / len(found)
    apart = found - np.float32(mean)
    return mean, math.sqrt(float(apart @ apart) / len(found))


def _fit_line(x: FloatArray, y: FloatArray) -> tuple[float, float, float]:
    """Fit `y = slope * x + base`; return (slope, base, standard error). Pairs with a nan in `y` are left out."""
    known = ~np.isnan(y)
    if not known.all():
        x, y = x[known], y[known]
    size = len(x)
    if size < 2:
        return 0.0, float(y[0]) if size else 0.0, 0.0
    mean_x, mean_y = float(x.sum()) / size, float(y.sum()) / size
    x, y = x - mean_x, y - mean_y
    product = float(x @ y)
    slope = product / max(float(x @ x), 1e-9)
    unexplained = max(0.0, float(y @ y) - slope * product)  # the squares of what is off the line
    return slope, mean_y - slope * mean_x, math.sqrt(unexplained / size)


def _largest(found: FloatArray, limit: int) -> npt.NDArray[np.int64]:
    """Return the indexes of the `limit` largest values, in any order; of equal ones the later."""
    if len(found) <= limit:
        return np.arange(len(found))
    edge = np.partition(found, len(found) - limit)[len(found) - limit]
    above, equal = np.flatnonzero(found > edge), np.flatnonzero(found == edge)
    return np.concatenate([above, equal[len(equal) - (limit - len(above)) :]])


def _step(rows: int) -> int:
    """Return every how many rows `_shares` counts."""
    return 16 if rows > 16 * 1_024 else 1


def _shares(differing: npt.NDArray[np.uint16]) -> npt.NDArray[np.int64]:
    """Count how many rows have 0, 1, 2, ... differing signs, in one row of `_step`: counting all takes too long."""
    return np.bincount(differing[:: _step(len(differing))], minlength=1)[:FARTHEST]


def _fewest(differing: npt.NDArray[np.uint16], limit: int, shares: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the indexes of about the `limit` smallest values, at least so many; of equal ones the later. `shares`: how
    many values are 0, 1, 2, ..., from `_shares`."""
    if len(differing) <= limit:
        return np.arange(len(differing))
    edge = int(np.searchsorted(np.cumsum(shares), limit / _step(len(differing))))
    at = np.flatnonzero(differing <= edge)
    while len(at) < limit and edge < len(shares):
        edge += 1
        at = np.flatnonzero(differing <= edge)
    if len(at) < limit:  # the rows that `_shares` skipped are all farther
        return np.flatnonzero(differing < FARTHEST)
    if len(at) <= 2 * limit:
        return at
    below, equal = np.flatnonzero(differing < edge), np.flatnonzero(differing == edge)
    return np.concatenate([below, equal[-limit:]])
