"""Of rows that say the same, one is shown."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.features.facts.fading.policy import are_similar, count_words
from perdure.search.ranking.fuse import merge_duplicates
from tests.support.strategies import any_text, effort

LONG = "the walrus swam along the northern coast until it found a quiet bay with plenty of clams"


def test_the_same_text_is_shown_once_and_newest() -> None:
    """Case, spaces and punctuation do not make another text; it stands where the best of them stood."""
    assert merge_duplicates(["Red dog!", "cat", "red  dog", "RED DOG."], [3, 9, 5, 4], limit=9) == [
        (2, (0, 3)),
        (1, ()),
    ]


def test_nearly_the_same_text_is_shown_once() -> None:
    """One word more or less in a long text; the better one stays."""
    assert merge_duplicates([LONG, f"{LONG} today"], [1, 2], limit=9) == [(0, (1,))]


def test_near_duplicates_are_found_among_many_texts() -> None:
    """However many others stand before them, and words that are no ASCII among them too."""
    others = [" ".join(f"word{number}x{place}" for place in range(12)) for number in range(50)]
    texts = [LONG, *others[:25], f"{LONG} today", *others[25:], f"Über {others[3]}"]

    found = dict(merge_duplicates(texts, range(len(texts)), limit=99))

    assert {shown: same for shown, same in found.items() if same} == {0: (26,), 4: (52,)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ann owes Ben fifty euros for the two tickets.", "Ben owes Ann fifty euros for the two tickets."),
        (f"{LONG} and the flag was left of the mill", f"{LONG} and the flag was right of the mill"),
        (f"{LONG} and the budget is approved", f"{LONG} and the budget is not approved"),
        (f"{LONG} and he can do it", f"{LONG} and he can't do it"),
        (f"{LONG} {LONG} in C", f"{LONG} {LONG} in C#"),
        *(
            ("C is fast.", "C# is fast."),
            ("a > b", "a < b"),
            ("it is 5 degrees", "it is -5 degrees"),
            ("fine 👍", "fine 👎"),
        ),
    ],
)
@pytest.mark.parametrize("limit", [9, 99])
def test_what_says_something_else_is_another_memory(one: str, other: str, limit: int) -> None:
    """In another order, with another word, a denial or another sign: both are shown, however many words they share."""
    assert [shown for shown, _ in merge_duplicates([one, other], [1, 2], limit=limit)] == [0, 1]


def test_another_number_is_another_memory() -> None:
    """Texts that differ in a number are not alike, nor short texts that differ at all."""
    texts = [f"{LONG} in 2023", f"{LONG} in 2024", "see you at noon", "see you at nine"]

    assert [shown for shown, _ in merge_duplicates(texts, [1, 2, 3, 4], limit=9)] == [0, 1, 2, 3]


@effort(12, 1000)
@given(st.lists(any_text(), max_size=8), st.integers(0, 8))
def test_what_is_shown_keeps_its_order(texts: list[str], limit: int) -> None:
    """At most `limit`; no row is shown or left out twice; groups stand in the order of their best."""
    groups = merge_duplicates(texts, list(range(len(texts))), limit=limit)
    members = [index for shown, others in groups for index in (shown, *others)]

    assert len(groups) <= limit
    assert len(members) == len(set(members))
    assert [min(shown, *others, shown) for shown, others in groups] == sorted(min((s, *o)) for s, o in groups)


WORDS = [f"word{number}" for number in range(24)] + ["été", "日本", "7", "room8"]


@effort(12, 1000)
@given(st.data())
def test_no_two_of_those_shown_are_alike(data: st.DataObject) -> None:
    """Whatever their lengths: of a text and one with up to a tenth of words more, none a number, one is shown."""
    texts: list[list[str]] = []
    for _ in range(data.draw(st.integers(1, 8))):
        if data.draw(st.booleans()) and texts:
            text = list(texts[data.draw(st.integers(0, len(texts) - 1))])
            text.insert(data.draw(st.integers(0, len(text))), data.draw(st.sampled_from(WORDS)))
        else:
            text = data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=40))
        texts.append(text)
    shown = [at for at, _ in merge_duplicates([" ".join(text) for text in texts], range(len(texts)), limit=9)]

    for first in shown:
        for second in shown:
            one, other = set(texts[first]), set(texts[second])
            small, large = sorted((texts[first], texts[second]), key=len)
            is_longer = len(small) >= max(8, 0.9 * len(large)) and len(one & other) >= 0.9 * len(one | other)
            rest = iter(large)
            in_order = all(word in rest for word in small)
            added = "".join((Counter(large) - Counter(small)).elements())
            assert first == second or texts[first] != texts[second]
            assert first == second or not (is_longer and in_order and not any(map(str.isdigit, added)))


PAIRS = [
    ("Anna owes Ben 50 euros for the tickets.", "Ben owes Anna 50 euros for the tickets."),
    ("Flight from Rome to Oslo leaves at nine in June.", "Flight from Oslo to Rome leaves at nine in June."),
    (
        "Please enable the two-factor login for the shop and tell all of the customers.",
        "Please disable the two-factor login for the shop and tell all of the customers.",
    ),
    (
        "After a long talk the client approved the budget of the next year.",
        "After a long talk the client never approved the budget of the next year.",
    ),
    ("C is fast.", "C# is fast."),
    ("a > b", "a < b"),
    ("pip install kestrel==2.0", "pip uninstall kestrel==2.0"),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_texts_that_say_different_things_are_both_shown(one: str, other: str) -> None:
    """Words in another order, one word in place of another, a negation, a sign."""
    assert merge_duplicates([one, other], [1, 2], limit=9) == [(0, ()), (1, ())]
    assert len(one) < 30 or not are_similar(count_words(one), count_words(other))
