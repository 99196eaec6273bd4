"""Select blocks, facts, passages and turns within a budget of tokens, and render them as one text with its sources.

Pure. The searches find and score the candidates before.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from perdure.core.text.zones import zone
from perdure.search.packing.text import HEADER, Candidate, Excerpt, Typesetter, excerpt, sort_for_reading, terms_of

__all__ = ["Candidate", "PackedPart", "PackedText", "pack"]

CANDIDATES_MAX = 400  # the best ones; the rest is left out
BLOCKS_SHARE, FACTS_SHARE = 0.5, 0.5  # of the budget
PART_SHARE, PART_TOKENS = 0.25, 100  # share of the budget, or tokens, for one passage or turn while others wait
ROOM_MIN = 8  # tokens; packing stops with less room
REPEATED_SHARE = 0.7  # of a filler's words that stand in what is selected: it is left out
PART_TOKENS_MIN = 24  # the shortest part of a text
LENGTH_POWER = 0.2
"""A candidate's worth is its score divided by its tokens to this power: at 0 the best score comes first, at 1 the best
per token, which prefers short remarks. Evidence of 257 LoCoMo questions, lexical scores, within 500, 1,000, 2,000
tokens: 77.4, 82.9 and 87.9 % at 0; 77.1, 83.8, 87.8 at 0.15; 75.8, 84.1, 87.8 at 0.3; 68.2, 80.1, 88.5 at 1."""
COUNT_CHARS = 4_000  # of a longer text only these are counted, and the rest estimated
COMPARE_CHARS = 300  # of a text, for near-duplicates
SCORE_MAX = 1e9
TOP_UPS = 8  # tries to fill the room left after the final count


@dataclass(frozen=True, slots=True)
class PackedPart:
    """The part of a candidate that a packed context has, and the tokens of its own lines."""

    excerpt: Excerpt
    tokens: int

    @property
    def candidate(self) -> Candidate:
        return self.excerpt.candidate

    @property
    def whole(self) -> bool:
        """Whether it is the whole text of its candidate."""
        return self.excerpt.last - self.excerpt.first >= len(self.candidate.text)


@dataclass(frozen=True, slots=True)
class PackedText:
    """A context: its text and tokens, its parts as the text numbers them, from 1, and how many candidates it lacks."""

    text: str
    tokens: int
    parts: tuple[PackedPart, ...]
    left_out: int


def pack(
    candidates: Iterable[Candidate],
    *,
    budget: int,
    count: Callable[[str], int],
    query: str = "",
    timezone: str = "UTC",
    in_words: bool = False,
) -> PackedText:
    """Select and render the best candidates that fit; the result does not depend on their order.

    Blocks come first, in up to half of the budget, then facts, in up to half of it. Hits and their neighbours follow by
    score and length; candidates that repeat selected ones come later. What fills takes the room that is left. Long
    texts are cut to an excerpt around the query's words.

    Args:
        budget: tokens; `count(packed.text)` is never more, unless the empty text is.
        count: tokens of a text; called a few hundred times at most, never twice for the same.
        timezone: of dates and times in the text.
        in_words: the text is plain lines, see `Typesetter`.
    """
    distinct = _merge_equal(candidates)
    usable = [each for each in distinct if each.text.strip()]
    packing = _Packer(
        budget,
        _TokenCounts(count),
        terms_of(query),
        Typesetter(zone(timezone), in_words=in_words),
        has_header=not in_words,
    )
    parts = packing.select(usable)
    by_candidate = {_key(each.candidate): each for each in parts}
    order = sort_for_reading([each.excerpt for each in parts])
    text = packing.text(parts)
    in_order = tuple(by_candidate[_key(each.candidate)] for each in order)
    return PackedText(text, packing.counter(text), in_order, len(distinct) - len(parts))


def _key(candidate: Candidate) -> tuple[str, str]:
    """Return what identifies a candidate: its kind and id."""
    return candidate.kind, candidate.id


def _merge_equal(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Merge candidates with equal (kind, id), keeping the best score and all neighbours; sort by score."""
    best: dict[tuple[str, str], Candidate] = {}
    for each in candidates:
        if not -SCORE_MAX <= each.score <= SCORE_MAX:
            each = replace(each, score=0.0 if math.isnan(each.score) else math.copysign(SCORE_MAX, each.score))
        key = _key(each)
        other = best.get(key)
        if other is None:
            best[key] = each
            continue
        if other.fills or each.fills:  # one that was found, if there is one
            best[key] = other if each.fills else each
            continue
        hit = not (other.neighbours_of and each.neighbours_of)
        first = max(
            other, each, key=lambda one: (not one.neighbours_of, one.score, repr(replace(one, neighbours_of=())))
        )
        both = tuple(sorted({*other.neighbours_of, *each.neighbours_of}))
        best[key] = replace(first, neighbours_of=() if hit else both)
    return sorted(best.values(), key=lambda one: (-one.score, *_key(one)))


class _TokenCounts:
    """Counts the tokens of each text once."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._counts: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """Count the tokens of a text."""
        tokens = self._counts.get(text)
        if tokens is None:
            tokens = self._counts[text] = self._count(text)
        return tokens

    def estimate(self, text: str) -> int:
        """Estimate the tokens of a long text by its beginning; at least 1."""
        if len(text) <= COUNT_CHARS:
            return max(1, self(text))
        return max(1, math.ceil(self(text[:COUNT_CHARS]) * len(text) / COUNT_CHARS))


@dataclass(slots=True)
class _QueueEntry:
    """A candidate in the queue. Its `worth` falls as similar candidates are selected."""

    candidate: Candidate
    tokens: int
    worth: float
    words: int | None = None  # as bits, see `_words_of`; None: not computed yet
    compared: int = 0  # with how many of the selected parts it was compared
    overlap: float = 0.0  # the largest share of its words that one of these has


@dataclass(slots=True)
class _Packer:
    """The state of one selection."""

    budget: int
    counter: _TokenCounts
    terms: tuple[str, ...]
    setter: Typesetter
    has_header: bool = True
    room: int = 0  # tokens of the budget that are left
    parts: list[PackedPart] = field(default_factory=list)  # the selected ones, weakest last
    headings: set[str] = field(default_factory=set)  # lines above them that are counted already
    masks: list[int] = field(default_factory=list)  # words of the selected passages and turns, see `_words_of`
    rest: list[Candidate] = field(default_factory=list)  # those that found no room, best first

    def select(self, candidates: list[Candidate]) -> list[PackedPart]:
        """Select parts, weakest last, whose rendered text fits the budget."""
        self.room = self.budget - (self.counter(HEADER) if self.has_header else 0)
        if self.room > 0:
            hits = [each for each in candidates if not each.fills]
            self._take_first([each for each in hits if each.kind == "block"], BLOCKS_SHARE)
            self._take_first([each for each in hits if each.kind == "fact"], FACTS_SHARE)
            self._take_best([each for each in hits if each.kind not in ("block", "fact")][:CANDIDATES_MAX])
            self._widen()
            self._fill([each for each in candidates if each.fills])
            self._drop_excess()
            self._top_up()
        return self.parts

    def text(self, parts: list[PackedPart]) -> str:
        """Render the parts in reading order."""
        return self.setter.render(sort_for_reading([each.excerpt for each in parts]))

    def _take_first(self, candidates: list[Candidate], share: float) -> None:
        """Select candidates in their order, within their share of the budget."""
        room = min(self.room, int(self.budget * share))
        for candidate in candidates:
            spent = self._add(candidate, self._tokens(candidate), at_most=room)
            if not spent:
                self.rest.append(candidate)
            room -= spent

    def _fill(self, candidates: list[Candidate]) -> None:
        """Select whole candidates in order, except those that repeat what is selected. If all turns fit they come
        first, as a short history is better than an extract of it."""
        turns = [each for each in candidates if each.kind == "turn"]
        if sum(map(self._tokens, turns)) <= self.room:
            candidates = turns + [each for each in candidates if each.kind != "turn"]
        vocabulary: dict[str, int] = {}
        masks = [_words_of(part.candidate.text, vocabulary) for part in self.parts]
        for candidate in candidates:
            words, tokens = _words_of(candidate.text, vocabulary), self._tokens(candidate)
            most = max(((words & mask).bit_count() for mask in masks), default=0)
            repeats = candidate.kind != "turn" and most >= REPEATED_SHARE * words.bit_count()
            if tokens > self.room or repeats:
                continue
            if self._add(candidate, tokens, at_most=self.room):
                masks.append(words)

    def _take_best(self, candidates: list[Candidate]) -> None:
        """Select passages and turns, the best worth first, until the room is used. The worth of a candidate falls by
        its overlap with what is selected. A neighbour joins the queue with its hit."""
        if not candidates:
            return
        lowest = min(each.score for each in candidates)
        # Scores may be negative sums of z-scores: shift them, so that the weakest has some worth.
        shift = 0.0 if lowest > 0 else 0.05 * max(1e-9, max(each.score for each in candidates) - lowest) - lowest
        share = max(PART_TOKENS, int(self.budget * PART_SHARE))
        vocabulary: dict[str, int] = {}
        neighbours: dict[str, list[Candidate]] = {}
        heap: list[tuple[float, int, _QueueEntry]] = []
        places = {_key(each): place for place, each in enumerate(candidates)}

        def push(candidate: Candidate) -> None:
            """Put a candidate into the queue, with its score by its length as its worth."""
            tokens = self._tokens(candidate)
            counted = min(tokens, share)
            worth = (candidate.score + shift) / counted**LENGTH_POWER
            entry = _QueueEntry(candidate, tokens, worth)
            heapq.heappush(heap, (-worth, places[_key(candidate)], entry))

        for candidate in candidates:
            if candidate.neighbours_of:
                for hit in candidate.neighbours_of:
                    neighbours.setdefault(hit, []).append(candidate)
            else:
                push(candidate)
        queued = {_key(each) for each in candidates if not each.neighbours_of}
        while heap:
            _, place, entry = heapq.heappop(heap)
            if self.room < min(entry.tokens, PART_TOKENS_MIN):
                self.rest.append(entry.candidate)
                continue
            if entry.words is None:
                entry.words = _words_of(entry.candidate.text, vocabulary)
            self._compare(entry, entry.words)
            worth = entry.worth * (1 - entry.overlap**2)
            if heap and (-worth, place) > heap[0][:2]:
                heapq.heappush(heap, (-worth, place, entry))
                continue
            if not self._add(entry.candidate, entry.tokens, at_most=share):
                self.rest.append(entry.candidate)
                continue
            self.masks.append(entry.words)
            if entry.candidate.kind != "turn" or entry.candidate.neighbours_of:
                continue  # only hits bring neighbours
            for near in neighbours.get(entry.candidate.id, ()):
                if _key(near) not in queued:
                    queued.add(_key(near))
                    push(near)

    def _compare(self, entry: _QueueEntry, words: int) -> None:
        """Update the overlap of a candidate with the parts selected since the last call."""
        size = words.bit_count()
        if size and entry.compared < len(self.masks):
            most = max([(words & mask).bit_count() for mask in self.masks[entry.compared :]])
            entry.overlap = max(entry.overlap, most / size)
        entry.compared = len(self.masks)

    def _add(self, candidate: Candidate, tokens: int, *, at_most: int) -> int:
        """Select a candidate, or as much of it as fits; return its tokens, 0 if nothing fits."""
        section, _, heading = self.setter.titles(candidate)
        titles = [title for title in (section, heading) if title and title not in self.headings]
        extra = sum(self.counter(line) + 1 for line in titles)
        room = min(self.room - extra, at_most)
        part = self._fit(candidate, room, tokens)
        if part is None:
            return 0
        self.parts.append(part)
        self.headings.update(titles)
        spent = part.tokens + extra
        self.room -= spent
        return spent

    def _tokens(self, candidate: Candidate) -> int:
        """Estimate the tokens of a candidate's lines with its whole text."""
        return self.counter.estimate(self._lines(Excerpt(candidate, 0, len(candidate.text))))

    def _lines(self, each: Excerpt) -> str:
        """Render an excerpt as number 100, so that its tokens are measured with a wide number."""
        return self.setter.item(each, 100) + "\n"

    def _fit(self, candidate: Candidate, room: int, tokens: int) -> PackedPart | None:
        """Return a candidate of so many tokens, or the part that fits the room; None if that is too short."""
        if tokens <= room:
            return PackedPart(Excerpt(candidate, 0, len(candidate.text)), tokens)
        if room < PART_TOKENS_MIN:
            return None
        chars = int(len(candidate.text) * room / tokens * 0.95)
        for _ in range(3):
            part = Excerpt(candidate, *excerpt(candidate.text, self.terms, chars=chars))
            if not part.text.strip():
                return None
            used = self.counter.estimate(self._lines(part))
            if used <= room:
                return PackedPart(part, used)
            chars = int(chars * room / used * 0.9)
        return None

    def _widen(self) -> None:
        """Widen cut parts into the room that is left."""
        for index, each in enumerate(self.parts):
            if each.whole or self.room < PART_TOKENS_MIN:
                continue
            room = each.tokens + self.room
            tokens = self._tokens(each.candidate)
            wider = self._fit(each.candidate, room, tokens)
            if wider is not None and wider.tokens > each.tokens:
                self.room -= wider.tokens - each.tokens
                self.parts[index] = wider

    def _drop_excess(self) -> None:
        """Drop or shorten the weakest parts until the rendered text fits the budget."""
        while self.parts:
            over = self.counter(self.text(self.parts)) - self.budget
            if over <= 0:
                return
            if len(self.parts) == 1 and (smaller := self._halve(self.parts[0])):
                self.parts = [smaller]
                continue
            dropped_tokens = 0
            while self.parts and dropped_tokens < over:
                dropped_tokens += self._drop_last()

    def _halve(self, only: PackedPart) -> PackedPart | None:
        """Return half of the only part; None if it is too short."""
        size = only.excerpt.last - only.excerpt.first
        candidate = only.candidate
        if size < 16:
            return None
        part = Excerpt(candidate, *excerpt(candidate.text, self.terms, chars=size // 2))
        return PackedPart(part, self.counter.estimate(self._lines(part))) if part.text.strip() else None

    def _drop_last(self) -> int:
        """Drop the weakest part and neighbours without another hit; return their tokens."""
        weakest = self.parts.pop()
        dropped = [weakest]
        hits = _hit_ids(self.parts)
        remaining: list[PackedPart] = []
        for each in self.parts:
            near = each.candidate.neighbours_of
            (remaining if not near or not hits.isdisjoint(near) else dropped).append(each)
        self.parts = remaining
        self.rest = [each.candidate for each in dropped] + self.rest
        return max(1, sum(each.tokens for each in dropped))

    def _top_up(self) -> None:
        """Add more candidates: the estimates are too high, so some may fit after all."""
        room = self.budget - self.counter(self.text(self.parts))
        for candidate in self._fillers(room):
            before = list(self.parts)
            tokens = self._tokens(candidate)
            more = self._fit(candidate, room, tokens)
            if more is None:
                continue
            self.parts.append(more)
            tokens = self.counter(self.text(self.parts))
            if tokens <= self.budget:
                room = self.budget - tokens
            else:
                self.parts = before

    def _fillers(self, room: int) -> Iterator[Candidate]:
        """Yield the candidates that may fill the rest of the room, at most `TOP_UPS`."""
        hits = _hit_ids(self.parts)
        present = {_key(each.candidate) for each in self.parts}
        count = 0
        for candidate in self.rest:
            near = candidate.neighbours_of
            if count == TOP_UPS or room < ROOM_MIN:
                return
            if _key(candidate) not in present and (not near or not hits.isdisjoint(near)):
                count += 1
                yield candidate


def _hit_ids(parts: Iterable[PackedPart]) -> set[str]:
    """Return the ids of the selected turns that are hits."""
    return {each.candidate.id for each in parts if each.candidate.kind == "turn" and not each.candidate.neighbours_of}


def _words_of(text: str, vocabulary: dict[str, int]) -> int:
    """Return the words of a text's beginning as bits; in scripts without spaces, pairs of characters. `vocabulary`:
    word -> number of its bit; new words are added."""
    text = text[:COMPARE_CHARS].lower()
    words = set(text.split())
    if not text.isascii() and len(words) * 12 < len(text):
        words = {text[at : at + 2] for at in range(len(text) - 1)}
    numbers = vocabulary.setdefault
    return sum([1 << numbers(word, len(vocabulary)) for word in words])
