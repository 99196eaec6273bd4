"""Messages of a request for every adapter: the positions of cache marks, and arguments that servers accept.

A provider that takes marks takes four: after the tools, after the system text (both are settings), after the last
message of the previous turn, and after the last message of the log. The volatile tail stands behind them all.

The mark at the previous turn's end is where the next request of another turn reads from; the one at the log's end lets
the next step of this turn read what the last one sent, tool results too, instead of paying for them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from perdure.core.incoming.json_limits import parse_json
from perdure.core.messages import Image, Message
from perdure.core.text.json_strings import compact_json, encodable
from perdure.core.tools.arguments import ARGUMENTS


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


def unseen_text(image: Image) -> str:
    """What a model that takes no pictures is told in the place of one."""
    return f"{image.text[:-1]}: you can't be shown it]"


def legal_arguments(text: str, *, wrapper: str) -> str:
    """A call's arguments unchanged if they are a JSON object, `{}` if empty, else as a string inside an object.

    Servers parse the arguments of earlier calls and refuse the whole request when they can't: one broken call would
    make an agent unusable for ever.

    Args:
        wrapper: the name of the string.
    """
    if not text.strip():
        return "{}"
    try:
        value = parse_json(text, ARGUMENTS, parse_constant=_refuse_constant)
        if isinstance(value, dict):
            if "\\u" in text:
                compact_json(value).encode()  # an escaped lone surrogate is JSON, but no text
            return encodable(text)
    except (ValueError, RecursionError):
        pass
    return compact_json({wrapper: encodable(text)})


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is Python's, not JSON's")
