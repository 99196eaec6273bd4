"""The laws of ranking within one scope."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.text import Query, query_of
from perdure.memory.ranking import bm25
from perdure.testing.strategies import any_text, effort, sentences, words

TEXTS = st.lists(sentences(), min_size=1, max_size=6)


@effort(60, 1000)
@given(sentences(3), TEXTS)
def test_only_matches_score(query: str, texts: list[str]) -> None:
    """A text in which nothing of the query stands has 0; any other has more; there is one score for each text."""
    scores = bm25(query_of(query), texts, scope_size=100)

    asked = set(query.split())
    assert len(scores) == len(texts)
    for text, score in zip(texts, scores, strict=True):
        # Each of the words is either there as a whole or, in this vocabulary, not at all.
        assert (score > 0) == any(word in text.split() for word in asked), (query, text)


@effort(40, 500)
@given(sentences(3), TEXTS, st.randoms(use_true_random=False))
def test_scores_go_with_their_texts(query: str, texts: list[str], random: object) -> None:
    """The order of the candidates changes nothing."""
    order = list(range(len(texts)))
    random.shuffle(order)  # type: ignore[attr-defined]
    scores = bm25(query_of(query), texts, scope_size=100)

    shuffled = bm25(query_of(query), [texts[index] for index in order], scope_size=100)
    assert [round(score, 9) for score in shuffled] == [round(scores[index], 9) for index in order]


@effort(40, 500)
@given(words(), TEXTS)
def test_one_more_match_never_lowers_a_score(word: str, texts: list[str]) -> None:
    """Two texts of one length: the one with the word in it more often is at least as good."""
    fewer, more = f"{word} filler", f"{word} {word}"
    one, two, *_ = bm25(query_of(word), [fewer, more, *texts], scope_size=100)

    assert 0 < one < two


def test_a_rarer_word_weighs_more() -> None:
    """Of two texts that match one word each, the one with the rarer word is first."""
    texts = ["walrus here", "penguin here", "walrus there", "walrus everywhere"]
    scores = bm25(query_of("walrus penguin"), texts, scope_size=50)

    assert max(range(4), key=scores.__getitem__) == 1


def test_a_shorter_text_weighs_more() -> None:
    """The same match in a long text says less."""
    short, long = bm25(query_of("walrus"), ["a walrus", "a walrus " + "and more " * 50], scope_size=50)

    assert short > long > 0


def test_a_phrase_counts_where_its_words_stand_together() -> None:
    """The same words apart are no match of the phrase; loosened they are."""
    query = query_of('"red dog"')
    texts = ["the red dog", "the dog is red", "red dog red dog"]

    together, apart, twice = bm25(query, texts, scope_size=9)
    assert apart == 0 < together < twice
    assert bm25(query.loosened(), texts, scope_size=9)[1] > 0


def test_nothing_asked_or_nothing_there_is_no_error() -> None:
    """Without clauses every score is 0; without texts there are none."""
    assert bm25(Query(()), ["a", "b"], scope_size=2) == [0.0, 0.0]
    assert bm25(query_of("walrus"), [], scope_size=2) == []
    assert bm25(query_of("walrus"), ["", "..."], scope_size=0) == [0.0, 0.0]


@effort(60, 1000)
@given(any_text(), st.lists(any_text(), max_size=4), st.integers(0, 9))
def test_any_texts_can_be_ranked(query: str, texts: list[str], scope_size: int) -> None:
    """Scores are finite and never negative, whatever the characters, also if the scope's size is outdated."""
    scores = bm25(query_of(query), texts, scope_size=scope_size)

    assert all(0 <= score < 1e6 for score in scores)
