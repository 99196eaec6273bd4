"""What stands in place of large texts: their compressed form, or only their beginning and end, with a handle.

A view has stubs where it would not fit otherwise. A result that is longer than its tool's limit is always a stub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeGuard

from perdure.context.sections.envelopes import input_tokens
from perdure.context.sections.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD_TOKENS
from perdure.core.messages import Message, Part, Reasoning, Text, ToolResult, images_of, parts_to_json, text_of
from perdure.core.nodes import UNNUMBERED_HANDLE, message_handle
from perdure.core.ports import TokenCounter
from perdure.core.specs import ToolOutcome

NO_LIMIT = 10**12


def apply_stubs(message: Message, stubs: Mapping[int, int]) -> Message:
    """Return the message as the model sees it: whole, or cut to as many characters as `stubs` allows its row.

    Two thirds of them are from the beginning. Reasoning gets what the texts leave; signed reasoning stays whole. The
    same stub always gives the same bytes.

    Args:
        stubs: row number -> characters.
    """
    chars = stubs.get(message.seq)
    if chars is None and not any(isinstance(part, ToolResult) and _is_changed(part) for part in message.parts):
        return message
    chars_left = NO_LIMIT if chars is None else chars
    reasoning_left = max(0, chars_left - sum(len(part.text) for part in message.parts if isinstance(part, Text)))
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolResult) and _is_changed(part):
            whole = _numbered(part, message.seq)
            limit = min(len(whole), part.shown_chars or NO_LIMIT)
            text = _cut(whole, min(chars_left, limit), message.seq)
            chars_left = max(0, chars_left - limit)
            parts.append(replace(part, text=text, shown_chars=None, shown_text=None, whole_tokens=None))
        elif isinstance(part, (Text, ToolResult)):
            text = _cut(part.text, chars_left, message.seq)
            chars_left = max(0, chars_left - len(part.text))
            parts.append(replace(part, text=text))
        elif _is_unsigned_reasoning(part):
            text = _cut(part.text, reasoning_left)
            reasoning_left = max(0, reasoning_left - len(part.text))
            parts.append(replace(part, text=text))
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts))


def cut_result(text: str, chars: int | None, shown_text: str | None) -> str:
    """Return a tool result as the model will see it, with the longest possible handle, as its message has no number
    yet. `chars`: most characters shown; None: all. `shown_text`: its compressed form, if there is one."""
    return _cut(text if shown_text is None else shown_text, NO_LIMIT if chars is None else chars, 10**12)


def _is_changed(result: ToolResult) -> bool:
    """Return whether the model sees something else than the result's text."""
    return result.shown_chars is not None or result.shown_text is not None


def _numbered(result: ToolResult, seq: int) -> str:
    """Return what the model sees of a result, with the handle of its message."""
    if result.shown_text is None:
        return result.text
    return result.shown_text.replace(f'"{UNNUMBERED_HANDLE}"', f'"{message_handle(seq)}"')


def stub_chars(message: Message) -> int:
    """Return how many characters of the message can be hidden by cutting it: texts, results, unsigned reasoning."""
    return sum(
        min(len(_numbered(part, message.seq)), part.shown_chars or NO_LIMIT)
        if isinstance(part, ToolResult)
        else len(part.text)
        for part in message.parts
        if isinstance(part, (Text, ToolResult)) or _is_unsigned_reasoning(part)
    )


def row_tokens(message: Message, stubs: Mapping[int, int], counter: TokenCounter) -> int:
    """Return at most how many tokens a message has in the view; a message without a stub has its count stored."""
    if message.seq not in stubs and not message.revision:
        return message.tokens
    parts = apply_stubs(message, stubs).parts
    images = len(images_of(parts))
    if message.kind == "message" and message.role in ("user", "system"):
        return input_tokens(message.role, text_of(parts), counter, images=images)
    is_whole = message.calls or any(isinstance(part, Reasoning) for part in parts)  # `text_of` leaves those out
    text_tokens = counter.count(parts_to_json(parts) if is_whole else text_of(parts))
    return text_tokens + images * IMAGE_TOKENS + MESSAGE_OVERHEAD_TOKENS


def _is_unsigned_reasoning(part: Part) -> TypeGuard[Reasoning]:
    """Return whether the part is reasoning that may be cut: providers check signed reasoning."""
    return isinstance(part, Reasoning) and part.signature is None


def _cut(text: str, chars: int, seq: int | None = None) -> str:
    """Cut the middle of a text, with a note and the row's handle; reasoning has no handle, as no tool opens it."""
    if len(text) <= chars:
        return text
    handle = "" if seq is None else f': context_expand("{message_handle(seq)}")'
    return _ends(text, chars, f"[… {len(text) - chars:,} of {len(text):,} characters are not shown{handle} …]")


def cut_stored(text: str, chars: int) -> str:
    """Cut the middle of a tool result that is longer than what is kept of one, with a note."""
    return _ends(text, chars, f"[NOTE: the result was cut here: it has {len(text):,} characters, {chars:,} were kept]")


def cut_outcome(outcome: ToolOutcome, text: str, chars: int) -> ToolOutcome:
    """Return the outcome with this text, cut as it is stored; its compressed form, made of the whole, says so."""
    shown = outcome.shown_text
    if shown is not None and len(text) > chars:
        shown += f"\n[NOTE: {chars:,} characters of its beginning and end are kept: lines and rows count anew there]"
    return replace(outcome, text=cut_stored(text, chars), shown_text=shown)


def _ends(text: str, chars: int, note: str) -> str:
    """Return a text, of a longer one so many characters, a third of them from its end, with a note between them."""
    if len(text) <= chars:
        return text
    head, tail = chars - chars // 3, chars // 3
    return f"{text[:head]}\n{note}\n{text[len(text) - tail :]}" if tail else f"{text[:head]}\n{note}"
