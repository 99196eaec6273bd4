"""Excerpts: they hold what is looked for, and begin and end where a line, a sentence or a word does."""

from __future__ import annotations

from datetime import UTC
from typing import Literal

from hypothesis import assume, given
from hypothesis import strategies as st

from perdure.search.packing.text import Candidate, Excerpt, Typesetter, excerpt, terms_of
from tests.support.strategies import any_text, effort

ENDS = st.lists(st.sampled_from([" ", " ", " ", " ", "\n", ". ", "! "]), min_size=30, max_size=120)


def text_of(ends: list[str]) -> str:
    """Words that say which they are, with these ends."""
    return "".join(f"w{at:03}{end}" for at, end in enumerate(ends)).rstrip()


@effort(12, 2000)
@given(ENDS, st.integers(0, 999), st.integers(1, 3), st.integers(20, 160))
def test_what_is_looked_for_is_in_it(ends: list[str], at: int, count: int, chars: int) -> None:
    """All of some words that stand together, wherever: rather than any one of them somewhere else, or said twice."""
    at = at % (len(ends) - count)
    together = [f"w{number:03}" for number in range(at, at + count)]
    text = text_of(ends)
    if count > 1:
        again = "".join(f"{together[0]} " for _ in range(count))
        text = f"{again}\n{text}\n{again}" if at % 2 else f"{text}\n{again}"
    first, last = excerpt(text, terms_of(" ".join(together)), chars=chars)

    assert all(word in text[first:last] for word in together)


@effort(12, 2000)
@given(ENDS, st.integers(0, 999), st.integers(20, 160))
def test_it_begins_and_ends_with_whole_words(ends: list[str], at: int, chars: int) -> None:
    """As many as there is room for, but for one at each end; sentences and lines whole, where they are short."""
    text = text_of(ends)
    word = f"w{at % len(ends):03}"
    first, last = excerpt(text, terms_of(word), chars=chars)

    assert last - first <= chars
    assert first == 0 or text[first - 1].isspace()
    assert last == len(text) or not (text[last - 1].isalnum() and text[last].isalnum())
    assert not text[first].isspace()


@effort(12, 1000)
@given(ENDS, st.integers(0, 999))
def test_a_line_that_fits_is_there_whole(ends: list[str], at: int) -> None:
    """The one with the word, when there is room for that and not for those beside it."""
    text = text_of(ends)
    at = at % len(ends)
    (line,) = [line for line in text.split("\n") if f"w{at:03}" in line]
    sentence = next(part for part in line.replace("! ", ". ").split(". ") if f"w{at:03}" in part)
    first, last = excerpt(text, terms_of(f"w{at:03}"), chars=max(20, len(sentence) + 2))

    assert sentence.rstrip(".! ") in text[first:last].replace("! ", ". ")


@effort(12, 1000)
@given(st.text("abcd \n", min_size=1, max_size=12).filter(str.strip), st.data())
def test_what_was_cut_off_is_marked(text: str, data: st.DataObject) -> None:
    """At each end where anything is missing, be it one character, and nowhere else."""
    first = data.draw(st.integers(0, len(text) - 1))
    last = data.draw(st.integers(first + 1, len(text)))
    assume(text[first:last].strip())
    shown = Typesetter(UTC).item(Excerpt(Candidate(kind="turn", id="t", text=text, name="Ada"), first, last), 7)

    part = text[first:last].strip().split("\n")
    marked = [("… " if first else "") + part[0].rstrip(), *part[1:]]
    marked[-1] += " …" if last < len(text) else ""
    assert [line.strip() for line in shown.removeprefix("[7] Ada: ").split("\n")] == [line.strip() for line in marked]


PLACES = st.lists(st.tuples(st.sampled_from(["call", "walk"]), st.integers(0, 12)), min_size=1, max_size=6, unique=True)


@effort(12, 1000)
@given(PLACES, st.sampled_from(["turn", "passage"]))
def test_a_mark_stands_where_something_is_missing(
    places: list[tuple[str, int]], kind: Literal["turn", "passage"]
) -> None:
    """Between two of which one, or more, was said or stands that is not shown; and a title where it is another
    document, or another of several conversations."""
    places = sorted(places)
    some = [
        Candidate(kind=kind, id=f"{line}{at:02}", text=f"{at}", source=line, position=at, conversation=line, seq=at)
        for line, at in places
    ]
    lines = Typesetter(UTC).render([Excerpt(each, 0, len(each.text)) for each in some]).split("\n")

    titled = kind == "passage" or len({line for line, _ in places}) > 1
    expected: list[str] = []
    before: tuple[str, int] | None = None
    for number, (line, at) in enumerate(places, start=1):
        if before is None or before[0] != line:
            expected += [f"### {line}"] if titled else []
        elif at > before[1] + 1:
            expected.append("…")
        expected.append(f"[{number}] {at}" if kind == "passage" else f"[{number}] unknown: {at}")
        before = (line, at)
    assert lines[2:] == expected


@effort(12, 1000)
@given(any_text(120), st.sampled_from(["block", "turn"]))
def test_a_name_has_a_bound(name: str, kind: str) -> None:
    """80 characters, the last of them … where it is longer; on one line."""
    made = Candidate(kind="block", id="b", text="x", label=name) if kind == "block" else None
    candidate = made or Candidate(kind="turn", id="t", text="x", name=name, role="user")
    whole = " ".join(name.split())
    shown = whole if len(whole) <= 80 else f"{whole[:79]}…"

    assert Typesetter(UTC).item(Excerpt(candidate, 0, 1), 1).startswith(f"[1] {shown}" if name else "[1]")
