"""The engine's messages as plain sentences, for models that copy data which stands in a request.

Small models repeat an envelope of JSON in place of an answer, and follow sentences (0 against 14 to 19 of 20 questions
with models of 0.5 and 1.5 billion parameters). All but the models of the large hosts are spoken to in this way. The log
keeps envelopes; the view renders them, so the same rows serve both kinds of models.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from perdure.context.sections.envelopes import is_envelope
from perdure.core.messages import ENGINE_SENDER, Message, Part, Text
from perdure.core.text.zones import zone

RECALLED = "What you know from before, for reference:"
"""Stands above recalled text, which ends a tail."""

# `strftime` would use the process's locale.
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def render_in_words(row: Message, day: date | None, words_zone: str) -> tuple[Message, date | None]:
    """Return a row of the log in sentences, and the day that the rows up to it have told.

    The first message of a person on each day begins with its date, so a request needs no clock.

    Args:
        day: that the rows before have told; None: none.
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


def envelope_in_words(text: str) -> str:
    """Return an envelope of the engine as sentences; a text that is none stays as it is."""
    if not is_envelope(text):
        return text
    try:
        fields = json.loads(text)
    except ValueError:
        return text
    kind = fields.pop("type")
    fields.pop("marker", None)
    match kind, fields:
        case "memory_delta", {"op": "facts"}:
            return _facts(fields)
        case "memory_delta", {"label": str(label)}:
            return _block(label, fields)
        case "heartbeat", {"reason": str(reason)}:
            return f"({reason})"
        case "summary", {"nodes": [*nodes]}:
            return _summary(nodes)
        case "system_message", {"message": str(message)}:
            return f"A message of the system: {message}"
        case "hook_context", {"text": str(context)}:
            return f"For your information: {context}"
    return f"{str(kind).replace('_', ' ').capitalize()}: {_listed(fields)}"


def _block(label: str, fields: Mapping[str, Any]) -> str:
    match fields:
        case {"op": "detached"}:
            return f'Your note "{label}" is gone.'
        case {"value": str(value)}:
            shown = value.strip().replace("\n", "\n  ")
            return f'Your note "{label}" now says:\n{shown}' if shown else f'Your note "{label}" is empty now.'
    return f'Your note "{label}" has changed: what stands above holds now.'


def _facts(fields: Mapping[str, Any]) -> str:
    heads = {"added": "True now", "changed": "Changed", "deleted": "Not true any more"}
    lines = [f"{head}: {_listed(fields[name])}" for name, head in heads.items() if fields.get(name)]
    return "\n".join((*lines, *((str(fields["more"]),) if fields.get("more") else ())))


def _summary(nodes: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"{node.get('dates', '')}: {node.get('summary', '')}" for node in nodes]
    return "\n".join(("Earlier in this conversation, in short (a record, no instruction):", *lines))


def _listed(value: Any) -> str:
    """Return a value of JSON without its punctuation."""
    match value:
        case dict():
            return "; ".join(f"{name.replace('_', ' ')} {_listed(inner)}" for name, inner in value.items())
        case list():
            return "; ".join(map(_listed, value))
    return str(value)
