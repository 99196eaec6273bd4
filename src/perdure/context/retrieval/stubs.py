"""Stubs: a large text of which only the beginning and end are shown, with a handle that opens the rest.

A view has stubs where it would not fit else; a tool's result longer than the tool's limit is one from the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeGuard

from perdure.context.window.tokens import MESSAGE_OVERHEAD_TOKENS
from perdure.core.messages import Message, Part, Reasoning, Text, ToolResult, parts_to_json, text_of
from perdure.core.nodes import message_handle
from perdure.core.ports import TokenCounter

__all__ = ["is_cut", "row_tokens", "shown", "shown_result", "stub_chars"]

NO_LIMIT = 10**12


def shown(message: Message, stubs: Mapping[int, int]) -> Message:
    """The message as the model sees it: whole, or with so many characters of its texts as `stubs` (row number ->
    characters) says, two thirds of them from the beginning; reasoning gets what the texts leave, and one that is signed
    stays as it is. A pure function: the same stub gives the same bytes."""
    chars = stubs.get(message.seq)
    if chars is None and not is_cut(message):
        return message
    left = NO_LIMIT if chars is None else chars
    thought_left = max(0, left - sum(len(part.text) for part in message.parts if isinstance(part, Text)))
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolResult) and part.shown_chars is not None:
            text = _cut(part.text, min(left, part.shown_chars), message.seq)
            left = max(0, left - part.shown_chars)
            parts.append(replace(part, text=text, shown_chars=None))
        elif isinstance(part, (Text, ToolResult)):
            text = _cut(part.text, left, message.seq)
            left = max(0, left - len(part.text))
            parts.append(replace(part, text=text))
        elif _is_thought(part):
            text = _cut(part.text, thought_left)
            thought_left = max(0, thought_left - len(part.text))
            parts.append(replace(part, text=text))
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts))


def is_cut(message: Message) -> bool:
    """Whether a result in it is longer than its tool's limit, so that no view shows it whole."""
    return message.role == "tool" and any(result.shown_chars is not None for result in message.results)


def shown_result(text: str, chars: int) -> str:
    """What a view shows of a result that is longer than its tool's limit, before it has its row: at least as long."""
    return _cut(text, chars, 10**12)


def stub_chars(message: Message) -> int:
    """How many characters there are of which a stub could show fewer."""
    return sum(
        min(len(part.text), (part.shown_chars if isinstance(part, ToolResult) else None) or NO_LIMIT)
        for part in message.parts
        if isinstance(part, (Text, ToolResult)) or _is_thought(part)
    )


def row_tokens(message: Message, stubs: Mapping[int, int], counter: TokenCounter) -> int:
    """The upper estimate of a row as it is shown; that of a whole one was made when it was written."""
    if message.seq not in stubs and not message.revision:
        return message.tokens
    parts = shown(message, stubs).parts
    return counter.count(parts_to_json(parts) if message.calls else text_of(parts)) + MESSAGE_OVERHEAD_TOKENS


def _is_thought(part: Part) -> TypeGuard[Reasoning]:
    """Whether it may be cut: a provider takes what it has signed back only as it was."""
    return isinstance(part, Reasoning) and part.signature is None


def _cut(text: str, chars: int, seq: int | None = None) -> str:
    """With the handle of the row; reasoning has none, for it is not what is opened or searched later."""
    if len(text) <= chars:
        return text
    head, tail = chars - chars // 3, chars // 3
    hidden = len(text) - chars
    handle = "" if seq is None else f': context_expand("{message_handle(seq)}")'
    note = f"[… {hidden:,} of {len(text):,} characters are not shown{handle} …]"
    return f"{text[:head]}\n{note}\n{text[len(text) - tail :]}" if tail else f"{text[:head]}\n{note}"
