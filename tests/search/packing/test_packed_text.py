"""A packed context can be read back: each piece is the part of its candidate that its source tells, where it says."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from perdure.search.packing.packing import Candidate, PackedPart, PackedText, pack
from perdure.search.packing.text import HEADER
from tests.support.strategies import effort

NOON = datetime(2023, 5, 5, 12, tzinfo=UTC)
SPARE = 12
"""Characters a piece may be thought to take more than it does: of its number, of a heading that others share."""


@dataclass
class Item:
    """One piece as it stands in the text: its lines, and what stands directly above it."""

    number: int
    head: str
    body: list[str]
    section: str
    title: str
    above: list[str] = field(default_factory=list)


def numbered(lines: int, start: int = 0) -> str:
    """Lines that say which they are, each unlike all others; one in five is a long one."""
    return "\n".join(f"at {at:03}{' and so on' * (at % 5 == 0)}." for at in range(start, start + lines))


@st.composite
def scenes(draw: st.DrawFn, kinds: str = "bpt", lines_max: int = 40) -> list[Candidate]:
    """Blocks, parts of documents with their lines, and turns of one or two conversations, of different scores."""
    made: list[Candidate] = []
    places = draw(st.lists(st.integers(0, 9), min_size=1, max_size=8, unique=True))
    scores = draw(st.permutations(range(1, len(places) + 1)))
    several = draw(st.booleans())
    for place, score in zip(places, scores, strict=True):
        kind = draw(st.sampled_from(kinds))
        size = draw(st.integers(1, min(4, lines_max)) | st.integers(1, lines_max))
        text = numbered(size, 100 * place)
        if kind == "b":
            made.append(Candidate(kind="block", id=f"b{place}", text=text, label=f"label{place}", position=place))
        elif kind == "p":
            first = draw(st.integers(1, 90))
            lines = (first, first + size - 1)
            made.append(
                Candidate(
                    kind="passage",
                    id=f"p{place}",
                    text=text,
                    score=score,
                    source="notes.md",
                    position=place,
                    lines=lines,
                )
            )
        else:
            line = draw(st.sampled_from(["walk", "call"])) if several else "walk"
            made.append(
                Candidate(
                    kind="turn",
                    id=f"t{place}",
                    text=text,
                    score=score,
                    conversation=line,
                    seq=place,
                    name="Ada",
                    occurred_at=NOON + timedelta(minutes=place),
                )
            )
    return made


def read(text: str) -> list[Item]:
    items: list[Item] = []
    section, title = "", ""
    above: list[str] = []
    lines = text.split("\n")
    assert lines[0] == HEADER
    for line in lines[1:]:
        if line.startswith("## "):
            section, title = line, ""
            above.append(line)
        elif line.startswith("### "):
            title = line
            above.append(line)
        elif line == "…":
            above.append(line)
        elif found := re.fullmatch(r"\[(\d+)\] (.*?):(?: (.*))?", line):
            items.append(Item(int(found[1]), found[2], [found[3]] if found[3] else [], section, title, above))
            above = []
        else:
            assert line.startswith("  ")
            items[-1].body.append(line[2:])
    assert above == []
    return items


def candidate_of(piece: PackedPart, candidates: Sequence[Candidate]) -> Candidate:
    (found,) = [each for each in candidates if (each.kind, each.id) == (piece.candidate.kind, piece.candidate.id)]
    return found


def check(found: PackedText, candidates: Sequence[Candidate]) -> None:
    items = read(found.text) if found.text else []
    assert [item.number for item in items] == [*range(1, len(items) + 1)]
    named: list[Candidate] = []
    for item, piece in zip(items, found.parts, strict=True):
        candidate = candidate_of(piece, candidates)
        named.append(candidate)
        first, last = piece.excerpt.first, piece.excerpt.last
        part = candidate.text[first:last]
        marked = ("… " if first else "") + part.strip() + (" …" if last < len(candidate.text) else "")
        assert item.body == marked.split("\n")
        match candidate.kind:
            case "block":
                assert (item.section, item.title, item.head) == ("## Blocks", "", candidate.label)
            case "passage":
                assert (item.section, item.title) == ("## Documents", "### notes.md")
                check_lines(item.head, part, candidate)
            case "turn":
                assert (item.section, item.head) == ("## Conversations", f"12:0{candidate.seq} Ada")
    check_order(items, named)


def check_lines(head: str, part: str, candidate: Candidate) -> None:
    """The lines that are named begin with the first and end with the last that is shown, in the file."""
    found = re.fullmatch(r"line (\d+)|lines (\d+)-(\d+)", head)
    assert found is not None
    assert candidate.lines is not None
    first, last = int(found[1] or found[2]), int(found[1] or found[3])
    file = candidate.text.split("\n")
    shown = part.strip().split("\n")
    named = file[first - candidate.lines[0] : last - candidate.lines[0] + 1]
    assert len(named) == len(shown) == last - first + 1
    assert named[0].endswith(shown[0]) or shown[0] in named[0]
    assert shown[-1] in named[-1]


def check_order(items: Sequence[Item], named: Sequence[Candidate]) -> None:
    """Blocks, documents, conversations, each as they stand; a title where it changes; a mark where some are missing."""
    kinds = [("block", "passage", "turn").index(each.kind) for each in named]
    assert kinds == sorted(kinds)
    day, lines = "### Friday, 5 May 2023", {each.conversation for each in named if each.kind == "turn"}
    for item, each in zip(items, named, strict=True):
        if each.kind == "turn":
            assert item.title == day + ("" if len(lines) == 1 else f", {each.conversation}")
    for (before, after), (item, following) in zip(itertools.pairwise(named), itertools.pairwise(items), strict=True):
        if before.kind != after.kind:
            assert following.above[0] == following.section
        elif item.title != following.title:
            assert following.above == [following.title]
        else:
            place = {"block": (0, 0), "passage": (before.position, after.position), "turn": (before.seq, after.seq)}
            first, second = place[after.kind]
            assert first < second or after.kind == "block"
            assert following.above == (["…"] if second > first + 1 else [])


@effort(12, 2000)
@given(scenes(), st.integers(60, 400) | st.integers(60, 3_000), st.integers(0, 999))
def test_a_packed_text_can_be_read_back(candidates: list[Candidate], budget: int, asked: int) -> None:
    """Its pieces are what their sources say, to the character; lines, days, gaps and titles are those of the pieces."""
    found = pack(candidates, budget=budget, count=len, query=f'"at {asked:03}"')

    assert found.tokens == len(found.text) <= budget
    check(found, candidates)


@effort(12, 1000)
@given(scenes())
def test_what_fits_is_shown_whole(candidates: list[Candidate]) -> None:
    """All of everything, when the budget is what all takes and a little more; never all when it is one token less."""
    whole = pack(candidates, budget=10**6, count=len)
    some = pack(candidates, budget=len(whole.text) + max(24, SPARE * (len(candidates) + 1)), count=len)
    less = pack(candidates, budget=len(whole.text) - 1, count=len)

    assert all(piece.whole for piece in whole.parts)
    assert whole.left_out == 0
    assert some.text == whole.text
    assert less.text != whole.text


@effort(12, 1000)
@given(scenes("pt", lines_max=2), st.floats(0.2, 1))
def test_no_room_is_left_for_what_was_left_out(candidates: list[Candidate], share: float) -> None:
    """Where all that is shown is whole, what is not would be too much: each by itself."""
    budget = int(share * len(pack(candidates, budget=10**6, count=len).text))
    found = pack(candidates, budget=budget, count=len)
    if not all(piece.whole for piece in found.parts):
        return
    shown = {piece.candidate.id for piece in found.parts}

    for each in candidates:
        if each.id not in shown:
            more = [one for one in candidates if one.id in shown | {each.id}]
            assert len(pack(more, budget=10**6, count=len).text) > budget - SPARE


@effort(12, 1000)
@given(st.permutations(range(12)), st.integers(60, 900))
def test_of_equally_long_ones_the_best_are_shown(scores: list[int], budget: int) -> None:
    """Those that are left out have lower scores; `left_out` counts them."""
    candidates = [
        Candidate(
            kind="turn", id=f"t{at:02}", text=f"{at:02}a {at:02}b {at:02}c", score=score + 1.0, name="Ada", seq=at
        )
        for at, score in enumerate(scores)
    ]
    found = pack(candidates, budget=budget, count=len)
    shown = sorted(piece.candidate.score for piece in found.parts if piece.excerpt.last == len(piece.candidate.text))

    assert shown == [12 - len(shown) + 1.0 + at for at in range(len(shown))]
    assert found.left_out == 12 - len(found.parts)


def test_texts_that_are_too_long_to_count_are_taken_by_their_beginning() -> None:
    """A text of 10,000 characters fits a budget that is a little larger, and not one that is smaller."""
    text = " ".join(f"{at:04}" for at in range(2_000))
    candidate = Candidate(kind="passage", id="p", text=text)
    (whole,) = pack([candidate], budget=len(text) + 100, count=len).parts
    (part,) = pack([candidate], budget=len(text), count=len).parts

    assert (whole.excerpt.first, whole.excerpt.last) == (0, len(text))
    assert 0.9 * len(text) < part.excerpt.last - part.excerpt.first < len(text)


def to_the_token(text: str) -> int:
    """Characters, with every piece's number as three: by this what is thought of a piece by itself is true of it."""
    return len(re.sub(r"^\[\d+\]", "[000]", text, flags=re.MULTILINE))


def short(number: int, chars: int, score: float, **rest: Any) -> Candidate:
    """A turn of so many characters, in words that no other has; between two of them nothing is missing."""
    words = "".join(f"{number:02}{at:02} " for at in range(99))[: chars - 1] + "."
    made = Candidate(kind="turn", id=f"t{number:02}", text=words, score=score, name="Ada")
    return replace(made, **rest)


SHORT = st.lists(st.integers(4, 40), min_size=1, max_size=8)


@effort(12, 1000)
@given(SHORT, st.none() | st.integers(200, 400), st.permutations(range(1, 10)))
def test_what_fits_to_the_token_is_shown(sizes: list[int], long: int | None, scores: list[int]) -> None:
    """At exactly the tokens of all of them all are there, also what was cut while others waited; with one less not, and
    no more is taken than that."""
    sizes = sizes if long is None else [long, *sizes]
    candidates = [short(at, size, scores[at]) for at, size in enumerate(sizes)]
    tokens = pack(candidates, budget=10**6, count=to_the_token).tokens
    whole = pack(candidates, budget=tokens, count=to_the_token)
    less = pack(candidates, budget=tokens - 1, count=to_the_token)

    assert [(piece.excerpt.first, piece.excerpt.last) for piece in whole.parts] == [(0, size) for size in sizes]
    assert (whole.tokens, whole.left_out) == (tokens, 0)
    assert less.tokens < tokens


@effort(12, 2000)
@given(SHORT, st.permutations(range(1, 9)), st.sets(st.integers(0, 7), max_size=4), st.integers(0, 30))
def test_not_one_more_would_fit(sizes: list[int], scores: list[int], gone: set[int], spared: int) -> None:
    """Of those that are left out, where all that is shown is whole: to the token. The budget is what some of them take,
    and a whole text costs less than its parts were thought to."""

    def count(text: str) -> int:
        return to_the_token(text) - (spared if text.startswith(f"{HEADER}\n") else 0)

    candidates = [short(at, size, scores[at]) for at, size in enumerate(sizes)]
    some = [each for at, each in enumerate(candidates) if at not in gone]
    budget = max(len(HEADER), pack(some, budget=10**6, count=count).tokens)
    found = pack(candidates, budget=budget, count=count)
    shown = {piece.candidate.id: piece.whole for piece in found.parts}
    if all(shown.values()):
        for each in candidates:
            if each.id not in shown:
                more = [one for one in candidates if one.id in {*shown, each.id}]
                assert pack(more, budget=10**6, count=count).tokens > budget


@effort(12, 2000)
@given(SHORT, st.integers(1, 6), st.integers(0, 12))
def test_a_text_that_costs_more_than_its_parts_fits_too(sizes: list[int], extra: int, less: int) -> None:
    """Whatever a counter makes of pieces that stand together: what was taken for too little goes again."""

    def count(text: str) -> int:
        return to_the_token(text) + extra * max(0, len(re.findall(r"^\[\d", text, re.MULTILINE)) - 1)

    candidates = [short(at, size, 1.0 + at) for at, size in enumerate(sizes)]
    every = pack(candidates, budget=10**6, count=count)
    found = pack(candidates, budget=every.tokens - less, count=count)

    assert found.tokens == count(found.text) <= every.tokens - less
    assert (found.text == every.text) == (less == 0)


@effort(12, 1000)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=8),
    st.integers(100, 10_000),
    st.integers(0, 2),
)
@example([(1, 0), (1, 5), (1, 0), (2, 0)], 3532, 0)  # what is dropped frees less than was estimated
def test_no_estimate_of_a_long_text_breaks_the_budget(
    densities: list[tuple[int, int]], budget: int, per_piece: int
) -> None:
    """Long texts are counted by their beginning, so each may cost ten times its estimate, or a tenth."""

    def half(density: int) -> str:
        return ("x" * density).ljust(10, "-") * 500

    def count(text: str) -> int:
        return text.count("x") + per_piece * text.count("[")

    candidates = [
        Candidate(kind="turn", id=f"t{at}", seq=3 * at, text=half(first) + half(second), score=9.0 - at)
        for at, (first, second) in enumerate(densities)
    ]
    found = pack(candidates, budget=budget, count=count)

    assert found.tokens == count(found.text) <= budget


@effort(12, 1000)
@given(st.integers(20, 900), st.integers(400, 4_000))
def test_a_lone_text_is_shown_as_far_as_it_fits(chars: int, budget: int) -> None:
    """Also when tokens rise faster than its length: a half of it, or a half of that."""

    def count(text: str) -> int:
        return len(text) ** 2 // 50

    candidate = Candidate(kind="passage", id="p", text="".join(f"{at:03} " for at in range(chars // 4 + 1))[:chars])
    found = pack([candidate], budget=budget, count=count)

    assert found.tokens <= budget
    assert found.parts


@effort(12, 2000)
@given(st.integers(4, 60), SHORT, st.integers(47, 200))
def test_no_neighbour_is_there_without_its_hit(chars: int, sizes: list[int], budget: int) -> None:
    """Neither when there is room for it and not for the hit, nor when the hit went again."""
    hit = short(0, chars, 2.0)
    near = [short(at, size, 1.0, neighbours_of=(hit.id,)) for at, size in enumerate(sizes, start=1)]
    for count in (len, to_the_token, lambda text: len(text) + 5 * text.count("\n")):
        shown = [piece.candidate.id for piece in pack([hit, *near], budget=budget, count=count).parts]

        assert not shown or hit.id in shown
