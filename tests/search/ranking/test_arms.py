"""Rows that stand next to each other share their scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.search.ranking.arms import Neighbours
from perdure.search.ranking.pool import SESSION_SPAN
from tests.support.strategies import effort

BEFORE, AFTER = (0.4, 0.2, 0.1), (0.3, 0.15)


@effort(12, 1000)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=1, max_size=14, unique=True).map(sorted))
def test_a_row_gets_its_share_of_each_row_of_its_run(rows: list[tuple[int, int]]) -> None:
    """As far as the rows between are there, and in its own session only; of every clause alike."""
    session, place = np.array(rows).T
    values = np.random.default_rng(len(rows)).random((2, len(rows)))
    expected = values.copy()
    for at, (own, here) in enumerate(rows):
        for shares, sign in ((BEFORE, -1), (AFTER, 1)):
            for step, share in enumerate(shares, start=1):
                if (own, here + sign * step) not in rows:
                    break
                expected[:, at] += share * values[:, at + sign * step]

    near = Neighbours(session * SESSION_SPAN + place)
    assert near.in_order
    assert near.share(values, BEFORE, AFTER) == pytest.approx(expected)
    assert near.share(values[1], BEFORE, AFTER) == pytest.approx(expected[1])


@pytest.mark.parametrize(
    ("session", "place"),
    [([0, 0, 1], [2, 1, 5]), ([1, 0, 0], [1, 2, 3]), ([0, 1, 0], [1, 2, 3]), ([0, 0, 0], [1, 1, 2])],
)
def test_rows_out_of_order_are_told(session: list[int], place: list[int]) -> None:
    """They have to be sorted first: so are those of which two take one place, by something else."""
    assert not Neighbours(np.array(session) * SESSION_SPAN + np.array(place)).in_order
