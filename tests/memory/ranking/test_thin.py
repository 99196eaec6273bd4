"""Of rows that say the same, one is shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.memory.ranking.thin import thinned
from perdure.testing.strategies import any_text, effort

LONG = "the walrus swam along the northern coast until it found a quiet bay with plenty of clams"


def test_the_same_text_is_shown_once_and_newest() -> None:
    """Case, spaces and punctuation do not make another text; it stands where the best of them stood."""
    assert thinned(["Red dog!", "cat", "red  dog", "RED DOG."], [3, 9, 5, 4], limit=9) == [(2, (0, 3)), (1, ())]


def test_nearly_the_same_text_is_shown_once() -> None:
    """One word more or less in a long text; the better one stays."""
    assert thinned([LONG, f"{LONG} today"], [1, 2], limit=9) == [(0, (1,))]


def test_near_duplicates_are_found_among_many_texts() -> None:
    """However many others stand before them, and words that are no ASCII among them too."""
    others = [" ".join(f"word{number}x{place}" for place in range(12)) for number in range(50)]
    texts = [LONG, *others[:25], f"{LONG} today", *others[25:], f"Über {others[3]}"]

    found = dict(thinned(texts, range(len(texts)), limit=99))

    assert {shown: same for shown, same in found.items() if same} == {0: (26,), 4: (52,)}


def test_another_number_is_another_memory() -> None:
    """Texts that differ in a number are not alike, nor short texts that differ at all."""
    texts = [f"{LONG} in 2023", f"{LONG} in 2024", "see you at noon", "see you at nine"]

    assert [shown for shown, _ in thinned(texts, [1, 2, 3, 4], limit=9)] == [0, 1, 2, 3]


@effort(60, 1000)
@given(st.lists(any_text(), max_size=8), st.integers(0, 8))
def test_what_is_shown_keeps_its_order(texts: list[str], limit: int) -> None:
    """At most `limit`; no row is shown or left out twice; groups stand in the order of their best."""
    groups = thinned(texts, list(range(len(texts))), limit=limit)
    members = [index for shown, others in groups for index in (shown, *others)]

    assert len(groups) <= limit
    assert len(members) == len(set(members))
    assert [min(shown, *others, shown) for shown, others in groups] == sorted(min((s, *o)) for s, o in groups)
