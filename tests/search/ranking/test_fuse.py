"""The laws of one order made from several arms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.search.ranking.fuse import add_late, rank
from perdure.search.ranking.pool import ASSISTANT, USER, Pool, PoolScope, QueryHints
from perdure.search.ranking.weights import HYBRID, LEXICAL, PASSAGES, Weights
from tests.support.strategies import effort

NOW = 1_700_000_000.0
DAY = 86_400.0
ANY_HINTS = QueryHints(speakers=(1,), role=USER, spans=((NOW - 9 * DAY, NOW - 2 * DAY),), asked="time", now=NOW)
WEIGHTS = st.sampled_from([LEXICAL, HYBRID, PASSAGES])


@st.composite
def pools(draw: st.DrawFn, wild: bool = False) -> Pool:
    """Up to 12 rows in up to 3 sessions; `wild` ones hold numbers that nobody should send."""
    size = draw(st.integers(1, 12))
    clauses = draw(st.integers(0, 3))
    numbers = st.floats(allow_nan=True, allow_infinity=True) if wild else st.floats(-1, 1)

    def column(values: st.SearchStrategy[Any], rows: int = size) -> Any:
        return np.array(draw(st.lists(values, min_size=rows, max_size=rows)))

    counts = column(numbers if wild else st.sampled_from([0.0, 0.0, 0.35, 1.0, 2.0]), clauses * size)
    return Pool.of(
        np.array(draw(st.permutations(range(size)))),
        PoolScope(
            rows=draw(st.integers(0 if wild else size, 500)),
            sessions=draw(st.integers(0 if wild else 3, 9)),
            mean_chars=draw(numbers) if wild else 90.0,
            dense_mean=draw(numbers) if wild else 0.1,
            dense_std=draw(numbers) if wild else 0.2,
            session_rows=column(st.integers(1, 40), 3),
        ),
        session=column(st.integers(0, 2)),
        place=np.arange(size),
        speaker=column(st.integers(-1, 2)),
        role=column(st.integers(-1, 2)),
        occurred_at=column(numbers if wild else st.floats(NOW - 90 * DAY, NOW)),
        chars=column(numbers if wild else st.integers(0, 3000)).astype(float),
        asks=column(st.booleans()),
        answers=column(st.booleans()),
        asked=column(st.integers(0, 4)),
        uses=column(numbers if wild else st.integers(0, 30)).astype(float),
        counts=counts.astype(float).reshape(clauses, size),
        related=column(numbers if wild else st.integers(0, 9), clauses * size).astype(float).reshape(clauses, size),
        first_person=column(st.booleans()),
        dense=column(numbers | st.just(float("nan"))).astype(float),
    )


def select_rows(pool: Pool, rows: Any) -> Pool:
    """The same rows in another order, or some of them."""
    columns = {
        name: column[..., rows]
        for name in Pool.__dataclass_fields__
        if name != "scope" and (column := getattr(pool, name)) is not None
    }
    return replace(pool, **columns)


def small(**columns: Any) -> Pool:
    """Three rows that are nobody's neighbours, of which nothing is known but `columns`."""
    return Pool.of(np.array([10, 20, 30]), PoolScope(rows=100, mean_chars=150), **columns)


@effort(12, 1000)
@given(pools(), WEIGHTS, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_given_changes_nothing(pool: Pool, weights: Weights, random: Any) -> None:
    """The same rows in any order are ranked alike, with the same scores to the last bit."""
    shuffled = list(range(pool.size))
    random.shuffle(shuffled)
    other = select_rows(pool, np.array(shuffled))

    one, two = rank(pool, ANY_HINTS, weights), rank(other, ANY_HINTS, weights)
    assert pool.seq[one.order].tolist() == other.seq[two.order].tolist()
    assert one.scores.tolist() == two.scores.tolist()


@effort(12, 500)
@given(pools(), st.randoms(use_true_random=False))
def test_the_order_of_the_clauses_changes_nothing(pool: Pool, random: Any) -> None:
    """What stands first in a query is not worth more."""
    shuffled = list(range(len(pool.counts)))
    random.shuffle(shuffled)
    assert pool.related is not None
    order = np.array(shuffled, int)
    other = replace(pool, counts=pool.counts[order], related=pool.related[order])

    one, two = rank(pool, ANY_HINTS, HYBRID), rank(other, ANY_HINTS, HYBRID)
    assert sorted(np.round(one.scores, 9)) == sorted(np.round(two.scores, 9))


@effort(12, 1000)
@given(pools(), WEIGHTS, st.floats(-1, 1))
def test_an_arm_that_says_the_same_of_all_changes_nothing(pool: Pool, weights: Weights, cosine: float) -> None:
    """Cosines that are all equal rank as if there were none."""
    without = replace(pool, dense=np.full(pool.size, np.nan))
    constant = replace(pool, dense=np.full(pool.size, cosine))

    assert rank(without, ANY_HINTS, weights).order.tolist() == rank(constant, ANY_HINTS, weights).order.tolist()


@effort(12, 2000)
@given(pools(wild=True), WEIGHTS)
def test_scores_are_finite_for_any_numbers(pool: Pool, weights: Weights) -> None:
    """Whatever a column holds, there is one finite score for each row, falling along the order."""
    ranked = rank(pool, ANY_HINTS, weights)

    assert np.isfinite(ranked.scores).all()
    assert (np.diff(ranked.scores) <= 0).all()
    assert sorted(ranked.order.tolist()) == list(range(pool.size))


@pytest.mark.parametrize("word_in_long", [False, True])
def test_length_lifts_no_neighbour_over_a_match(word_in_long: bool) -> None:
    """A long row without the word stands below a short one that has it, with the parts that say so; with the word it
    passes."""
    columns = {"session": np.zeros(3, np.int64), "place": np.arange(3), "chars": np.array([36.0, 900.0, 7.0])}
    counts = np.array([[1.0, float(word_in_long), 0.0]])
    pool = Pool.of(np.array([10, 20, 30]), PoolScope(rows=3, mean_chars=314), counts=counts, **columns)

    ranked = rank(pool, QueryHints(now=NOW), LEXICAL)
    assert ranked.order.tolist() == ([1, 0, 2] if word_in_long else [0, 1, 2])
    assert ranked.explain(1).score == pytest.approx(ranked.scores[ranked.order == 1][0])


@effort(12, 1000)
@given(pools(), WEIGHTS, st.lists(st.floats(-1, 1), min_size=3, max_size=3))
def test_the_parts_of_an_explanation_add_up(pool: Pool, weights: Weights, late: list[float]) -> None:
    """Each row's parts sum to its score, with and without late interaction."""
    first = rank(pool, ANY_HINTS, weights)
    top = first.order[:3]
    for ranked in (first, add_late(first, top, np.array(late[: len(top)]))):
        for row, score in zip(ranked.order, ranked.scores, strict=True):
            explained = ranked.explain(int(row))
            assert explained.score == pytest.approx(score, abs=1e-9)
            assert sum(explained.parts.values()) == pytest.approx(score, abs=1e-9)


@effort(12, 1000)
@given(pools(), st.lists(st.floats(-1, 1) | st.just(float("nan")), min_size=4, max_size=4))
def test_late_interaction_keeps_the_rest_behind(pool: Pool, late: list[float]) -> None:
    """The rows that were looked at stay in front of all others."""
    first = rank(pool, ANY_HINTS, HYBRID)
    top = first.order[:4]

    again = add_late(first, top, np.array(late[: len(top)]))
    assert set(again.order[: len(top)]) == set(top)


@effort(12, 500)
@given(pools(), st.floats(0.01, 1))
def test_recency_and_use_never_outweigh_relevance(pool: Pool, share: float) -> None:
    """They add at most their share of what the row has without them."""
    plain = rank(pool, ANY_HINTS, replace(HYBRID, recency=0.0, use=0.0))
    base = dict(zip(plain.order.tolist(), plain.scores, strict=True))

    boosted = rank(pool, ANY_HINTS, replace(HYBRID, recency=share, use=share))
    for row, score in zip(boosted.order.tolist(), boosted.scores, strict=True):
        assert -1e-9 <= score - base[row] <= 2 * share * max(base[row], 0.0) + 1e-9


@effort(12, 500)
@given(pool=pools(wild=True), weights=WEIGHTS)
def test_evidence_is_a_share_of_one(pool: Pool, weights: Weights) -> None:
    """Whatever the numbers; in the order of the ranking."""
    found = rank(pool, ANY_HINTS, weights).evidence()

    assert len(found) == pool.size
    assert ((found >= 0) & (found <= 1)).all()


def test_evidence_of_all_the_words_is_more_than_of_some() -> None:
    """And of a row whose vector stands out more than of one that only has the words."""
    nan = float("nan")
    words = rank(small(counts=np.array([[1.0, 0, 1], [1, 0, 0]])), QueryHints(), LEXICAL)
    both = rank(small(counts=np.array([[1.0, 1, 0]]), dense=np.array([0.9, 0.1, nan])), QueryHints(), HYBRID)

    assert [dict(zip(one.order.tolist(), one.evidence(), strict=True)) for one in (words, both)] == [
        {0: pytest.approx(1.0, abs=0.1), 1: 0.0, 2: pytest.approx(0.5, abs=0.1)},
        {0: pytest.approx(0.5, abs=0.2), 1: pytest.approx(0.5, abs=0.1), 2: 0.0},
    ]
    first, second = (dict(zip(both.order.tolist(), both.evidence(), strict=True))[row] for row in (0, 1))
    assert first > second


def test_equal_rows_stand_newest_first() -> None:
    """A tie goes to the row with the larger number."""
    assert rank(small(), QueryHints(), HYBRID).order.tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("hints", "columns"),
    [
        (QueryHints(speakers=(4,)), {"speaker": np.array([4, 5, -1])}),
        (QueryHints(role=ASSISTANT), {"role": np.array([ASSISTANT, USER, USER])}),
        (QueryHints(asked="time"), {"asked": np.array([1, 0, 0])}),
        (QueryHints(asked="name"), {"asked": np.array([4, 1, 0])}),
        (QueryHints(spans=((NOW, NOW + DAY),)), {"occurred_at": np.array([NOW, NOW - DAY, NOW + 30 * DAY])}),
        (QueryHints(spans=((NOW, NOW + DAY),)), {"occurred_at": np.array([NOW + 3 * DAY, NOW - DAY, NOW + 6 * DAY])}),
        (QueryHints(now=NOW), {"occurred_at": np.array([NOW, NOW - 99 * DAY, np.nan]), "chars": np.full(3, 900.0)}),
        (QueryHints(), {"uses": np.array([9, 0, 0]), "chars": np.full(3, 900.0)}),
        (QueryHints(), {"chars": np.array([400, 150, 20])}),
        (QueryHints(), {"asks": np.array([False, True, True])}),
        (QueryHints(), {"answers": np.array([True, False, False])}),
        (QueryHints(), {"dense": np.array([0.9, 0.1, 0.2])}),
        (QueryHints(), {"dense": np.array([0.9, np.nan, 0.2])}),
        (QueryHints(), {"counts": np.array([[1.0, 0.35, 0]])}),
        (QueryHints(), {"counts": np.array([[1.0, 0, 0], [1, 2, 0]])}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_signal_lifts_its_row(hints: QueryHints, columns: dict[str, Any]) -> None:
    """With all else equal the row that a signal speaks for is first, though it is the oldest."""
    assert rank(small(**columns), hints, HYBRID).order[0] == 0


def test_a_rows_neighbours_share_its_words() -> None:
    """A row beside a match is found before one far from it, the one after it before the one before it."""
    pool = Pool.of(np.arange(6), PoolScope(rows=100), place=np.arange(6), counts=np.array([[0, 0, 1.0, 0, 0, 0]]))

    ranked = rank(pool, QueryHints(), LEXICAL)
    assert ranked.order[:2].tolist() == [2, 3]
    assert ranked.order[2:4].tolist() == [4, 1]
    assert ranked.explain(3).parts["neighbour_words"] > 0
    assert ranked.relevant.tolist() == [True, False, False, False, False, False]


def test_a_related_word_lifts_its_row_but_never_over_the_word_itself() -> None:
    """A row with a related word is before one without, and behind one with the query's own word; it is no match of its
    own, and not a neighbour's word."""
    words = {"counts": np.array([[1.0, 0, 0, 0]]), "related": np.array([[0, 9.0, 0, 0]])}
    pool = Pool.of(np.arange(4), PoolScope(rows=100), session=np.arange(4), place=np.zeros(4, int), **words)

    ranked = rank(pool, QueryHints(), LEXICAL)
    assert ranked.order[:2].tolist() == [0, 1]
    assert ranked.relevant.tolist() == [True, False, False, False]
    assert ranked.evidence()[1] == 0
    assert ranked.explain(1).parts["related_words"] > 0
    assert "related_words" not in ranked.explain(0).parts


def test_the_first_person_lifts_its_row_but_no_neighbour_over_a_match() -> None:
    """Of two matches, the one that says "I" is first; a row without a match stays behind them."""
    counts = np.array([[1.0, 1.0, 0]])

    pool = small(counts=counts, place=np.arange(3), first_person=np.array([True, False, True]))
    assert rank(pool, QueryHints(), replace(LEXICAL, first_person=9.0)).order.tolist() == [0, 1, 2]


def test_a_session_that_holds_the_words_lifts_its_rows() -> None:
    """A row far from the match in its session is before a row of another session, though that is newer."""
    pool = small(counts=np.array([[0, 0, 1.0]]), session=np.array([0, 1, 0]))

    assert rank(pool, QueryHints(), LEXICAL).order.tolist() == [2, 0, 1]


def test_sessions_do_not_share() -> None:
    """The last row of a session gains nothing from the first of the next."""
    pool = Pool.of(
        np.arange(4),
        PoolScope(rows=100, sessions=2),
        place=np.arange(4),
        session=np.array([0, 0, 1, 1]),
        counts=np.array([[0, 1.0, 0, 0]]),
    )

    assert rank(pool, QueryHints(), LEXICAL).order.tolist() == [1, 0, 3, 2]


def test_a_row_of_no_session_is_one_of_its_own() -> None:
    """Negative numbers of sessions, which no scope counts: each has one row."""
    counts = np.array([[1.0, 1, 1]])
    outside = small(counts=counts, session=np.array([-2, -1, 0]))
    inside = small(counts=counts, session=np.array([1, 2, 0]))
    ranked = [
        rank(replace(pool, scope=PoolScope(rows=100, sessions=3, session_rows=np.array(rows))), QueryHints(), LEXICAL)
        for pool, rows in ((outside, [9, 30, 50]), (inside, [9, 1, 1]))
    ]

    assert ranked[0].order.tolist() == ranked[1].order.tolist()
    assert ranked[0].scores == pytest.approx(ranked[1].scores)


def test_one_word_does_not_outweigh_all_else_in_a_large_scope() -> None:
    """A word's worth stays bounded when nearly every row of a huge scope scores 0."""
    counts = np.array([[1.0, 0, 0], [0, 0, 0], [0, 0, 0]])
    few, many = (
        rank(replace(small(counts=counts), scope=PoolScope(rows=rows)), QueryHints(), LEXICAL).scores[0]
        for rows in (300, 3_000_000)
    )

    assert many < 2 * few


def test_an_empty_pool_is_no_error() -> None:
    """Nothing found is an empty order."""
    assert rank(Pool.of(np.zeros(0, int), PoolScope(rows=0)), ANY_HINTS, HYBRID).order.tolist() == []


def test_columns_of_other_lengths_and_names_are_refused() -> None:
    """One too short would otherwise be stretched, one that nobody knows passed over."""
    with pytest.raises(ValueError, match="different lengths"):
        Pool.of(np.arange(3), PoolScope(rows=3), chars=np.arange(2))
    with pytest.raises(ValueError, match="no columns of a pool: colour"):
        Pool.of(np.arange(3), PoolScope(rows=3), colour=np.arange(3))
