"""Late interaction over a few rows."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.search.ranking.fuse import ROWS_AT_ONCE, late_scores, pack_signs
from perdure.search.ranking.pool import Column

EYE = np.eye(4, dtype=np.float32)


def test_a_row_with_the_querys_words_is_best() -> None:
    """Each word of the query finds its best word; a word that all rows have says nothing."""
    rows = [EYE[[3, 0]], EYE[[3, 1]], EYE[[3, 0, 1]], EYE[[3, 2]]]

    scores = late_scores(EYE[[0, 1, 3]], rows)
    assert np.argsort(-scores).tolist()[0] == 2
    assert scores[3] == scores.min()


def test_time_that_is_up_leaves_the_rest_unknown() -> None:
    """The first rows have their scores, those that were not reached have nan."""
    asked = iter([False, True])
    rows = [EYE[[number % 4]] for number in range(3 * ROWS_AT_ONCE)]

    scores = late_scores(EYE[[0]], rows, out_of_time=lambda: next(asked))
    assert np.isfinite(scores[:ROWS_AT_ONCE]).all()
    assert np.isnan(scores[ROWS_AT_ONCE:]).all()


def test_rows_without_words_stay_unknown() -> None:
    """So does everything when the query has none."""
    scores = late_scores(EYE[[0]], [EYE[[0]], EYE[:0], EYE[[1]]])

    assert np.isnan(scores).tolist() == [False, True, False]
    assert np.isnan(late_scores(EYE[:0], [EYE])).all()
    assert late_scores(EYE, []).tolist() == []


def test_signs_alone_give_the_same_order() -> None:
    """Packed words take an eighth of a byte per number and still tell rows apart as whole ones do."""
    random = np.random.default_rng(7)
    query = random.standard_normal((3, 64)).astype(np.float32)
    near = [query + noise * random.standard_normal((3, 64)).astype(np.float32) for noise in (0.3, 1.5, 9.0)]
    rows = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in near]

    signs = [pack_signs(one) for one in rows]
    assert signs[0].shape == (3, 8)
    assert (
        np.argsort(-late_scores(query, signs)).tolist() == np.argsort(-late_scores(query, rows)).tolist() == [0, 1, 2]
    )


@pytest.mark.parametrize("words", range(1, 18))
def test_scores_are_those_of_the_formula(words: int) -> None:
    """However many words the query has, and for signs as for whole numbers."""
    random = np.random.default_rng(words)
    query = random.standard_normal((words, 24)).astype(np.float32)
    rows = [random.standard_normal((count, 24)).astype(np.float32) for count in random.integers(1, 9, 19)]

    def formula(rows: list[Column]) -> Column:
        best: Column = np.array([[(row @ word).max() for row in rows] for word in query])
        best -= best.mean(1, keepdims=True)
        weight = np.maximum(best.max(1), 0)
        scores: Column = weight @ best / weight.sum()
        return scores

    assert late_scores(query, rows) == pytest.approx(formula(rows), abs=1e-5)
    signs = [np.where(row > 0, 1, -1) / np.sqrt(24) for row in rows]
    assert late_scores(query, [pack_signs(row) for row in rows]) == pytest.approx(formula(signs), abs=1e-5)
