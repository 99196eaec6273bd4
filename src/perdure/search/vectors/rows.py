"""The vectors of one scope in memory, as of one version.

Few rows are a matrix of 32-bit floats, and every score is exact. Many rows are kept as signs, 48 bytes a row at 384
dimensions: the rows with the fewest signs that differ from the query's form a shortlist. Up to a bound, 16-bit floats
stand beside the signs to score the shortlist; beyond it, the shortlist is read from the file.

Rows are only appended. A newer `VectorRows` shares its arrays with the older ones, which stay valid: new rows lie
behind their end, and the marks of removed rows are copied before they change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from perdure.core.vectors import VectorRow
from perdure.search.vectors.arithmetic import (
    Buffers,
    FloatArray,
    IntArray,
    count_differing,
    decode,
    hash_numbers,
    scores,
    signs_of,
)

Form = Literal["floats", "halves", "signs"]
FORMS: tuple[Form, ...] = get_args(Form)

EXACT_BYTES = 12 * 2**20
"""Up to this size 32-bit floats are kept: 8,192 rows at 384 dimensions, which cost as much CPU as signs do then."""

HALVES_BYTES = 96 * 2**20
"""Up to this size 16-bit floats are kept: 131,072 rows at 384 dimensions."""

SEGMENT_BITS = 15
SEGMENT_ROWS = 1 << SEGMENT_BITS  # the signs of a segment fit into the processor's cache
FIRST_ROWS = 16

SAMPLE_ROWS = 256
"""Rows kept as floats beside the signs, to estimate cosines from differing signs."""

DEAD_ROWS = 1_024
LOG_ROWS = 65_536
NO_ROW = -1


@dataclass(slots=True, eq=False)
class RowSegment:
    """An array of rows with room for more.

    Args:
        floats: (capacity, dimensions), in form "floats" only.
        signs: (words, capacity), the signs of 64 dimensions in each word; in the other forms.
        halves: (capacity, dimensions), in form "halves" only.
    """

    seqs: npt.NDArray[np.uint32]
    versions: IntArray
    floats: FloatArray | None = None
    signs: npt.NDArray[np.uint64] | None = None
    halves: npt.NDArray[np.float16] | None = None

    @classmethod
    def empty(cls, capacity: int, dimensions: int, form: Form) -> RowSegment:
        """Allocate a segment with room for `capacity` rows."""
        segment = cls(np.empty(capacity, np.uint32), np.empty(capacity, np.int64))
        if form == "floats":
            segment.floats = np.empty((capacity, dimensions), np.float32)
        else:
            segment.signs = np.empty((-(-dimensions // 64), capacity), np.uint64)
        if form == "halves":
            segment.halves = np.empty((capacity, dimensions), np.float16)
        return segment

    def take(self, at: int, other: RowSegment, kept: slice | npt.NDArray[np.int64], size: int) -> None:
        """Copy the rows `kept` of another segment, `size` of them, to position `at`."""
        to = slice(at, at + size)
        self.seqs[to], self.versions[to] = other.seqs[kept], other.versions[kept]
        if self.floats is not None and other.floats is not None:
            self.floats[to] = other.floats[kept]
        if self.signs is not None and other.signs is not None:
            self.signs[:, to] = other.signs[:, kept]
        if self.halves is not None and other.halves is not None:
            self.halves[to] = other.halves[kept]

    @classmethod
    def of(cls, seqs: IntArray, versions: IntArray, vectors: npt.NDArray[Any], form: Form) -> RowSegment:
        """Build a segment of these rows, without room for more."""
        segment = cls(seqs.astype(np.uint32), versions)
        if form == "floats":
            segment.floats = vectors.astype(np.float32, copy=False)
            return segment
        segment.signs = signs_of(vectors)
        if form == "halves":
            segment.halves = vectors.astype(np.float16, copy=False)
        return segment

    @property
    def vectors(self) -> npt.NDArray[Any]:
        """The floats or halves; not for signs alone."""
        return _present(self.halves if self.floats is None else self.floats)

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        arrays = (self.seqs, self.versions, self.floats, self.signs, self.halves)
        return sum(array.nbytes for array in arrays if array is not None)


@dataclass(frozen=True, slots=True, eq=False)
class VectorSample:
    """Some vectors with their signs, chosen by a hash of their numbers, so that the order of arrival does not matter.

    Args:
        below: all rows with a hash below it are in the sample.
    """

    seqs: IntArray
    vectors: FloatArray
    signs: npt.NDArray[np.uint64]
    below: int = 1 << 32

    @classmethod
    def empty(cls, dimensions: int) -> VectorSample:
        """Build a sample without rows."""
        nothing = np.empty((0, dimensions), np.float32)
        return cls(np.empty(0, np.int64), nothing, signs_of(nothing))

    @classmethod
    def below_of(cls, rows: int) -> int:
        """Return the `below` that gives a large enough sample of so many rows."""
        below = 1 << 32
        while below * rows > (8 * SAMPLE_ROWS) << 32:
            below //= 2
        return below

    @classmethod
    def of(cls, seqs: IntArray, vectors: npt.NDArray[Any], below: int) -> VectorSample:
        """Build a sample from all rows with a hash below `below`; fewer if they are too many."""
        while len(seqs) > 2 * SAMPLE_ROWS:
            below //= 2
            chosen = hash_numbers(seqs) < below
            seqs, vectors = seqs[chosen], vectors[chosen]
        vectors = vectors.astype(np.float32, copy=False)
        return cls(seqs, vectors, signs_of(vectors), below)

    def with_rows(self, seqs: IntArray, vectors: npt.NDArray[Any], changed: IntArray) -> VectorSample:
        """Return the sample after the rows `changed` changed; of those, `seqs` still exist."""
        kept = ~np.isin(self.seqs, changed)
        chosen = hash_numbers(seqs) < self.below
        return VectorSample.of(
            np.concatenate([self.seqs[kept], seqs[chosen]]),
            np.concatenate([self.vectors[kept], vectors[chosen].astype(np.float32)]),
            self.below,
        )


@dataclass(frozen=True, slots=True, eq=False)
class VectorRows:
    """The rows of a scope at a version.

    Args:
        count: the number of rows, removed ones included.
        dead: the number of removed rows.
        alive: which rows are not removed; None means all.
        row_of: sequence number -> row, or `NO_ROW`; longer than needed.
        log: (version, number) of rows removed since `log_from`. Newer `VectorRows` append to the same list; the first
            `log_count` are of this one.
    """

    generation: int
    version: int
    dimensions: int
    form: Form = "floats"
    segments: tuple[RowSegment, ...] = ()
    count: int = 0
    dead: int = 0
    alive: npt.NDArray[np.bool_] | None = None
    row_of: npt.NDArray[np.int32] = field(default_factory=lambda: np.full(FIRST_ROWS, NO_ROW, np.int32))
    sample: VectorSample | None = None
    log: list[tuple[int, int]] = field(default_factory=list)
    log_count: int = 0
    log_from: int = 0

    @property
    def nbytes(self) -> int:
        """The memory of all arrays, in bytes."""
        alive = 0 if self.alive is None else self.alive.nbytes
        sample = 0 if self.sample is None else self.sample.vectors.nbytes
        return sum(segment.nbytes for segment in self.segments) + self.row_of.nbytes + alive + sample + 256

    def apply(self, changes: Sequence[VectorRow], version: int) -> VectorRows:
        """Return the rows after changes, each of another number. Call it on the newest rows only."""
        size = 2 * self.dimensions  # rows of another size are damaged: `perdure store verify` finds them
        stored = [row for row in changes if row[2] is not None and len(row[2]) == size]
        seqs_of, versions_of, blobs = zip(*stored, strict=True) if stored else ((), (), ())
        vectors = decode(blobs, self.dimensions)
        seqs, versions = np.array(seqs_of, np.int64), np.array(versions_of, np.int64)
        touched = seqs if len(stored) == len(changes) else np.array([row[0] for row in changes], np.int64)
        rows = self._without(touched, [(row[1], row[0]) for row in changes if row[2] is None], version)
        if rows.dead > max(DEAD_ROWS, rows.count // 3):
            rows = rows._copy(rows.form)
        rows = rows._convert(form_of(rows.count + len(stored), rows.dimensions))
        if rows.form != "floats":
            sample = rows.sample or VectorSample.empty(rows.dimensions)
            rows = replace(rows, sample=sample.with_rows(seqs, vectors, touched))
        return rows._with(RowSegment.of(seqs, versions, vectors, rows.form), slice(0, len(seqs)), len(seqs))

    def extend(
        self, seqs: IntArray, versions: IntArray, vectors: npt.NDArray[np.float16], *, form: Form, expected: int
    ) -> VectorRows:
        """Return old and new rows in this form or one of fewer bits; `expected`: about how many rows in the end."""
        rows = self._convert(form)
        return rows._with(RowSegment.of(seqs, versions, vectors, rows.form), slice(0, len(seqs)), len(seqs), expected)

    def with_sample(self, sample: VectorSample, removed: Sequence[tuple[int, int]]) -> VectorRows:
        """Return the rows with this sample, if they need one, and without removed (number, version) rows."""
        rows = self._without(
            np.array([seq for seq, _ in removed], np.int64), [(version, seq) for seq, version in removed], self.version
        )
        return rows if rows.form == "floats" else replace(rows, sample=sample)

    def rows_of(self, seqs: IntArray) -> npt.NDArray[np.int32]:
        """Return the row of each number, `NO_ROW` for a number without one."""
        if not len(seqs):
            return np.empty(0, np.int32)
        if np.minimum.reduce(seqs) < 0 or np.maximum.reduce(seqs) >= len(self.row_of):
            known = (seqs >= 0) & (seqs < len(self.row_of))
            rows = np.where(known, self.row_of[np.where(known, seqs, 0)], np.int32(NO_ROW))
        else:
            rows = self.row_of.take(seqs)
        if np.maximum.reduce(rows) >= self.count:
            rows[rows >= self.count] = NO_ROW
        if self.alive is not None:
            found = rows != NO_ROW
            found[found] = self.alive[rows[found]]
            rows[~found] = NO_ROW
        return rows

    def newer_than(self, version: int) -> IntArray | None:
        """Return the numbers of rows that changed after `version`; None if that is no longer known."""
        if version < self.log_from:
            return None
        removed = [seq for at, seq in self.log[: self.log_count] if at > version]
        changed = [
            segment.seqs[:size][segment.versions[:size] > version].astype(np.int64)
            for segment, size in self._segment_sizes()
        ]
        return np.unique(np.concatenate([*changed, np.array(removed, np.int64)]))

    def seqs_of(self, rows: npt.NDArray[Any]) -> IntArray:
        """Return the number of each row."""
        out = np.empty(len(rows), np.int64)
        for segment, picked, at in self._group_by_segment(rows):
            out[picked] = segment.seqs[at]
        return out

    def score(self, query: FloatArray, rows: npt.NDArray[Any] | None = None) -> FloatArray:
        """Return the exact score of each row, or of these rows; not for signs alone."""
        if rows is None:
            return np.concatenate([scores(segment.vectors[:size], query) for segment, size in self._segment_sizes()])
        return self.score_rows(query, rows)[1]

    def score_rows(self, query: FloatArray, rows: npt.NDArray[Any]) -> tuple[IntArray, FloatArray]:
        """Return the numbers of these rows and their scores; not for signs alone."""
        seqs, dtype = np.empty(len(rows), np.int64), np.float32 if self.form == "floats" else np.float16
        vectors = np.empty((len(rows), self.dimensions), dtype)
        for segment, picked, at in self._group_by_segment(rows):
            seqs[picked] = segment.seqs[at]
            if isinstance(picked, slice):  # numpy copies twice by an index
                segment.vectors.take(at, axis=0, out=vectors[picked], mode="clip")
            else:
                vectors[picked] = segment.vectors[at]
        return seqs, scores(vectors, query)

    def count_differing(self, query: FloatArray, rows: npt.NDArray[Any] | None = None) -> npt.NDArray[np.uint16]:
        """Count the dimensions in which the sign of each row, or of these, differs from the query's; not for floats."""
        signs = signs_of(query[np.newaxis])[:, 0]
        if rows is None:
            out, first, buffers = np.empty(self.count, np.uint16), 0, Buffers(min(SEGMENT_ROWS, self.count))
            for segment, size in self._segment_sizes():
                count_differing(_present(segment.signs)[:, :size], signs, out[first : first + size], buffers)
                first += size
            return out
        out = np.empty(len(rows), np.uint16)
        for segment, picked, at in self._group_by_segment(rows):
            words_of_rows = [
                word.take(at) for word in _present(segment.signs)
            ]  # all words at once would copy every row
            out[picked] = count_differing(words_of_rows, signs, np.empty(len(at), np.uint16), Buffers(len(at)))
        return out

    def score_sample(self, query: FloatArray) -> tuple[npt.NDArray[np.uint16], FloatArray]:
        """Return (differing signs, scores) of the rows in the sample; not for floats."""
        sample = self.sample or VectorSample.empty(self.dimensions)
        out, buffers = np.empty(len(sample.seqs), np.uint16), Buffers(len(sample.seqs))
        return count_differing(sample.signs, signs_of(query[np.newaxis])[:, 0], out, buffers), scores(
            sample.vectors, query
        )

    def estimate(self, query: FloatArray, rows: npt.NDArray[Any]) -> FloatArray:
        """Return the query's product with the rows' signs, closer to the score than counting different signs."""
        out = np.empty(len(rows), np.float32)
        for segment, picked, at in self._group_by_segment(rows):
            words = np.ascontiguousarray(_present(segment.signs)[:, at].T)
            bits = np.unpackbits(words.view(np.uint8), axis=1, count=self.dimensions).astype(np.float32)
            out[picked] = scores(bits, query)  # twice this, minus a constant, is the product with 1 and -1
        return out

    def _segment_sizes(self) -> list[tuple[RowSegment, int]]:
        """Return each segment with how many rows it holds."""
        return [
            (segment, min(SEGMENT_ROWS, self.count - (index << SEGMENT_BITS)))
            for index, segment in enumerate(self.segments)
        ]

    def _group_by_segment(self, rows: npt.NDArray[Any]) -> list[tuple[RowSegment, Any, npt.NDArray[Any]]]:
        """Group rows by segment: (segment, which of `rows`, their places in it)."""
        if len(self.segments) == 1:
            return [(self.segments[0], slice(None), rows)]
        if not len(rows):
            return []
        at = rows >> SEGMENT_BITS
        if (at[1:] >= at[:-1]).all():  # in order, as most are: each segment's rows are a slice
            edges = np.searchsorted(at, np.arange(len(self.segments) + 1)).tolist()
            picks: list[tuple[RowSegment, Any]] = [
                (segment, slice(edges[index], edges[index + 1]))
                for index, segment in enumerate(self.segments)
                if edges[index] < edges[index + 1]
            ]
        else:
            every = [(segment, np.flatnonzero(at == index)) for index, segment in enumerate(self.segments)]
            picks = [(segment, picked) for segment, picked in every if len(picked)]
        return [(segment, picked, rows[picked] & (SEGMENT_ROWS - 1)) for segment, picked in picks]

    def _without(self, seqs: IntArray, removed: Sequence[tuple[int, int]], version: int) -> VectorRows:
        """Return the rows at the new version, without those of these numbers; `removed` is added to the log."""
        log, log_from = self.log, self.log_from
        if len(log) + len(removed) > LOG_ROWS:
            log, log_from, removed = [], version, ()
        log.extend(removed)
        rows = self.rows_of(seqs)
        rows = rows[rows != NO_ROW]
        changed = replace(self, version=version, log=log, log_count=len(log), log_from=log_from)
        if not len(rows):
            return changed
        alive = np.ones(len(self.segments) << SEGMENT_BITS, np.bool_) if self.alive is None else self.alive.copy()
        alive[rows] = False
        row_of = self.row_of.copy()
        row_of[self.seqs_of(rows)] = NO_ROW
        return replace(changed, alive=alive, row_of=row_of, dead=self.dead + len(rows))

    def _with(self, new: RowSegment, kept: slice | npt.NDArray[np.int64], size: int, expected: int = 0) -> VectorRows:
        """Append rows of `new`: the first `size`, or those at the places `kept`."""
        segments, count = list(self.segments), self.count
        while count < self.count + size:
            done, at = count - self.count, count & (SEGMENT_ROWS - 1)
            part = min(size - done, SEGMENT_ROWS - at)
            if count == len(segments) << SEGMENT_BITS:
                segments.append(RowSegment.empty(_capacity(max(part, expected - count)), self.dimensions, self.form))
            elif at + part > len(segments[-1].seqs):
                grown = RowSegment.empty(_capacity(at + part), self.dimensions, self.form)
                grown.take(0, segments[-1], slice(0, at), at)
                segments[-1] = grown
            place = slice(done, done + part) if isinstance(kept, slice) else kept[done : done + part]
            segments[-1].take(at, new, place, part)
            count += part
        row_of, alive, seqs = self.row_of, self.alive, new.seqs[kept].astype(np.int64)
        if len(seqs) and (longest := int(seqs.max()) + 1) > len(row_of):
            row_of = np.full(longest + longest // 4, NO_ROW, np.int32)
            row_of[: len(self.row_of)] = self.row_of
        if alive is not None and len(alive) < len(segments) << SEGMENT_BITS:
            alive = np.concatenate([alive, np.ones((len(segments) << SEGMENT_BITS) - len(alive), np.bool_)])
        row_of[seqs] = np.arange(self.count, count, dtype=np.int32)
        return replace(self, segments=tuple(segments), count=count, row_of=row_of, alive=alive)

    def _convert(self, form: Form) -> VectorRows:
        """Convert the rows to this form; from more to fewer bits only."""
        return self if FORMS.index(form) <= FORMS.index(self.form) else self._copy(form)

    def _copy(self, form: Form) -> VectorRows:
        """Copy the living rows to new arrays in this form. A sample is taken of floats that become fewer bits."""
        row_of = np.full(len(self.row_of), NO_ROW, np.int32)
        rows = replace(self, form=form, segments=(), count=0, dead=0, alive=None, row_of=row_of)
        sample = self.sample
        for index, (segment, size) in enumerate(self._segment_sizes()):
            first = index << SEGMENT_BITS
            kept = np.arange(size) if self.alive is None else np.flatnonzero(self.alive[first : first + size])
            if segment.floats is None or form == "floats":
                rows = rows._with(segment, kept, len(kept))
                continue
            seqs, floats = segment.seqs[kept].astype(np.int64), segment.floats[kept]
            sample = (sample or VectorSample.empty(self.dimensions)).with_rows(seqs, floats, np.empty(0, np.int64))
            rows = rows._with(RowSegment.of(seqs, segment.versions[kept], floats, form), slice(0, len(kept)), len(kept))
        return replace(rows, sample=sample)


def form_of(rows: int, dimensions: int) -> Form:
    """Return the form in which so many rows are kept: fewer bits for more rows, so that their memory stays bounded."""
    if 4 * rows * dimensions <= EXACT_BYTES:
        return "floats"
    return "halves" if 2 * rows * dimensions <= HALVES_BYTES else "signs"


def _present(array: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """Return an array that this form has."""
    assert array is not None
    return array


def _capacity(rows: int) -> int:
    """Return the room of a segment for so many rows: a power of two, so that growing copies little."""
    return min(SEGMENT_ROWS, max(FIRST_ROWS, 1 << (rows - 1).bit_length()))
