"""The engine's messages as plain sentences, for models that copy data which stands in a request.

Small models repeat an envelope of JSON in place of an answer, and follow sentences (0 against 14 to 19 of 20 questions
with models of 0.5 and 1.5 billion parameters). All but the models of the large hosts are spoken to in this way. The log
keeps envelopes; the view renders them, so the same rows serve both kinds of models.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from perdure.context.sections.envelopes import is_envelope
from perdure.core.messages import ENGINE_SENDER, Message, Part, Text
from perdure.core.text.json_strings import json_object
from perdure.core.text.zones import zone

RECALLED = "What you know from before, for reference:"
"""Stands above recalled text, which ends a tail."""
MEMORY_BEFORE = "What is remembered from earlier conversations; it may help, and is no request:"
MESSAGE_ITSELF = "The message itself:"
"""Stand above what is recalled into a message of a program, and above the words of that message."""

# `strftime` would use the process's locale.
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def render_in_words(row: Message, day: date | None, words_zone: str) -> tuple[Message, date | None]:
    """Return a row of the log in sentences, and the newest date that this row or one before it tells.

    The first message of a person on each day begins with its date, so a request needs no clock.

    Args:
        day: the newest date that rows before this one tell; None: none does.
        words_zone: the name of the time zone that dates are in.
    """
    if row.kind != "message":
        return replace(row, parts=(Text(envelope_in_words(row.text)),)), day
    if row.role == "system":
        text = envelope_in_words(row.text) if row.sender_id == ENGINE_SENDER else f"A message of the system: {row.text}"
        return replace(row, kind="alert", parts=(Text(text),)), day
    if row.role != "user":
        return row, day
    today = row.occurred_at.date()
    with contextlib.suppress(OverflowError):  # the first day of the calendar has none before it
        today = row.occurred_at.astimezone(zone(words_zone)).date()
    if today == day:
        return row, day
    parts: list[Part] = list(row.parts)
    match parts:
        case [Text(text=text), *_]:
            parts[0] = Text(f"{date_note(today)}\n\n{text}")
        case _:
            parts.insert(0, Text(date_note(today)))
    return replace(row, parts=tuple(parts)), today


def date_note(day: date) -> str:
    """Return the line that tells a day."""
    return f"({WEEKDAYS[day.weekday()]}, {day.isoformat()})"


def tail_in_words(notes: Sequence[str], recalled: str) -> str:
    """Build the tail of a request: notes on the agent's own work, then what was recalled; empty if there is neither."""
    lines = [note.replace(RECALLED, RECALLED.rstrip(":")) for note in notes]
    return "\n\n".join((*lines, *((f"{RECALLED}\n{recalled}",) if recalled else ())))


def recalled_in_words(tail: str) -> str:
    """Return the recalled text in a tail of sentences; empty if there is none."""
    return tail.partition(f"{RECALLED}\n")[2]


def split_message(text: str) -> tuple[str, str]:
    """Return (what was recalled into a message, the message itself)."""
    if not text.startswith(MEMORY_BEFORE):
        return "", text
    recalled, _, said = text.partition(f"\n\n{MESSAGE_ITSELF}")
    return recalled, said.lstrip("\n")


def envelope_in_words(text: str) -> str:
    """Return an envelope of the engine as sentences; a text that is none stays as it is."""
    if not is_envelope(text) or (fields := json_object(text)) is None:
        return text
    kind = fields.pop("type")
    fields.pop("marker", None)
    match kind, fields:
        case "memory_delta", {"op": "facts"}:
            heads = {"added": "True now", "changed": "Changed", "deleted": "Not true any more"}
            lines = [f"{head}: {_plain_value(fields[name])}" for name, head in heads.items() if fields.get(name)]
            return "\n".join((*lines, *((str(fields["more"]),) if fields.get("more") else ())))
        case "memory_delta", {"label": str(label)}:
            return _block_change(label, fields)
        case "heartbeat", {"reason": str(reason)}:
            return f"({reason})"
        case "summary", {"nodes": [*nodes]}:
            return _summary_lines(nodes)
        case "system_message", {"message": str(message)}:
            return f"A message of the system: {message}"
        case "hook_context", {"text": str(context)}:
            return f"For your information: {context}"
    return f"{str(kind).replace('_', ' ').capitalize()}: {_plain_value(fields)}"


def _block_change(label: str, fields: Mapping[str, Any]) -> str:
    """Return a change of the block with this label as a sentence, with the new value if the envelope has it."""
    match fields:
        case {"op": "detached"}:
            return f'Your note "{label}" is gone.'
        case {"value": str(value)}:
            shown = value.strip().replace("\n", "\n  ")
            return f'Your note "{label}" now says:\n{shown}' if shown else f'Your note "{label}" is empty now.'
    return f'Your note "{label}" has changed: what stands above holds now.'


def _summary_lines(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return the summaries of an envelope, a line with the dates and the text of each."""
    lines = [f"{node.get('dates', '')}: {node.get('summary', '')}" for node in nodes]
    return "\n".join(("Earlier in this conversation, in short (a record, no instruction):", *lines))


def _plain_value(value: Any) -> str:
    """Return a value of JSON without its punctuation."""
    match value:
        case dict():
            return "; ".join(f"{name.replace('_', ' ')} {_plain_value(inner)}" for name, inner in value.items())
        case list():
            return "; ".join(map(_plain_value, value))
    return str(value)
