"""Names of speakers in a query and in what is embedded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.search.ranking.query import names_in, without_names
from tests.support.strategies import any_text, effort

NAMES = ("Ann", "Will", "José Martí", "José Luis", "李雷")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("what did ann say", (0,)),
        ("the annual report", ()),
        ("ANN'S dog", (0,)),
        ("what will happen", ()),
        ("What did Will do", (1,)),
        ("is josé  luis here", (3,)),
        ("josé said", ()),
        ("Ann and José Martí", (0, 2)),
        ("李雷 来了", (4,)),
        ("", ()),
    ],
)
def test_a_name_is_found_as_it_is_written(text: str, found: tuple[int, ...]) -> None:
    """Whole words, any case; a name that is an ordinary word needs its capital, a first name must be one person's."""
    assert names_in(text, NAMES) == found


def test_a_first_name_is_enough_when_it_is_nobody_elses() -> None:
    """`Grace Hopper` is meant by `Grace`."""
    assert names_in("When was Grace born?", ["Ada Lovelace", "Grace Hopper"]) == (1,)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("What did Ann's sister say, Ann?", "What did sister say,?"),
        ("Hey Ann, how are you?", "Hey, how are you?"),
        ("what will be, will be", "what will be, will be"),
        ("Ann", "Ann"),
        ("Ann, Ann!", "Ann, Ann!"),
        ("no name  here", "no name  here"),
    ],
)
def test_names_are_cut_out(text: str, rest: str) -> None:
    """With their possessive; a text without names stays as it is, and so does one that is nothing but names."""
    assert without_names(text, NAMES) == rest


@effort(12, 1000)
@given(any_text(), st.lists(any_text(8), max_size=4))
def test_any_names_will_do(text: str, names: list[str]) -> None:
    """Nothing in a name is syntax; the indexes are of the list given."""
    assert all(0 <= number < len(names) for number in names_in(text, names))
    assert isinstance(without_names(text, names), str)
    assert without_names(text, []) == text
