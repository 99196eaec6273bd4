"""Late interaction over a few rows."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.search.ranking.late import PRODUCTS_AT_ONCE, late_scores, pack_signs
from perdure.search.ranking.pool import Column

EYE = np.eye(4, dtype=np.float32)


def test_a_row_with_the_querys_words_is_best() -> None:
    """Each word of the query finds its best word; a word that all rows have says nothing."""
    rows = [EYE[[3, 0]], EYE[[3, 1]], EYE[[3, 0, 1]], EYE[[3, 2]]]

    scores = late_scores(EYE[[0, 1, 3]], [pack_signs(row) for row in rows])
    assert np.argsort(-scores).tolist()[0] == 2
    assert scores[3] == scores.min()


def test_rows_without_words_stay_unknown() -> None:
    """So does everything when the query has none, and a row whose bytes are no words."""
    scores = late_scores(EYE[[0]], [pack_signs(EYE[[0]]), b"", pack_signs(EYE[[1]]), None])

    assert np.isnan(scores).tolist() == [False, True, False, True]
    assert np.isnan(late_scores(EYE[:0], [pack_signs(EYE)])).all()
    assert late_scores(EYE, []).tolist() == []
    assert np.isnan(late_scores(np.eye(24)[:1], [bytes(3), bytes(4)])).tolist() == [False, True]


def test_signs_alone_give_the_order_of_whole_numbers() -> None:
    """Packed words take an eighth of a byte per number and still tell near rows from far ones."""
    random = np.random.default_rng(7)
    query = random.standard_normal((3, 64)).astype(np.float32)
    rows = [query + noise * random.standard_normal((3, 64)).astype(np.float32) for noise in (0.3, 1.5, 9.0)]

    signs = [pack_signs(one) for one in rows]
    assert len(signs[0]) == 3 * 8
    assert np.argsort(-late_scores(query, signs)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("words", range(1, 18))
def test_scores_are_those_of_the_formula(words: int) -> None:
    """However many words the query and the rows have."""
    random = np.random.default_rng(words)
    query = random.standard_normal((words, 24)).astype(np.float32)
    counts = [*random.integers(1, 9, 19), PRODUCTS_AT_ONCE // (24 * words) + 1]
    rows = [random.standard_normal((count, 24)).astype(np.float32) for count in counts]

    def formula(rows: list[Column]) -> Column:
        best: Column = np.array([[(row @ word).max() for row in rows] for word in query])
        best -= best.mean(1, keepdims=True)
        weight = np.maximum(best.max(1), 0)
        scores: Column = weight @ best / weight.sum()
        return scores

    signs = [np.where(row > 0, 1, -1) / np.sqrt(24) for row in rows]
    assert late_scores(query, [pack_signs(row) for row in rows]) == pytest.approx(formula(signs), abs=1e-5)
