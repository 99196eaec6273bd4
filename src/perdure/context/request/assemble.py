"""Assemble a request from a prefix, the log and a recipe; the canonical form of a request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, cast

from perdure.context.request.prefix import Counts
from perdure.context.retrieval.stubs import apply_stubs
from perdure.context.sections.envelopes import envelope, mark_message, mark_text, summary_message
from perdure.context.sections.words import WEEKDAYS, recalled_in_words, render_in_words, tail_in_words
from perdure.core.errors import IllegalLog
from perdure.core.messages import UNSEEN_KINDS, Message, ToolCall, ToolResult, parts_to_json
from perdure.core.models import ModelOptions, ModelRequest, ToolChoice, hide_notice
from perdure.core.runs import Prefix, Recipe
from perdure.core.text.json_strings import sorted_json
from perdure.core.text.zones import zone

_NONE: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class View:
    """The model's view of a conversation: a prefix and the log rows that follow it, always legal.

    A view only grows; a new prefix begins a new view. Only added rows are checked and digested, so that a long view
    costs no more to extend than a short one.

    Args:
        stubs: row number -> characters, for rows that are shown in part.
        rows: the rows that follow the prefix, whole.
        messages: the messages of the request: the summary, the pinned rows, then the rows, cut where they are
            stubs; the engine's have the prefix's marker.
        day: that the newest message of a person tells, where the engine speaks in sentences.
    """

    prefix: Prefix
    stubs: Mapping[int, int]
    pinned: tuple[Message, ...]
    rows: tuple[Message, ...]
    messages: tuple[Message, ...]
    day: date | None = field(compare=False, repr=False)
    _digest: Any = field(compare=False, repr=False)  # of hashlib: all bytes so far

    @classmethod
    def of(cls, prefix: Prefix, pinned: Sequence[Message] = (), stubs: Mapping[int, int] = _NONE) -> View:
        """Return the view of a prefix without rows."""
        shown, day = _shown(pinned, prefix, stubs, None)
        first_messages = (*((summary_message(prefix),) if prefix.summary else ()), *shown)
        head = _head_bytes(prefix.tools, prefix.system, prefix.opening)
        digest = hashlib.sha256(head + _message_bytes(first_messages))
        return cls(prefix, stubs, tuple(pinned), (), first_messages, day, digest)

    @property
    def next_seq(self) -> int:
        """The first sequence number that is not in this view."""
        return self.rows[-1].seq + 1 if self.rows else self.prefix.from_message_seq

    def following(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return those of the conversation's `messages` (in order) after the view's own; none if there is a gap.

        An agent's rows are numbered without gaps, so a gap is a row of another conversation, or one that the caller
        has not read.
        """
        seq = self.next_seq
        rows = [message for message in messages if message.seq >= seq]
        return rows if rows and rows[0].seq == seq and rows[-1].seq == seq + len(rows) - 1 else ()

    def with_stubs(self, stubs: Mapping[int, int]) -> View:
        """Return the view of the same rows with other stubs."""
        return View.of(self.prefix, self.pinned, stubs).with_rows(self.rows)

    def with_rows(self, rows: Sequence[Message]) -> View:
        """Return the view with these rows after its own. Raises: IllegalLog."""
        if not rows:
            return self
        check_legal(rows)
        visible, day = _shown(rows, self.prefix, self.stubs, self.day)
        digest = self._digest.copy()
        digest.update(_message_bytes(visible))
        return View(self.prefix, self.stubs, self.pinned, (*self.rows, *rows), (*self.messages, *visible), day, digest)

    def digest(self, tail: str) -> str:
        """Return `digest_of` the request with this view and this tail."""
        digest = self._digest.copy()
        digest.update(_tail_bytes(tail))
        hexadecimal: str = digest.hexdigest()
        return hexadecimal


def _shown(
    rows: Sequence[Message], prefix: Prefix, stubs: Mapping[int, int], day: date | None
) -> tuple[list[Message], date | None]:
    """Return the rows as requests with this prefix show them, and the day that they have told.

    Args:
        day: that earlier rows have told.
    """
    shown: list[Message] = []
    for row in rows:
        if row.kind in UNSEEN_KINDS:
            continue
        message = apply_stubs(hide_notice(row) if prefix.hides_notice else row, stubs)
        if prefix.words_zone:
            message, day = render_in_words(message, day, prefix.words_zone)
        shown.append(mark_message(message, prefix.marker))
    return shown, day


def assemble(model: str, view: View, recipe: Recipe, *, options: ModelOptions | None = None) -> ModelRequest:
    """Build the request of a recipe; `view` reaches from its prefix to `recipe.upto_message_seq`.

    The recipe's tool rules override the agent's options, except the choice of no tool at all.
    """
    options = options or ModelOptions()
    if recipe.single_calls:
        options = replace(options, parallel_tool_calls=False)
    if recipe.tool_choice is not None and options.tool_choice != "none":
        options = replace(options, tool_choice=cast("ToolChoice", recipe.tool_choice))
    return ModelRequest(
        model=model,
        system=view.prefix.system,
        tools=view.prefix.tools,
        messages=view.messages,
        opening=view.prefix.opening,
        tail=recipe.tail,
        in_words=bool(view.prefix.words_zone),
        options=options,
    )


def check_legal(messages: Sequence[Message]) -> None:
    """Check that exactly one result follows every call, before any other message. Raises: IllegalLog."""
    open_calls: set[str] = set()
    for message in messages:
        if message.kind in UNSEEN_KINDS:  # answers to calls stand before their results, in rows of their own
            continue
        if open_calls and message.role != "tool":
            raise IllegalLog(f"{message.id} stands between call {min(open_calls)!r} and its result")
        for part in message.parts:
            match part:
                case ToolResult(call_id=call_id):
                    if call_id not in open_calls:
                        raise IllegalLog(
                            f"{message.id} has a result for {call_id!r}, which was not asked or answered twice"
                        )
                    open_calls.remove(call_id)
                case ToolCall(call_id=call_id):
                    if call_id in open_calls:
                        raise IllegalLog(f"{message.id} has two calls with the id {call_id!r}")
                    open_calls.add(call_id)
                case _:
                    pass
    if open_calls:
        raise IllegalLog(f"call {min(open_calls)!r} has no result")


def canonical(request: ModelRequest) -> bytes:
    """Return the canonical form of a request: tools, system, opening, messages, tail, one JSON line each.

    Equal bytes mean equal requests.
    """
    head = _head_bytes(request.tools, request.system, request.opening)
    return head + _message_bytes(request.messages) + _tail_bytes(request.tail)


def digest_of(request: ModelRequest) -> str:
    """Return the SHA-256 of the canonical form, in hexadecimal digits, as a recipe records it."""
    return hashlib.sha256(canonical(request)).hexdigest()


def _head_bytes(tools: Sequence[Mapping[str, Any]], system: str, opening: str) -> bytes:
    """Return the lines of the tools, of the system text, and of the opening if there is one."""
    texts = ({"system": system}, *(({"opening": opening},) if opening else ()))
    lines = [sorted_json(line) for line in (*({"tool": tool} for tool in tools), *texts)]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def _message_bytes(messages: Sequence[Message]) -> bytes:
    """Return a line for each message."""
    lines = [
        f'{{"role":"{message.role}","kind":"{message.kind}","parts":{parts_to_json(message.parts)}}}\n'
        for message in messages
    ]
    return "".join(lines).encode("utf-8", "surrogatepass")


def _tail_bytes(tail: str) -> bytes:
    """Return the line of the tail; nothing for an empty one."""
    return f"{sorted_json({'tail': tail})}\n".encode("utf-8", "surrogatepass") if tail else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailNotes:
    """What a tail says about the agent's own work.

    Args:
        checkpoint: its working notes.
        recent_steps: a line for each of its newest steps, oldest first.
        notices: what it should know now: that its window is nearly full, or that it makes no progress.
    """

    checkpoint: str = ""
    recent_steps: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


NO_NOTES = TailNotes()


def tail(
    now: datetime,
    timezone: str,
    counts: Counts,
    recalled: str = "",
    *,
    prefix: Prefix,
    notes: TailNotes = NO_NOTES,
) -> str:
    """Build the volatile tail: the agent's local date, current counts, what it should know about its own work, and the
    recalled text of the newest message. In sentences it has no date, which messages tell, and no counts.

    The recipe stores it, not the log.
    """
    if prefix.words_zone:
        checkpoint = f"Your working notes:\n{notes.checkpoint}" if notes.checkpoint else ""
        steps = "\n".join(("Your newest steps:", *notes.recent_steps)) if notes.recent_steps else ""
        return tail_in_words([*filter(None, (checkpoint, steps)), *notes.notices], recalled)
    local = now.astimezone(zone(timezone))
    text = envelope(
        "context_status",
        date=local.date().isoformat(),
        weekday=WEEKDAYS[local.weekday()],
        time=f"{local.hour:02}:{local.minute:02}",
        timezone=timezone,
        recall_messages=counts.messages,
        archival_passages=counts.passages,
        working_checkpoint=notes.checkpoint or None,
        recent_steps=list(notes.recent_steps) or None,
        notices=list(notes.notices) or None,
        recalled=recalled or None,
    )
    return mark_text(text, prefix.marker)


def parse_recalled(status: str) -> str:
    """Return the recalled text in a tail; empty if there is none."""
    if not status.startswith("{"):
        return recalled_in_words(status)
    if '"recalled": ' not in status:
        return ""
    text = json.loads(status).get("recalled", "")
    return text if isinstance(text, str) else ""
