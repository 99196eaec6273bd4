"""The positions of cache marks in a request.

A provider that takes marks takes four: after the tools, after the system text (both are settings), after the last
message of the previous turn, and after the last message of the log. The volatile tail stands behind them all.

The mark at the previous turn's end is where the next request of another turn reads from; the one at the log's end lets
the next step of this turn read what the last one sent, tool results too, instead of paying for them again.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.messages import Message


def mark_positions(messages: Sequence[Message]) -> frozenset[int]:
    """The positions of the messages with a mark after them."""
    return frozenset(place for place in (turn_start(messages) - 1, len(messages) - 1) if place >= 0)


def turn_start(messages: Sequence[Message]) -> int:
    """The start of the newest turn: the last message of a user, with the engine's messages right before it."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "user" and messages[place].kind == "message":
            while place > 0 and messages[place - 1].role in ("user", "system"):
                place -= 1
            return place
    return 0
