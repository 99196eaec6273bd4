"""Waiting calls as text in which nothing can be hidden. Pure functions."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from perdure.core.answers import PendingCall
from perdure.core.messages import ToolCall

LINES_MAX = 200
CHARS_MAX = 20_000

_INVISIBLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories that are invisible or change the direction of text: with them a person could approve something
else than what runs."""


def plain_json(value: Any) -> str:
    """`value` as JSON on one line; invisible characters are written as \\uXXXX."""
    return plain_text(json.dumps(value, ensure_ascii=False))


def pending_text(call: PendingCall) -> str:
    """A waiting call on one line."""
    who = "the program that sent the message" if call.awaits_client else "you"
    return f"{plain_text(call.name)} {plain_json(call.arguments)} waits for {who} ({plain_text(call.call_id)})"


def argument_lines(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Arguments one a line, texts of several lines below their names; what is over the limits is only counted."""
    lines = list(_lines(arguments))
    count = chars = 0
    for line in lines[:LINES_MAX]:
        if count and chars + len(line) > CHARS_MAX:
            break
        yield line if len(line) <= CHARS_MAX else f"{line[:CHARS_MAX]}… {len(line) - CHARS_MAX:,} more characters"
        count, chars = count + 1, chars + len(line)
    if count < len(lines):
        yield f"… {len(lines) - count:,} more lines; `perdure approval list --json` has all of it"


def _lines(arguments: Mapping[str, Any]) -> Iterator[str]:
    """All lines of the arguments."""
    if not arguments:
        yield "(no arguments)"
    for name, value in arguments.items():
        if isinstance(value, str) and "\n" in value.rstrip("\n"):
            yield f"{plain_text(name)}:"
            yield from (f"  {plain_text(line)}" for line in value.split("\n"))
        else:
            yield f"{plain_text(name)}: {plain_json(value)}"


def pending_shape(call: PendingCall) -> dict[str, Any]:
    """A waiting call as JSON."""
    return {
        "agent_id": call.agent_id,
        "conversation_id": call.conversation_id,
        "run_id": call.run_id,
        **call_shape(call.call),
    }


def call_shape(call: ToolCall) -> dict[str, Any]:
    """A waiting call as JSON inside the reply of its run."""
    arguments = json.loads(call.arguments) if call.arguments.strip() else {}
    return {"call_id": call.call_id, "name": call.name, "arguments": arguments, "awaits": call.awaits}


def plain_text(text: str) -> str:
    """`text` on one line; invisible characters are written as \\uXXXX."""
    return "".join(
        json.dumps(char)[1:-1] if char != "\t" and unicodedata.category(char) in _INVISIBLE else char for char in text
    )
