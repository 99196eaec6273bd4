"""Counting a query's words in texts without taking the texts apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.text.words import parse_query, stems
from perdure.search.ranking.matching import RELATED, clause_counts
from tests.support.cases import for_each
from tests.support.strategies import any_text, effort, sentences


@for_each(
    [
        ("paint", "She painted; painting is what painters Paint.", 3),
        ("happy", "happiness? HAPPY", 2),
        ("studies", "a study, studied, studying", 3),
        ("hoping", "I hope, she hoped, they hop", 2),
        ("car", "scar, care, car_x, cars and a car", 3),
        ("cafe", "Un café, two CAFÉS", 2),
        ("naïve", "naive naïve", 2),
        ("книга", "Книги и книгу", 2),
        ("上海", "我在上海工作，上海很大", 2),
        ("海", "我在上海", 1),
        ("北京大学", "北京大学和北京", 1),
        ("🚀", "to the 🚀🚀", 2),
        ('"red dog"', "the red dogs, a red-dog, red old dog", 2),
        ("E4711", "error e4711.", 1),
        ("ｆｕｌｌ", "full width", 1),
        ("dog", "", 0),
        ("python", "我用Python写程序，python很好", 2),
        ("程序", "我用Python写程序", 1),
        ('"我用python"', "A我用Python写", 1),
        ('"red dog"', "1red dog", 0),
        ("дом", "在дом里", 1),
        ("brod", "smørbrod", 0),
        ("strasse", "die Straße", 1),
        ("smorbrod", "smørbrod", 0),
        ("istanbul", "İstanbul, İSTANBUL'da", 2),
        ("ελληνικα", "ΕΛΛΗΝΙΚΑ, Ελληνικά", 2),
        ("احمد", "أَحْمَد", 1),
        ("tm", "café ™", 1),
        ("h2o", "H₂O in ２", 1),
    ]
)
def test_a_word_is_counted_however_it_is_written(query: str, text: str, count: int) -> None:
    """Every form with the same stem counts, whole words only; in scripts without spaces every place."""
    assert clause_counts(parse_query(query), ["nothing", text, "here"])[0].tolist() == [0, count, 0]


@pytest.mark.parametrize(("query", "text"), [("community", "communal"), ("photography", "a photo album: photographs")])
def test_a_related_word_counts_in_part(query: str, text: str) -> None:
    """A word that begins alike is worth something, however often it stands there."""
    assert clause_counts(parse_query(query), [f"{text} {text}"])[0].tolist() == [RELATED]


def test_nothing_is_found_across_two_texts() -> None:
    """The end of one text and the beginning of the next make no phrase."""
    assert not clause_counts(parse_query('"red dog"'), ["it is red", "dog days"]).any()
    assert not clause_counts(parse_query("北京"), ["北", "京"]).any()


@effort(12, 2000)
@given(sentences(3), st.lists(sentences(), max_size=5))
def test_what_is_counted_is_what_the_tokens_say(query: str, texts: list[str]) -> None:
    """For single words the count is the number of equal stems among the text's tokens."""
    clauses = parse_query(query).clauses
    counts = clause_counts(parse_query(query), texts)

    for row, clause in zip(counts, clauses, strict=True):
        if len(clause.tokens) == 1 and not clause.prefix:
            assert [int(count) for count in row] == [stems(text).count(clause.tokens[0]) for text in texts]


@effort(12, 2000)
@given(any_text(), st.lists(any_text(), max_size=4))
def test_any_texts_can_be_counted(query: str, texts: list[str]) -> None:
    """Whatever the characters, there is one count of 0 or more for each clause and text."""
    counts = clause_counts(parse_query(query), texts)

    assert counts.shape == (len(parse_query(query).clauses), len(texts))
    assert (counts >= 0).all()


WORDS = st.sampled_from(
    [
        "ø",
        "øpaint",
        "用dog写",
        "，dog。",
        "дом",
        "paint",
        "Painter",
        "dog",
        "don",
        "it’s",
        "don’t—dog",
        "🐕",
        "❤️",
        "dog🐕dog",
        "café",
        "_dog",
        "x…dog",
    ]
)


@effort(12, 2000)
@given(st.lists(WORDS, min_size=1, max_size=3), st.lists(st.lists(WORDS, max_size=6), min_size=1, max_size=4))
def test_a_text_has_its_counts_whatever_stands_beside_it(query: list[str], texts: list[list[str]]) -> None:
    """Curly apostrophes, dashes and emoji, in it or in others, change nothing."""
    asked = parse_query(" ".join(query))
    several = clause_counts(asked, [*map(" ".join, texts), "été"])

    for column, text in zip(several.T, texts, strict=False):
        assert clause_counts(asked, [" ".join(text)])[:, 0].tolist() == column.tolist()
