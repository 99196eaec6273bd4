"""Messages, and the source of a summary of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perdure.context.window.audit import SourceText
from perdure.context.window.extract import extract
from perdure.context.window.summary import transcript
from perdure.core.messages import Message, Part, Role, Text
from tests.support.strategies import build_log


class ByteCounter:
    """Two tokens for five bytes: a counter whose numbers stay as they are."""

    def count(self, text: str) -> int:
        return -(-len(text.encode("utf-8", "surrogatepass")) * 2 // 5)

    def at_least(self, text: str) -> int:
        return len(text) // 8


COUNTER = ByteCounter()


def build_messages(*turns: tuple[Role, Part | str]) -> list[Message]:
    """A conversation of (role, text or part)."""
    messages = build_log([Text(part) if isinstance(part, str) else part for _, part in turns])
    return [replace(message, role=role) for message, (role, _) in zip(messages, turns, strict=True)]


def source_of(messages: Sequence[Message]) -> SourceText:
    """What a summary of all these messages is checked against."""
    text = transcript(messages, max_tokens=10**6, counter=COUNTER)
    first, last = (messages[0].seq, messages[-1].seq) if messages else (0, 0)
    return SourceText(text, text, extract(messages), (first, last))
