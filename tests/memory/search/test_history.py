"""What a search knows of every message of an agent."""

from __future__ import annotations

from perdure.core.tx import MessageFilter, Turn
from perdure.memory.search.history import History


def test_rows_that_a_reset_takes_away_are_let_through_by_no_filter() -> None:
    """Also while the store still holds what was derived of them: those of the conversation, up to the reset."""
    turns = [Turn(seq, seq % 2, "user", None, float(seq), 10, False) for seq in range(6)]
    history = History().extended(turns, upto=6)
    whole = history.mask(MessageFilter(), out_of_view={0: 2})
    filtered = history.mask(MessageFilter(before_seq=5), out_of_view={0: 2, 1: 9})

    assert history.mask(MessageFilter()) is None
    assert whole is not None
    assert whole.tolist() == [False, True, False, True, True, True]
    assert filtered is not None
    assert filtered.tolist() == [False, False, False, False, True, False]
