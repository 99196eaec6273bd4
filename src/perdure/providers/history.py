"""Messages of a request for every adapter: the positions of cache marks, where sentences of the engine stand, and
arguments that servers accept.

A provider that takes marks takes four: after the tools, after the system text (both are settings), after the last
message of the previous turn, and after the last message of the log. The volatile tail stands behind them all.

The mark at the previous turn's end is where the next request of another turn reads from; the one at the log's end lets
the next step of this turn read what the last one sent, tool results too, instead of paying for them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from perdure.core.incoming.json_limits import parse_json
from perdure.core.messages import Image, Message, Text, unlogged_message
from perdure.core.text.json_strings import compact_json, encodable
from perdure.core.tools.arguments import ARGUMENTS, refuse_constant


def turn_start(messages: Sequence[Message]) -> int:
    """The index where the newest turn starts: at the last message of a user, or at the engine's right before it."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "user" and messages[place].kind == "message":
            while place > 0 and messages[place - 1].role in ("user", "system"):
                place -= 1
            return place
    return 0


def put_words_first(history: Sequence[Message], tail: str) -> Sequence[Message]:
    """Return the messages of a request in which the engine writes sentences (`in_words`), as sent: its texts are put
    before the person's words that they belong to, as models answer the last text; the tail joins the newest message."""
    messages, end = list(history), 0
    said = [message.role in ("user", "system") for message in messages]
    for is_said, group in groupby(said) if (True, True) in pairwise(said) else ():
        start, end = end, end + len(list(group))
        if is_said:
            messages[start:end] = sorted(messages[start:end], key=_is_of_person)
    if tail:
        place = next((place for place in range(len(messages) - 1, -1, -1) if _is_of_person(messages[place])), None)
        if place is None:
            messages.append(replace(unlogged_message("user", tail), kind="alert"))
        else:
            messages[place] = _with_words(messages[place], tail)
    return messages


def _is_of_person(message: Message) -> bool:
    return message.role == "user" and message.kind == "message"


def _with_words(message: Message, words: str) -> Message:
    """Return a person's message with a text of the engine before its own, as one text."""
    match message.parts:
        case (Text(text=text), *others):
            return replace(message, parts=(Text(f"{words}\n\n{text}"), *others))
    return replace(message, parts=(Text(words), *message.parts))


def unseen_text(image: Image) -> str:
    """Return the text that replaces a picture for a model that takes none."""
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
        value = parse_json(text, ARGUMENTS, parse_constant=refuse_constant)
        if isinstance(value, dict):
            if "\\u" in text:
                compact_json(value).encode()  # an escaped lone surrogate is JSON, but no text
            return encodable(text)
    except (ValueError, RecursionError):
        pass
    return compact_json({wrapper: encodable(text)})
