"""What a search knows of every message of an agent."""

from __future__ import annotations

import numpy as np

from perdure.core.messages import MessageFilter, Turn
from perdure.search.history import History
from perdure.search.ranking.pool import SESSION_SPAN, TOOL, USER


def test_rows_that_a_reset_takes_away_are_let_through_by_no_filter() -> None:
    """Also while the store still holds what was derived of them: those of the conversation, up to the reset."""
    turns = [Turn(seq, seq % 2, "user", None, float(seq), 10, False) for seq in range(6)]
    history = History().extend(turns, upto=6)
    whole = history.mask(MessageFilter(), out_of_view={0: 2})
    filtered = history.mask(MessageFilter(before_seq=5), out_of_view={0: 2, 1: 9})

    assert history.mask(MessageFilter()) is None
    assert whole is not None
    assert whole.tolist() == [False, True, False, True, True, True]
    assert filtered is not None
    assert filtered.tolist() == [False, False, False, False, True, False]


def test_the_rows_near_another_stand_in_its_session() -> None:
    """Two before and two after, also of conversations that took turns, and of rows that were read later."""
    turns = [Turn(seq, seq % 2, "user", None, float(seq), 10, False) for seq in range(8)]
    late = [Turn(8, 0, "user", None, 9e9, 10, False), Turn(9, 0, "user", None, 9e9, 10, False)]
    history = History().extend(turns[:3], upto=3).extend(turns[3:], upto=8).extend(late, upto=10)

    assert history.near[4].tolist() == [0, 2, 6, -1]
    assert history.near[1].tolist() == [-1, -1, 3, 5]
    assert history.near[9].tolist() == [-1, 8, -1, -1]
    assert history.with_neighbours(np.array([4, 9]), first=1).tolist() == [0, 2, 4, 6, 9]
    assert history.with_neighbours(np.array([9]), first=1).tolist() == [8, 9]


def test_a_tools_result_stands_in_no_session() -> None:
    """It has a session of its own, so nobody is its neighbour, no time and nobody who spoke."""
    turns = [Turn(seq, 0, "user", "Ada", float(seq), 10, True) for seq in range(3)]
    history = History().extend(turns, upto=3)

    spot, occurred_at, traits = history.columns(np.array([-1, 1, -1, 2]))

    assert spot[[1, 3]].tolist() == history.spot[[1, 2]].tolist()
    assert spot[0] < 0
    assert spot[0] // SESSION_SPAN != spot[2] // SESSION_SPAN
    assert occurred_at.tolist() == [-np.inf, 1, -np.inf, 2]
    assert traits.T.tolist() == [[0, 0, -1, TOOL], [1, 1, 0, USER], [0, 0, -1, TOOL], [1, 1, 0, USER]]
    assert history.columns(np.array([2, 1]))[0].tolist() == history.spot[[2, 1]].tolist()
    assert History().columns(np.array([-1]))[2].T.tolist() == [[0, 0, -1, TOOL]]


def test_rows_are_found_by_their_numbers() -> None:
    """Whether or not numbers between them are missing; -1 for those that are not there."""
    for numbers in ([5, 6, 7], [5, 7, 9]):
        turns = [Turn(seq, 0, "user", None, float(seq), 10, False) for seq in numbers]
        history = History().extend(turns, upto=10)

        assert history.indexes(np.array([numbers[2], numbers[0]])).tolist() == [2, 0]
        assert history.indexes(np.array([4, numbers[1], 10])).tolist() == [-1, 1, -1]
        assert history.indexes(np.array([], np.int64)).tolist() == []
