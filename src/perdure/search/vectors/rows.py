"""The vectors of one scope in memory, as they are at one version.

Few rows are a matrix of 32-bit floats, and every score is exact. Of more, the signs are kept, 48 bytes a row at 384
dimensions: the bits in which a row differs from the query say which rows are worth a look. Up to a bound the
stored vectors are kept beside them; beyond it they are read from the file.

Rows are only ever appended, so an older `Rows` goes on being right while a newer one that shares its arrays is made:
what is written lies behind the older one's end, and what changes within it (a row that dies) is copied first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from perdure.core.vectors import VectorRow

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]
Form = Literal["floats", "halves", "signs"]
FORMS: tuple[Form, ...] = get_args(Form)

EXACT_BYTES = 12 * 2**20
"""Up to this size 32-bit floats are kept: 8,192 rows at 384 dimensions, which cost as much CPU as signs do then."""

HALVES_BYTES = 96 * 2**20
"""Up to this size 16-bit floats are kept: 131,072 rows at 384 dimensions."""

SEGMENT_BITS = 15
SEGMENT_ROWS = 1 << SEGMENT_BITS  # of signs, what is computed at once stays within the processor's cache
FIRST_ROWS = 16

PRODUCT_NUMBERS = 131_072
"""Above some 460,000 numbers BLAS spreads a product over threads that spin while they wait: ten times the CPU. So many
lie in the processor's cache while they are converted."""

HALF_BITS = np.int32(-0x7000_2000)  # 0x8fff_e000
BIAS = np.float32(2.0**112)

SAMPLE_ROWS = 256
"""Kept as floats beside the signs, to say how differing bits and cosines go together."""

DEAD_ROWS = 1_024
LOG_ROWS = 65_536
NO_ROW = -1


@dataclass(slots=True, eq=False)
class Segment:
    """Room for rows: `floats` (capacity, dimensions); or `signs` (words, capacity), bits of 64 dimensions in each word,
    and perhaps `halves` (capacity, dimensions)."""

    seqs: npt.NDArray[np.uint32]
    versions: IntArray
    floats: FloatArray | None = None
    signs: npt.NDArray[np.uint64] | None = None
    halves: npt.NDArray[np.float16] | None = None

    @classmethod
    def empty(cls, capacity: int, dimensions: int, form: Form) -> Segment:
        """A segment with room for `capacity` rows in this form; `halves` hold signs too."""
        segment = cls(np.empty(capacity, np.uint32), np.empty(capacity, np.int64))
        if form == "floats":
            segment.floats = np.empty((capacity, dimensions), np.float32)
        else:
            segment.signs = np.empty((-(-dimensions // 64), capacity), np.uint64)
        if form == "halves":
            segment.halves = np.empty((capacity, dimensions), np.float16)
        return segment

    def take(self, at: int, other: Segment, kept: slice | npt.NDArray[np.int64], size: int) -> None:
        """Copy so many rows of another one to place `at`."""
        to = slice(at, at + size)
        self.seqs[to], self.versions[to] = other.seqs[kept], other.versions[kept]
        if self.floats is not None and other.floats is not None:
            self.floats[to] = other.floats[kept]
        if self.signs is not None and other.signs is not None:
            self.signs[:, to] = other.signs[:, kept]
        if self.halves is not None and other.halves is not None:
            self.halves[to] = other.halves[kept]

    @classmethod
    def of(cls, seqs: IntArray, versions: IntArray, vectors: npt.NDArray[Any], form: Form) -> Segment:
        """Build a segment of these rows, without room for more."""
        made = cls(seqs.astype(np.uint32), versions)
        if form == "floats":
            made.floats = vectors.astype(np.float32, copy=False)
            return made
        made.signs = _signs(vectors)
        if form == "halves":
            made.halves = vectors.astype(np.float16, copy=False)
        return made

    @property
    def vectors(self) -> npt.NDArray[Any]:
        return _present(self.halves if self.floats is None else self.floats)

    @property
    def nbytes(self) -> int:
        arrays = (self.seqs, self.versions, self.floats, self.signs, self.halves)
        return sum(array.nbytes for array in arrays if array is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Some of the vectors, chosen by their numbers alone, so that their order of arrival does not matter."""

    seqs: IntArray
    vectors: FloatArray
    signs: npt.NDArray[np.uint64]
    below: int = 1 << 32

    @classmethod
    def empty(cls, dimensions: int) -> Sample:
        nothing = np.empty((0, dimensions), np.float32)
        return cls(np.empty(0, np.int64), nothing, _signs(nothing))

    @classmethod
    def below_of(cls, rows: int) -> int:
        """Of so many rows, those are enough to choose from whose `hashed` numbers are below it."""
        below = 1 << 32
        while below * rows > (8 * SAMPLE_ROWS) << 32:
            below //= 2
        return below

    @classmethod
    def of(cls, seqs: IntArray, vectors: npt.NDArray[Any], below: int) -> Sample:
        """From rows that are all whose hashed numbers are below this."""
        while len(seqs) > 2 * SAMPLE_ROWS:
            below //= 2
            chosen = hash_numbers(seqs) < below
            seqs, vectors = seqs[chosen], vectors[chosen]
        vectors = vectors.astype(np.float32, copy=False)
        return cls(seqs, vectors, _signs(vectors), below)

    def with_rows(self, seqs: IntArray, vectors: npt.NDArray[Any], changed: IntArray) -> Sample:
        kept = ~np.isin(self.seqs, changed)
        chosen = hash_numbers(seqs) < self.below
        return Sample.of(
            np.concatenate([self.seqs[kept], seqs[chosen]]),
            np.concatenate([self.vectors[kept], vectors[chosen].astype(np.float32)]),
            self.below,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of a scope at a version.

    Args:
        count: of rows, dead ones included.
        alive: which of them are; None: all.
        row_of: sequence number -> row, or `NO_ROW`; longer than needed.
        log: (version, number) of what was removed since `log_from`; shared, of which `log_count` are ours.
    """

    generation: int
    version: int
    dimensions: int
    form: Form = "floats"
    segments: tuple[Segment, ...] = ()
    count: int = 0
    dead: int = 0
    alive: npt.NDArray[np.bool_] | None = None
    row_of: npt.NDArray[np.int32] = field(default_factory=lambda: np.full(FIRST_ROWS, NO_ROW, np.int32))
    sample: Sample | None = None
    log: list[tuple[int, int]] = field(default_factory=list)
    log_count: int = 0
    log_from: int = 0

    @property
    def nbytes(self) -> int:
        alive = 0 if self.alive is None else self.alive.nbytes
        sample = 0 if self.sample is None else self.sample.vectors.nbytes
        return sum(segment.nbytes for segment in self.segments) + self.row_of.nbytes + alive + sample + 256

    def apply(self, changes: Sequence[VectorRow], version: int) -> Rows:
        """Return the rows after changes, each of another number; this object stays as it is. Call it on the newest
        rows only."""
        size = 2 * self.dimensions  # of another one are damaged rows only: `perdure verify` finds them
        stored = [row for row in changes if row[2] is not None and len(row[2]) == size]
        seqs_of, versions_of, blobs = zip(*stored, strict=True) if stored else ((), (), ())
        vectors = decode(blobs, self.dimensions)
        seqs, versions = np.array(seqs_of, np.int64), np.array(versions_of, np.int64)
        touched = seqs if len(stored) == len(changes) else np.array([row[0] for row in changes], np.int64)
        rows = self._without(touched, [(row[1], row[0]) for row in changes if row[2] is None], version)
        if rows.dead > max(DEAD_ROWS, rows.count // 3):
            rows = rows._compact()
        rows = rows._convert(form_of(rows.count + len(stored), rows.dimensions))
        if rows.form != "floats":
            sample = rows.sample or Sample.empty(rows.dimensions)
            rows = replace(rows, sample=sample.with_rows(seqs, vectors, touched))
        return rows._with(Segment.of(seqs, versions, vectors, rows.form), slice(0, len(seqs)), len(seqs))

    def extend(
        self, seqs: IntArray, versions: IntArray, vectors: npt.NDArray[np.float16], *, form: Form, expected: int
    ) -> Rows:
        """These and new rows in this form or one of fewer bits, without a sample; `expected`: about so many will come
        to be in all."""
        rows = self._convert(form)
        return rows._with(Segment.of(seqs, versions, vectors, rows.form), slice(0, len(seqs)), len(seqs), expected)

    def with_sample(self, sample: Sample, gone: Sequence[tuple[int, int]]) -> Rows:
        """The same with this sample if they need one, knowing that these (number, version) were removed."""
        rows = self._without(
            np.array([seq for seq, _ in gone], np.int64), [(version, seq) for seq, version in gone], self.version
        )
        return rows if rows.form == "floats" else replace(rows, sample=sample)

    def rows_of(self, seqs: IntArray) -> npt.NDArray[np.int32]:
        """The row of each number, `NO_ROW` for those that have none alive."""
        if not len(seqs):
            return np.empty(0, np.int32)
        if np.minimum.reduce(seqs) < 0 or np.maximum.reduce(seqs) >= len(self.row_of):
            there = (seqs >= 0) & (seqs < len(self.row_of))
            rows = np.where(there, self.row_of[np.where(there, seqs, 0)], np.int32(NO_ROW))
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
        """The numbers of what changed after `version`; None: that is not known any more."""
        if version < self.log_from:
            return None
        gone = [seq for at, seq in self.log[: self.log_count] if at > version]
        there = [
            segment.seqs[:size][segment.versions[:size] > version].astype(np.int64) for segment, size in self._sized()
        ]
        return np.unique(np.concatenate([*there, np.array(gone, np.int64)]))

    def seqs_of(self, rows: npt.NDArray[Any]) -> IntArray:
        out = np.empty(len(rows), np.int64)
        for segment, picked, at in self._grouped(rows):
            out[picked] = segment.seqs[at]
        return out

    def score(self, query: FloatArray, rows: npt.NDArray[Any] | None = None) -> FloatArray:
        """Return the exact score of each row, or of these rows; not for signs alone."""
        if rows is None:
            return np.concatenate([scores(segment.vectors[:size], query) for segment, size in self._sized()])
        return self.score_rows(query, rows)[1]

    def score_rows(self, query: FloatArray, rows: npt.NDArray[Any]) -> tuple[IntArray, FloatArray]:
        """Return the numbers of these rows and their scores; not for signs alone."""
        seqs, dtype = np.empty(len(rows), np.int64), np.float32 if self.form == "floats" else np.float16
        vectors = np.empty((len(rows), self.dimensions), dtype)
        for segment, picked, at in self._grouped(rows):
            seqs[picked] = segment.seqs[at]
            if isinstance(picked, slice):  # straight to its place: by an index numpy copies twice
                segment.vectors.take(at, axis=0, out=vectors[picked], mode="clip")
            else:
                vectors[picked] = segment.vectors[at]
        return seqs, scores(vectors, query)

    def count_differing(self, query: FloatArray, rows: npt.NDArray[Any] | None = None) -> npt.NDArray[np.uint16]:
        """In how many dimensions the sign of each row, or of these, is not the query's; not of floats."""
        signs = _signs(query[np.newaxis])[:, 0]
        if rows is None:
            out, first, buffers = np.empty(self.count, np.uint16), 0, _Buffers(min(SEGMENT_ROWS, self.count))
            for segment, size in self._sized():
                _count_differing(_present(segment.signs)[:, :size], signs, out[first : first + size], buffers)
                first += size
            return out
        out = np.empty(len(rows), np.uint16)
        for segment, picked, at in self._grouped(rows):
            some = [word.take(at) for word in _present(segment.signs)]  # of all at once numpy copies every row
            out[picked] = _count_differing(some, signs, np.empty(len(at), np.uint16), _Buffers(len(at)))
        return out

    def score_sample(self, query: FloatArray) -> tuple[npt.NDArray[np.uint16], FloatArray]:
        """Of some of the rows, in how many dimensions they differ from the query, and their scores; not of floats."""
        sample = self.sample or Sample.empty(self.dimensions)
        out, buffers = np.empty(len(sample.seqs), np.uint16), _Buffers(len(sample.seqs))
        return _count_differing(sample.signs, _signs(query[np.newaxis])[:, 0], out, buffers), scores(
            sample.vectors, query
        )

    def estimate(self, query: FloatArray, rows: npt.NDArray[Any]) -> FloatArray:
        """The query's product with the signs of these rows: it goes with their score, closer than the number of
        differing signs does."""
        out = np.empty(len(rows), np.float32)
        for segment, picked, at in self._grouped(rows):
            words = np.ascontiguousarray(_present(segment.signs)[:, at].T)
            bits = np.unpackbits(words.view(np.uint8), axis=1, count=self.dimensions).astype(np.float32)
            out[picked] = scores(bits, query)  # twice this, less a constant, is the product with 1 and -1
        return out

    def _sized(self) -> list[tuple[Segment, int]]:
        return [
            (segment, min(SEGMENT_ROWS, self.count - (index << SEGMENT_BITS)))
            for index, segment in enumerate(self.segments)
        ]

    def _grouped(self, rows: npt.NDArray[Any]) -> list[tuple[Segment, Any, npt.NDArray[Any]]]:
        """The rows by segment: which of them, and where they lie in it."""
        if len(self.segments) == 1:
            return [(self.segments[0], slice(None), rows)]
        if not len(rows):
            return []
        at = rows >> SEGMENT_BITS
        if (at[1:] >= at[:-1]).all():  # as a rule they come in order, and then each segment's stand together
            edges = np.searchsorted(at, np.arange(len(self.segments) + 1)).tolist()
            picks: list[tuple[Segment, Any]] = [
                (segment, slice(edges[index], edges[index + 1]))
                for index, segment in enumerate(self.segments)
                if edges[index] < edges[index + 1]
            ]
        else:
            every = [(segment, np.flatnonzero(at == index)) for index, segment in enumerate(self.segments)]
            picks = [(segment, picked) for segment, picked in every if len(picked)]
        return [(segment, picked, rows[picked] & (SEGMENT_ROWS - 1)) for segment, picked in picks]

    def _without(self, seqs: IntArray, gone: Sequence[tuple[int, int]], version: int) -> Rows:
        """Return the rows at the new version, without those of these numbers."""
        log, log_from = self.log, self.log_from
        if len(log) + len(gone) > LOG_ROWS:
            log, log_from, gone = [], version, ()
        log.extend(gone)
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

    def _with(self, new: Segment, kept: slice | npt.NDArray[np.int64], size: int, expected: int = 0) -> Rows:
        """With so many rows of `new` behind the others: the first ones, or those at the places `kept`."""
        segments, count = list(self.segments), self.count
        while count < self.count + size:
            done, at = count - self.count, count & (SEGMENT_ROWS - 1)
            part = min(size - done, SEGMENT_ROWS - at)
            if count == len(segments) << SEGMENT_BITS:
                segments.append(Segment.empty(_capacity(max(part, expected - count)), self.dimensions, self.form))
            elif at + part > len(segments[-1].seqs):
                grown = Segment.empty(_capacity(at + part), self.dimensions, self.form)
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

    def _convert(self, form: Form) -> Rows:
        """Convert the rows to this form; from more to fewer bits only."""
        if FORMS.index(form) <= FORMS.index(self.form):
            return self
        rows = replace(self._empty_copy(), form=form)
        sample = self.sample or Sample.empty(self.dimensions)
        for segment, kept, size in self._living():
            if segment.floats is not None:
                seqs, floats = segment.seqs[kept].astype(np.int64), segment.floats[kept]
                sample = sample.with_rows(seqs, floats, np.empty(0, np.int64))
                rows = rows._with(Segment.of(seqs, segment.versions[kept], floats, form), slice(0, size), size)
            else:
                rows = rows._with(segment, kept, size)
        return replace(rows, sample=sample)

    def _compact(self) -> Rows:
        """Copy the living rows to new arrays."""
        rows = self._empty_copy()
        for segment, kept, size in self._living():
            rows = rows._with(segment, kept, size)
        return rows

    def _living(self) -> list[tuple[Segment, npt.NDArray[np.int64], int]]:
        """Each segment with the places of its rows that are alive."""
        found = []
        for index, (segment, size) in enumerate(self._sized()):
            first = index << SEGMENT_BITS
            kept = np.arange(size) if self.alive is None else np.flatnonzero(self.alive[first : first + size])
            found.append((segment, kept, len(kept)))
        return found

    def _empty_copy(self) -> Rows:
        row_of = np.full(len(self.row_of), NO_ROW, np.int32)
        return replace(self, segments=(), count=0, dead=0, alive=None, row_of=row_of)


def decode(blobs: Sequence[bytes], dimensions: int) -> npt.NDArray[np.float16]:
    """Stored vectors, all of this length, as a matrix."""
    return np.frombuffer(b"".join(blobs), "<f2").reshape(-1, dimensions)


def scores(vectors: npt.NDArray[Any], query: FloatArray) -> FloatArray:
    """The product of each row with the query."""
    out = np.empty(len(vectors), np.float32)
    step = max(1, PRODUCT_NUMBERS // max(1, vectors.shape[1]))
    grown = query * BIAS
    for first in range(0, len(vectors), step):
        block = vectors[first : first + step]
        if block.dtype == np.float16:
            out[first : first + step] = _widen_halves(block) @ grown
        else:
            out[first : first + step] = block.astype(np.float32, copy=False) @ query
    return out


def _widen_halves(halves: npt.NDArray[np.float16]) -> FloatArray:
    """Finite 16-bit floats as 32-bit ones, 2**112 times too small: sign, exponent and fraction moved to their places,
    but for the exponents' bias. numpy's own conversion takes four times as long."""
    bits = halves.view(np.int16).astype(np.int32)
    np.left_shift(bits, 13, out=bits)
    np.bitwise_and(bits, HALF_BITS, out=bits)  # the copies of the sign that lie in the exponent
    return bits.view(np.float32)


def form_of(rows: int, dimensions: int) -> Form:
    """Return the form in which so many rows are kept."""
    if 4 * rows * dimensions <= EXACT_BYTES:
        return "floats"
    return "halves" if 2 * rows * dimensions <= HALVES_BYTES else "signs"


def _present(array: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    assert array is not None
    return array


def _signs(vectors: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """(words, n) of n vectors; a dimension that is not below 0 is a bit that is set."""
    # Comparing halves takes as long as converting them; the sign is the first bit of each.
    above = vectors.view(np.int16) >= 0 if vectors.dtype == np.float16 else vectors >= 0
    bits = np.packbits(above, axis=1)
    padded = np.zeros((len(vectors), 8 * -(-vectors.shape[1] // 64)), np.uint8)
    padded[:, : bits.shape[1]] = bits
    return padded.view(np.uint64).T


class _Buffers:
    """The intermediate arrays of `_count_differing`."""

    def __init__(self, rows: int) -> None:
        self.differs = np.empty(rows, np.uint64)
        self.some, self.counted = np.empty(rows, np.uint8), np.empty(rows, np.uint8)


def _count_differing(
    words: Sequence[npt.NDArray[np.uint64]] | npt.NDArray[np.uint64],
    signs: npt.NDArray[np.uint64],
    out: npt.NDArray[np.uint16],
    buffers: _Buffers,
) -> npt.NDArray[np.uint16]:
    size = len(out)
    differs, some, counted = buffers.differs[:size], buffers.some[:size], buffers.counted[:size]
    out[:] = 0
    for first in range(0, len(signs), 3):  # three words' counts fit into eight bits
        for word in range(first, min(first + 3, len(signs))):
            np.bitwise_xor(words[word], signs[word], out=differs)
            if word == first:
                np.bitwise_count(differs, out=some)
            else:
                np.bitwise_count(differs, out=counted)
                np.add(some, counted, out=some)
        np.add(out, some, out=out)
    return out


def hash_numbers(seqs: IntArray) -> IntArray:
    """Hash numbers to numbers below 2**32."""
    return seqs * 2_654_435_761 & 0xFFFF_FFFF


def _capacity(rows: int) -> int:
    """The capacity of a segment for so many rows: twice as much each time, so that growing costs little."""
    return min(SEGMENT_ROWS, max(FIRST_ROWS, 1 << (rows - 1).bit_length()))
