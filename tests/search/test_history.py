"""What a search knows of every message of an agent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.messages import MessageFilter, TurnPart
from perdure.search.ranking.history import SESSION_GAP_S, LogColumns
from perdure.search.ranking.pool import ANSWERS, SESSION_SPAN, TOOL, USER
from perdure.storage.tables.turns import pack_turns

Row = tuple[int, int, str, str | None, float, bool]
"""Number, conversation, role, name, time, and whether it asks something."""


def packed(rows: Sequence[Row]) -> TurnPart:
    """The rows as the store gives them."""
    return pack_turns(
        (seq, line, role, name, datetime.fromtimestamp(at, UTC).isoformat(), 50, asks)
        for seq, line, role, name, at, asks in rows
    )


def users(
    *lines: int, first: int = 0, at: float | None = None, name: str | None = None, asks: bool = False
) -> TurnPart:
    """Messages of a person in these conversations, with numbers from `first` on, which are their times, too."""
    numbers = enumerate(lines, start=first)
    return packed([(seq, line, "user", name, seq if at is None else at, asks) for seq, line in numbers])


def test_rows_that_a_reset_takes_away_are_let_through_by_no_filter() -> None:
    """Also while the store still holds what was derived of them: those of the conversation, up to the reset."""
    history = LogColumns().extend([users(0, 1, 0, 1, 0, 1)], upto=6)
    whole = history.mask(MessageFilter(), out_of_view={0: 2})
    filtered = history.mask(MessageFilter(before_seq=5), out_of_view={0: 2, 1: 9})

    assert history.mask(MessageFilter()) is None
    assert whole is not None
    assert whole.tolist() == [False, True, False, True, True, True]
    assert filtered is not None
    assert filtered.tolist() == [False, False, False, False, True, False]


def test_the_rows_near_another_stand_in_its_session() -> None:
    """Two before and two after, also of conversations that took turns, and of rows that were read later."""
    history = LogColumns().extend([users(0, 1, 0)], upto=3)
    history = history.extend([users(1, 0, first=3), users(1, 0, 1, first=5)], upto=8)
    history = history.extend([users(0, 0, first=8, at=9e9)], upto=10)

    assert history.near[4].tolist() == [0, 2, 6, -1]
    assert history.near[1].tolist() == [-1, -1, 3, 5]
    assert history.near[9].tolist() == [-1, 8, -1, -1]
    assert history.with_neighbours(np.array([4, 9]), first=1).tolist() == [0, 2, 4, 6, 9]
    assert history.with_neighbours(np.array([9]), first=1).tolist() == [8, 9]


def test_a_tools_result_stands_in_no_session() -> None:
    """It has a session of its own, so nobody is its neighbour, no time and nobody who spoke."""
    history = LogColumns().extend([users(0, 0, 0, name="Ada", asks=True)], upto=3)

    spot, occurred_at, traits = history.columns(np.array([-1, 1, -1, 2]))

    assert spot[[1, 3]].tolist() == history.spot[[1, 2]].tolist()
    assert spot[0] < 0
    assert spot[0] // SESSION_SPAN != spot[2] // SESSION_SPAN
    assert occurred_at.tolist() == [-np.inf, 1, -np.inf, 2]
    assert traits.T.tolist() == [[0, 0, -1, TOOL], [1, 1, 0, USER], [0, 0, -1, TOOL], [1, 1, 0, USER]]
    assert history.columns(np.array([2, 1]))[0].tolist() == history.spot[[2, 1]].tolist()
    assert LogColumns().columns(np.array([-1]))[2].T.tolist() == [[0, 0, -1, TOOL]]


def test_rows_are_found_by_their_numbers() -> None:
    """Whether or not numbers between them are missing; -1 for those that are not there."""
    for numbers in ([5, 6, 7], [5, 7, 9]):
        history = LogColumns().extend([users(0, first=seq) for seq in numbers], upto=10)

        assert history.indexes(np.array([numbers[2], numbers[0]])).tolist() == [2, 0]
        assert history.indexes(np.array([4, numbers[1], 10])).tolist() == [-1, 1, -1]
        assert history.indexes(np.array([], np.int64)).tolist() == []


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 100, -SESSION_GAP_S, SESSION_GAP_S + 1]), st.booleans())
)


@given(ROWS, st.lists(st.integers(1, 5)))
def test_a_history_is_the_same_in_whatever_pieces_it_is_read(
    steps: list[tuple[int, float, bool]], cuts: list[int]
) -> None:
    """Each row stands behind the one before it in its conversation, or begins a session after a long silence."""
    rows: list[Row] = []
    at = 1e9
    for seq, (line, pause, asks) in enumerate(steps):
        at += pause
        rows.append((seq, line, "user", ["Ada", "Bob", None][seq % 3], at, asks))
    whole = LogColumns().extend([packed(rows)], upto=len(rows))
    pieces = LogColumns()
    for cut in [*cuts, len(rows)]:
        part = rows[pieces.rows : pieces.rows + cut]
        pieces = pieces.extend([packed(part[:1]), packed(part[1:])], upto=pieces.rows + len(part))

    assert whole.names == pieces.names
    for column in ("seq", "conversation", "spot", "near", "occurred_at", "traits", "sizes"):
        assert getattr(whole, column).tolist() == getattr(pieces, column).tolist(), column
    newest: dict[int, int] = {}
    sessions: list[int] = []
    for index, (_, line, _, _, at, _) in enumerate(rows):
        before = newest.get(line)
        if before is not None and abs(at - rows[before][4]) > SESSION_GAP_S:
            before = None
        sessions += [0] if before is None else []
        session = len(sessions) - 1 if before is None else int(whole.spot[before]) // SESSION_SPAN
        assert divmod(int(whole.spot[index]), SESSION_SPAN) == (session, sessions[session])
        assert whole.near[index, 1] == (-1 if before is None else before)
        assert whole.traits[ANSWERS, index] == (before is not None and rows[before][5])
        sessions[session] += 1
        newest[line] = index
    assert whole.sizes.tolist() == sessions
