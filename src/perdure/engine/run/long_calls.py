"""Calls that are too long to be run, or shown to the model again: what is kept of them, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.core.messages import Part, ToolCall
from perdure.core.ports import TokenCounter

CALLS_SHARE = 0.25
"""Of the window, what the arguments of one answer's calls may take together: they stay in view until they have their
results, and can't be shown in part."""

NAME_CHARS_MAX = 200
"""More is the name of no tool."""

KEPT_CHARS = 200

TOKENS_PER_CHAR_MAX = 4
"""What is so short that it fits at this rate is not counted, but taken as a token a character."""


def shortened(
    parts: Sequence[Part], *, counter: TokenCounter, most_tokens: int
) -> tuple[tuple[Part, ...], Mapping[str, str]]:
    """The parts of an answer with the beginnings of calls that are too long; and call id -> why it is not run, in words
    for the model."""
    kept: list[Part] = []
    refused: dict[str, str] = {}
    left = most_tokens
    for part in parts:
        if not isinstance(part, ToolCall):
            kept.append(part)
            continue
        if len(part.name) > NAME_CHARS_MAX:
            part = replace(part, name=f"{part.name[:NAME_CHARS_MAX]}…")
        size = len(part.arguments)
        tokens = size if size * TOKENS_PER_CHAR_MAX <= left else counter.count(part.arguments)
        if tokens <= left:
            left -= tokens
        else:
            limit = size * left // tokens
            refused[part.call_id] = (
                f"arguments too long: {size:,} characters, limit {limit:,}; the tool was not run. Give less at once, or"
                " do it in several calls"
            )
            part = replace(part, arguments=f"{part.arguments[:KEPT_CHARS]}… [cut: {size:,} characters]")
        kept.append(part)
    return tuple(kept), refused
