"""Calls that wait for a person, so that nothing in them can look like something else. Pure functions of values."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from perdure.core.answers import PendingCall
from perdure.core.messages import ToolCall

__all__ = ["argument_lines", "call_shape", "pending_shape", "plain_json", "plain_text", "told"]

LINES_MAX = 200
CHARS_MAX = 20_000

_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories of what is not seen, or turns what stands around it: a person could agree to something else than
is done."""


def plain_json(value: Any) -> str:
    """`value` as JSON on one line; what can't be seen is written as \\uXXXX."""
    return plain_text(json.dumps(value, ensure_ascii=False))


def told(call: PendingCall) -> str:
    """A call that waits, on one line."""
    who = "the program that sent the message" if call.awaits_client else "you"
    return f"{plain_text(call.name)} {plain_json(call.arguments)} waits for {who} ({plain_text(call.call_id)})"


def argument_lines(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Arguments one a line; texts of several lines below their names. What is too much to read is counted."""
    lines = list(_lines(arguments))
    shown = chars = 0
    for line in lines[:LINES_MAX]:
        if shown and chars + len(line) > CHARS_MAX:
            break
        yield line if len(line) <= CHARS_MAX else f"{line[:CHARS_MAX]}… {len(line) - CHARS_MAX:,} more characters"
        shown, chars = shown + 1, chars + len(line)
    if shown < len(lines):
        yield f"… {len(lines) - shown:,} more lines; `perdure approvals --json` has all of it"


def _lines(arguments: Mapping[str, Any]) -> Iterator[str]:
    if not arguments:
        yield "(no arguments)"
    for name, value in arguments.items():
        if isinstance(value, str) and "\n" in value.rstrip("\n"):
            yield f"{plain_text(name)}:"
            yield from (f"  {plain_text(line)}" for line in value.split("\n"))
        else:
            yield f"{plain_text(name)}: {plain_json(value)}"


def pending_shape(call: PendingCall) -> dict[str, Any]:
    """A call that waits, as scripts read it."""
    return {
        "agent_id": call.agent_id,
        "conversation_id": call.conversation_id,
        "run_id": call.run_id,
        **call_shape(call.call),
    }


def call_shape(call: ToolCall) -> dict[str, Any]:
    """The part of it that a run knows which has stopped at the call."""
    arguments = json.loads(call.arguments) if call.arguments.strip() else {}
    return {"call_id": call.call_id, "name": call.name, "arguments": arguments, "awaits": call.awaits}


def plain_text(text: str) -> str:
    """`text` on one line; what can't be seen is written as \\uXXXX."""
    return "".join(
        json.dumps(char)[1:-1] if char != "\t" and unicodedata.category(char) in _UNSEEN else char for char in text
    )
