"""Conversations, blocks and passages as Markdown for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.core.blocks import Block
from perdure.core.messages import Image, Message, Text, ToolCall, ToolResult
from perdure.core.passages import Passage

_SPEAKERS = {"user": "User", "assistant": "Agent", "system": "System", "tool": "Tool"}
RESULT_CHARS = 2_000
"""Of a longer result of a tool only the beginning is shown; `messages.jsonl` has all of it."""


def memory_text(name: str, blocks: Sequence[Block]) -> str:
    """Return the blocks of an agent as Markdown."""
    parts = [f"# Memory of {name}"]
    for block in blocks:
        about = f"*{block.description}*\n\n" if block.description else ""
        parts.append(f"## {block.label}\n\n{about}{block.value or '(empty)'}")
    return _file(parts)


def conversation_text(title: str, messages: Iterable[Message]) -> str:
    """Return a conversation as Markdown."""
    parts = [f"# {title}"]
    for message in messages:
        who = message.name or _SPEAKERS.get(message.role, message.role)
        said = "\n\n".join(filter(None, map(_part_text, message.parts)))
        parts.append(f"**{who}** · {message.occurred_at:%Y-%m-%d %H:%M:%S} UTC\n\n{said}")
    return _file(parts)


def archival_text(name: str, passages: Iterable[Passage]) -> str:
    """Return the passages of an agent as Markdown."""
    parts = [f"# Archival memory of {name}"]
    for passage in passages:
        tags = "".join(f" #{tag}" for tag in passage.tags)
        parts.append(f"**{passage.occurred_at:%Y-%m-%d %H:%M:%S} UTC**{tags}\n\n{passage.text}")
    return _file(parts)


def _part_text(part: object) -> str:
    """Return a part of a message as Markdown; reasoning is left out."""
    match part:
        case Text():
            return part.text
        case ToolCall():
            return f"> calls `{part.name}` with `{part.arguments}`"
        case ToolResult():
            text = part.text if len(part.text) <= RESULT_CHARS else f"{part.text[:RESULT_CHARS]}…"
            return "\n".join(f"> {line}" for line in text.splitlines())
        case Image():
            return "[image]"
    return ""


def _file(parts: Sequence[str]) -> str:
    """Join the parts to one text that ends with a line end, with lone surrogates replaced."""
    return "\n\n".join(parts).encode("utf-8", "replace").decode() + "\n"
