"""Packing: of blocks, passages and turns those that say most within a budget of tokens, as one text with its sources.

Pure. What is found, and how well it fits, is decided before; here only what is shown of it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import tzinfo

from perdure.core.text.zones import zone
from perdure.search.packing.excerpts import excerpt, terms_of
from perdure.search.packing.text import (
    HEADER,
    Candidate,
    Excerpt,
    Kind,
    heading,
    in_reading_order,
    item,
    rendered,
    section,
)

__all__ = ["Candidate", "Packed", "Piece", "pack"]

CANDIDATES_MAX = 400  # the best are looked at; the rest is left out
BLOCKS_SHARE = 0.5  # of the budget: they are always in view, but what was asked for needs room too
PART_SHARE, PART_TOKENS = 0.25, 100  # of the budget, or so many, for one passage or turn while others wait
ROOM_MIN = 8  # tokens; with less, nothing more is tried
PART_TOKENS_MIN = 24  # less of a text says nothing
LENGTH_POWER = 0.2
"""A candidate's worth is its score by its tokens to this power: 0 takes the best first, 1 the most per token, which
fills a context with short remarks. Evidence of 257 LoCoMo questions, lexical scores, within 500, 1,000, 2,000 tokens:
77.4, 82.9 and 87.9 % at 0; 77.1, 83.8, 87.8 at 0.15; 75.8, 84.1, 87.8 at 0.3; 68.2, 80.1, 88.5 at 1."""
COUNTED_CHARS = 4_000  # of a text; the rest is taken to have as many tokens a character
COMPARED_CHARS = 300  # of a text, for near-duplicates
SCORE_MAX = 1e9
TOP_UPS = 8  # tries to fill what is left when all is counted


@dataclass(frozen=True, slots=True)
class Piece:
    """One source of a packed context: `[number]` in its text.

    Args:
        tokens: of its lines, by themselves.
        first, last: the characters taken of the candidate's text, from 0, `last` not included.
        chars: that the candidate's text has.
    """

    number: int
    kind: Kind
    id: str
    score: float
    why: str
    tokens: int
    first: int
    last: int
    chars: int


@dataclass(frozen=True, slots=True)
class Packed:
    """A context: its text, the tokens of that, its pieces in reading order, and how many candidates are not in it."""

    text: str
    tokens: int
    pieces: tuple[Piece, ...]
    left_out: int


def pack(
    candidates: Iterable[Candidate],
    *,
    budget: int,
    count: Callable[[str], int],
    query: str = "",
    floor: float = -math.inf,
    timezone: str = "UTC",
) -> Packed:
    """The best of the candidates that fit, rendered; the same for any order of the candidates.

    Blocks come first, in up to half of the budget, then hits and their neighbours by score for their length, those that
    repeat what is there already later. What is too long is shown in part, around the words of the query.

    Args:
        budget: tokens; `count(packed.text)` is never more, unless the empty text is.
        count: tokens of a text; called a few hundred times at most, never twice for the same.
        floor: passages and turns below this score are left out.
        timezone: of dates and times in the text.
    """
    distinct = _distinct(candidates)
    usable = [each for each in distinct if each.text.strip() and (each.kind == "block" or each.score >= floor)]
    packing = _Packing(budget, _Counter(count), terms_of(query), zone(timezone))
    taken = packing.fitted(usable)
    order = in_reading_order([each.excerpt for each in taken])
    by_candidate = {_key(each.candidate): each for each in taken}
    text = packing.text(taken)
    pieces = tuple(
        Piece(
            number=number,
            kind=each.candidate.kind,
            id=each.candidate.id,
            score=each.candidate.score,
            why=each.candidate.why,
            tokens=by_candidate[_key(each.candidate)].tokens,
            first=each.first,
            last=each.last,
            chars=len(each.candidate.text),
        )
        for number, each in enumerate(order, start=1)
    )
    return Packed(text, packing.counter(text), pieces, len(distinct) - len(pieces))


def _key(candidate: Candidate) -> tuple[str, str]:
    return candidate.kind, candidate.id


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Each (kind, id) once, in an order of its own: as a hit if it is one, with its best score, and next to all that it
    is next to."""
    best: dict[tuple[str, str], Candidate] = {}
    for each in candidates:
        if not -SCORE_MAX <= each.score <= SCORE_MAX:
            each = replace(each, score=0.0 if math.isnan(each.score) else math.copysign(SCORE_MAX, each.score))
        key = _key(each)
        known = best.get(key)
        if known is None:
            best[key] = each
            continue
        hit = not (known.neighbours_of and each.neighbours_of)
        first = max(
            known, each, key=lambda one: (not one.neighbours_of, one.score, repr(replace(one, neighbours_of=())))
        )
        both = tuple(sorted({*known.neighbours_of, *each.neighbours_of}))
        best[key] = replace(first, neighbours_of=() if hit else both)
    return sorted(best.values(), key=lambda one: (-one.score, *_key(one)))


class _Counter:
    """`count`, each text once."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._count(text)
        return known

    def about(self, text: str) -> int:
        """Of a long text by its beginning; at least 1."""
        if len(text) <= COUNTED_CHARS:
            return max(1, self(text))
        return max(1, math.ceil(self(text[:COUNTED_CHARS]) * len(text) / COUNTED_CHARS))


@dataclass(slots=True)
class _Taken:
    """What is taken of a candidate, and what its lines cost by themselves."""

    excerpt: Excerpt
    tokens: int

    @property
    def candidate(self) -> Candidate:
        return self.excerpt.candidate

    @property
    def whole(self) -> bool:
        return self.excerpt.last - self.excerpt.first >= len(self.candidate.text)


@dataclass(slots=True)
class _Waiting:
    """A candidate that may be taken; `worth` falls as others are taken that say the same."""

    candidate: Candidate
    tokens: int
    worth: float
    words: int | None = None
    compared: int = 0
    overlap: float = 0.0


@dataclass(slots=True)
class _Packing:
    """One selection on its way."""

    budget: int
    counter: _Counter
    terms: tuple[str, ...]
    home: tzinfo
    room: int = 0
    taken: list[_Taken] = field(default_factory=list)
    headings: set[str] = field(default_factory=set)
    masks: list[int] = field(default_factory=list)
    later: list[Candidate] = field(default_factory=list)

    def fitted(self, candidates: list[Candidate]) -> list[_Taken]:
        """The selection, weakest last, that fits the budget when it is rendered and counted."""
        self.room = self.budget - self.counter(HEADER)
        if self.room > 0:
            self._take_blocks([each for each in candidates if each.kind == "block"])
            self._take_best([each for each in candidates if each.kind != "block"][:CANDIDATES_MAX])
            self._widen()
            self._drop_until_it_fits()
            self._top_up()
        return self.taken

    def text(self, taken: list[_Taken]) -> str:
        return rendered(in_reading_order([each.excerpt for each in taken]), home=self.home)

    def _take_blocks(self, blocks: list[Candidate]) -> None:
        room = min(self.room, int(self.budget * BLOCKS_SHARE))
        for block in blocks:
            took = self._take(block, self._tokens(block), at_most=room)
            if not took:
                self.later.append(block)
            room -= took

    def _take_best(self, candidates: list[Candidate]) -> None:
        if not candidates:
            return
        lowest = min(each.score for each in candidates)
        # Scores may be sums of z-scores: the weakest of them still has some worth.
        shift = 0.0 if lowest > 0 else 0.05 * max(1e-9, max(each.score for each in candidates) - lowest) - lowest
        share = max(PART_TOKENS, int(self.budget * PART_SHARE))
        vocabulary: dict[str, int] = {}
        neighbours: dict[str, list[Candidate]] = {}
        heap: list[tuple[float, int, _Waiting]] = []
        places = {_key(each): place for place, each in enumerate(candidates)}

        def wait(candidate: Candidate) -> None:
            tokens = self._tokens(candidate)
            shown = min(tokens, share)
            worth = (candidate.score + shift) / shown**LENGTH_POWER
            waiting = _Waiting(candidate, tokens, worth)
            heapq.heappush(heap, (-worth, places[_key(candidate)], waiting))

        for candidate in candidates:
            if candidate.neighbours_of:
                for hit in candidate.neighbours_of:
                    neighbours.setdefault(hit, []).append(candidate)
            else:
                wait(candidate)
        waited = {_key(each) for each in candidates if not each.neighbours_of}
        while heap:
            _, place, waiting = heapq.heappop(heap)
            if self.room < min(waiting.tokens, PART_TOKENS_MIN):
                self.later.append(waiting.candidate)
                continue
            if waiting.words is None:
                waiting.words = _words_of(waiting.candidate.text, vocabulary)
            self._compare(waiting, waiting.words)
            worth = waiting.worth * (1 - waiting.overlap**2)
            if heap and (-worth, place) > heap[0][:2]:
                heapq.heappush(heap, (-worth, place, waiting))
                continue
            if not self._take(waiting.candidate, waiting.tokens, at_most=share):
                self.later.append(waiting.candidate)
                continue
            self.masks.append(waiting.words)
            if waiting.candidate.kind != "turn" or waiting.candidate.neighbours_of:
                continue  # what stands next to a neighbour is next to no hit
            for near in neighbours.get(waiting.candidate.id, ()):
                if _key(near) not in waited:
                    waited.add(_key(near))
                    wait(near)

    def _compare(self, waiting: _Waiting, words: int) -> None:
        """How much of it stands in one of those that were taken since it was last looked at."""
        size = words.bit_count()
        if size and waiting.compared < len(self.masks):
            most = max([(words & mask).bit_count() for mask in self.masks[waiting.compared :]])
            waiting.overlap = max(waiting.overlap, most / size)
        waiting.compared = len(self.masks)

    def _take(self, candidate: Candidate, tokens: int, *, at_most: int) -> int:
        """Take it, or as much of it as there is room for; the tokens that it takes, 0 if there is no room."""
        above = self._above(candidate)
        extra = sum(self.counter(line) + 1 for line in above)
        room = min(self.room - extra, at_most)
        whole = Excerpt(candidate, 0, len(candidate.text))
        taken = _Taken(whole, tokens) if tokens <= room else self._cut(candidate, room, tokens)
        if taken is None:
            return 0
        self.taken.append(taken)
        self.headings.update(above)
        spent = taken.tokens + extra
        self.room -= spent
        return spent

    def _above(self, candidate: Candidate) -> list[str]:
        """The lines above it that aren't there yet."""
        titles = [section(candidate), heading(candidate, self.home, several=True)]
        return [title for title in titles if title and title not in self.headings]

    def _tokens(self, candidate: Candidate) -> int:
        return self.counter.about(self._lines(Excerpt(candidate, 0, len(candidate.text))))

    def _lines(self, each: Excerpt) -> str:
        return item(each, 100, self.home) + "\n"

    def _cut(self, candidate: Candidate, room: int, tokens: int) -> _Taken | None:
        """As much of it as takes `room` tokens; None where that is next to nothing."""
        if room < PART_TOKENS_MIN:
            return None
        chars = int(len(candidate.text) * room / tokens * 0.95)
        for _ in range(3):
            part = Excerpt(candidate, *excerpt(candidate.text, self.terms, chars=chars))
            if not part.text.strip():
                return None
            took = self.counter.about(self._lines(part))
            if took <= room:
                return _Taken(part, took)
            chars = int(chars * room / took * 0.9)
        return None

    def _widen(self) -> None:
        """What was cut while others waited gets the room that they left."""
        for index, each in enumerate(self.taken):
            if each.whole or self.room < PART_TOKENS_MIN:
                continue
            room = each.tokens + self.room
            tokens = self._tokens(each.candidate)
            whole = Excerpt(each.candidate, 0, len(each.candidate.text))
            wider = _Taken(whole, tokens) if tokens <= room else self._cut(each.candidate, room, tokens)
            if wider is not None and wider.tokens > each.tokens:
                self.room -= wider.tokens - each.tokens
                self.taken[index] = wider

    def _drop_until_it_fits(self) -> None:
        while self.taken:
            over = self.counter(self.text(self.taken)) - self.budget
            if over <= 0:
                return
            if len(self.taken) == 1 and (smaller := self._halved(self.taken[0])):
                self.taken = [smaller]
                continue
            freed = 0
            while self.taken and freed < over:
                freed += self._drop_last()

    def _halved(self, only: _Taken) -> _Taken | None:
        size = only.excerpt.last - only.excerpt.first
        candidate = only.candidate
        if size < 16:
            return None
        part = Excerpt(candidate, *excerpt(candidate.text, self.terms, chars=size // 2))
        return _Taken(part, self.counter.about(self._lines(part))) if part.text.strip() else None

    def _drop_last(self) -> int:
        """The tokens of the weakest, and of those that are here only beside it."""
        out = self.taken.pop()
        gone = [out]
        hits = _hits(self.taken)
        kept: list[_Taken] = []
        for each in self.taken:
            near = each.candidate.neighbours_of
            (kept if not near or not hits.isdisjoint(near) else gone).append(each)
        self.taken = kept
        self.later = [each.candidate for each in gone] + self.later
        return max(1, sum(each.tokens for each in gone))

    def _top_up(self) -> None:
        """The estimates are above the truth: what they kept out may fit after all."""
        left = self.budget - self.counter(self.text(self.taken))
        for candidate in self._fillers(left):
            before = list(self.taken)
            tokens = self._tokens(candidate)
            whole = _Taken(Excerpt(candidate, 0, len(candidate.text)), tokens)
            more = whole if tokens <= left else self._cut(candidate, left, tokens)
            if more is None:
                continue
            self.taken.append(more)
            tokens = self.counter(self.text(self.taken))
            if tokens <= self.budget:
                left = self.budget - tokens
            else:
                self.taken = before

    def _fillers(self, left: int) -> Iterator[Candidate]:
        hits = _hits(self.taken)
        there = {_key(each.candidate) for each in self.taken}
        tried = 0
        for candidate in self.later:
            near = candidate.neighbours_of
            if tried == TOP_UPS or left < ROOM_MIN:
                return
            if _key(candidate) not in there and (not near or not hits.isdisjoint(near)):
                tried += 1
                yield candidate


def _hits(taken: Iterable[_Taken]) -> set[str]:
    """The ids of the turns that others may stand next to."""
    return {each.candidate.id for each in taken if each.candidate.kind == "turn" and not each.candidate.neighbours_of}


def _words_of(text: str, vocabulary: dict[str, int]) -> int:
    """The words of a text's beginning as bits, numbered as they come; pairs of characters where no spaces part them."""
    text = text[:COMPARED_CHARS].lower()
    words = set(text.split())
    if not text.isascii() and len(words) * 12 < len(text):
        words = {text[at : at + 2] for at in range(len(text) - 1)}
    numbers = vocabulary.setdefault
    return sum([1 << numbers(word, len(vocabulary)) for word in words])
