"""What a run tells, as the chunks of a stream: a state machine from stored events and deltas to wire messages.

Numbers (`seq_id`) are given to background runs only. They follow from the stored events alone: an event takes one, a
message as many as it can make chunks. So a stream that is resumed, in whatever mode and after a restart, numbers the
same things alike, and nothing is sent twice or left out. What is not shown leaves a gap.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perdure.core.events import Delta, DeltaStreamed, MessageAdded, RunEnded, RunQueued, StoredEvent
from perdure.core.ids import MessageId
from perdure.core.messages import Message, ToolCall
from perdure.core.runs import FAILED_REASONS, Failure, Run
from perdure.server.wire.messages import Group, Shown, common, groups_of, otid, second, slots_of, wire_messages
from perdure.server.wire.runs import stop_reason, usage_statistics

Chunk = dict[str, Any] | Failure
"""A wire message; or why the run failed, which is sent as an event of its own kind."""


CALL_TYPES = {"calls": "tool_call_message", "waiting": "approval_request_message"}


@dataclass(frozen=True, slots=True)
class StreamMode:
    """How a stream is shown.

    `tokens`: messages come piece by piece. `previews`: deltas are complete from where the stream begins; off for a
    reader who joins a run under way, whose first message would begin in its middle: it comes as one piece instead.
    """

    tokens: bool = False
    pings: bool = True
    previews: bool = True
    shown: Shown = field(default_factory=Shown)


@dataclass(slots=True)
class _Sent:
    """What was sent of a message that is being made."""

    date: str
    kinds: list[str] = field(default_factory=list)
    pieces: dict[str, list[str]] = field(default_factory=dict)
    calls: dict[int, _SentCall] = field(default_factory=dict)
    held: bool = False


@dataclass(slots=True)
class _SentCall:
    name: str
    call_id: str
    pieces: list[str] = field(default_factory=list)


class Chunks:
    """The chunks of one stream, in order; those numbered up to `starting_after` are left out."""

    def __init__(self, run: Run, mode: StreamMode, *, starting_after: int = 0) -> None:
        self.run, self._mode, self._after = run, mode, starting_after
        self._numbered = run.background
        self._shift = 0  # how many numbers messages took beyond the one of their event
        self._last = 0
        self._sent: dict[MessageId, _Sent] = {}
        self._ended: RunEnded | None = None

    def of(self, told: StoredEvent | Delta, *, now: datetime) -> Iterator[Chunk]:
        """What is to be sent for it; often nothing."""
        if isinstance(told, Delta):
            yield from self._delta(told, None, now)
            return
        number, event = told.seq + self._shift, told.event
        self._last = number
        match event:
            case RunQueued() if self._mode.pings:
                if self._is_new(number):
                    yield self.ping(told.created_at)
            case DeltaStreamed(delta=delta):
                yield from self._delta(delta, number, told.created_at)
            case MessageAdded(message=Message() as message):
                slots = slots_of(message)
                self._shift += slots - 1
                self._last += slots - 1
                if message.step_id is not None and message.kind == "message":  # else it is the caller's or the engine's
                    yield from self._message(message, number)
            case RunEnded():
                self._ended = event
            case _:
                pass

    def end(self) -> Iterator[Chunk]:
        """How the run ended, once all was told: one that was cancelled after it had stopped has ended twice."""
        if self._ended is not None:
            yield from self._end(self._ended)

    def ping(self, now: datetime) -> dict[str, Any]:
        """A sign of life."""
        return {
            "id": f"ping-{uuid.uuid4()}",
            "date": second(now),
            "name": None,
            "message_type": "ping",
            "otid": None,
            "sender_id": None,
            "step_id": None,
            "is_err": None,
            "seq_id": self._last if self._numbered else None,
            "run_id": self.run.id,
        }

    def error(self, failure: Failure) -> dict[str, Any]:
        return {
            "message_type": "error_message",
            "run_id": self.run.id,
            "error_type": failure.kind,
            "message": failure.message,
            "detail": failure.message,
            "seq_id": self._last if self._numbered else None,
        }

    def _is_new(self, number: int | None) -> bool:
        return number is None or not self._numbered or number > self._after

    def _end(self, event: RunEnded) -> Iterator[Chunk]:
        yield stop_reason(event.stop_reason)
        if event.failure is not None and event.stop_reason in FAILED_REASONS:
            yield event.failure
        elif event.stop_reason != "cancelled":
            yield usage_statistics(event.usage, event.step_count)

    def _message(self, message: Message, number: int) -> Iterator[Chunk]:
        sent = self._sent.pop(message.id, None)
        if self._mode.tokens and message.role == "assistant":
            for group in groups_of(message, self._mode.shown):
                yield from self._rest(message, group, sent or _Sent(second(message.occurred_at)), number + group.slot)
            return
        first = number if self._numbered else None
        for shape in wire_messages(message, self._mode.shown, seq=first):
            if self._is_new(shape["seq_id"]):
                yield shape

    def _rest(self, message: Message, group: Group, sent: _Sent, number: int) -> Iterator[Chunk]:
        """What the deltas have not brought of a group: nothing as a rule, everything if there were none."""

        def shape(message_type: str, slot: int = 0) -> dict[str, Any]:
            return common(message, message_type, group.index, number + slot if self._numbered else None)

        shown = self._mode.shown
        if group.kind in ("calls", "waiting"):
            of_calls = CALL_TYPES[group.kind]
            known = {call.call_id: call for call in sent.calls.values()}
            for slot, call in enumerate(group.calls):
                if not shown.has(of_calls) or not self._is_new(number + slot):
                    continue
                if (piece := _rest_of_call(call, known.get(call.call_id))) is not None:
                    yield shape(of_calls, slot) | {"tool_call": piece, "tool_calls": piece}
            return
        message_type = "reasoning_message" if group.kind == "reasoning" else "assistant_message"
        if not shown.has(message_type) or not self._is_new(number):
            return
        rest = group.said if group.kind == "said" else _rest_of_text(group.text, sent.pieces.get(group.kind))
        if rest and group.kind == "reasoning":
            yield shape(message_type) | {"source": "reasoner_model", "reasoning": rest, "signature": None}
        elif rest:
            yield shape(message_type) | {"content": rest}

    def _delta(self, delta: Delta, number: int | None, now: datetime) -> Iterator[Chunk]:
        if not self._mode.tokens or (number is None and not self._mode.previews):
            return
        sent = self._sent.get(delta.message_id)
        if sent is None:
            sent = self._sent[delta.message_id] = _Sent(second(now))
        made = self._piece(delta, sent)
        if made is None or not self._is_new(number):
            return
        message_type, kind, fields = made
        if not self._mode.shown.has(message_type):
            return
        yield {
            "id": delta.message_id,
            "date": sent.date,
            "name": None,
            "message_type": message_type,
            "otid": otid(delta.message_id, sent.kinds.index(kind)),
            "sender_id": None,
            "step_id": delta.step_id,
            "is_err": None,
            "seq_id": number,
            "run_id": self.run.id,
            **fields,
        }

    def _piece(self, delta: Delta, sent: _Sent) -> tuple[str, str, dict[str, Any]] | None:
        """(message type, kind of group, fields) of a delta, which `sent` remembers; None if it is not shown."""
        kind = delta.kind if delta.kind in ("text", "reasoning") else "calls"
        if kind != "calls":
            _begin(sent, kind)
            sent.pieces.setdefault(kind, []).append(delta.text)
            if kind == "text":
                return "assistant_message", kind, {"content": delta.text}
            fields = {"source": "reasoner_model", "reasoning": delta.text, "signature": None}
            return "reasoning_message", kind, fields
        shown = self._mode.shown
        call = sent.calls.get(delta.index)
        if delta.kind == "tool_name":
            if shown.use_assistant_message and delta.text == shown.tool_name:
                return None  # what it says is shown when it is whole
            sent.held = sent.held or delta.awaits is not None
            if sent.held:
                # Whether somebody is asked about it is known when it is whole, and so is its place among the others.
                return None
            call = sent.calls[delta.index] = _SentCall(delta.text, delta.call_id or "")
            _begin(sent, "calls")
            piece = {"name": call.name, "tool_call_id": call.call_id}
        elif call is None:
            return None
        else:
            call.pieces.append(delta.text)
            piece = {"arguments": delta.text, "tool_call_id": call.call_id}
        return CALL_TYPES["calls"], "calls", {"tool_call": piece, "tool_calls": piece}


def _begin(sent: _Sent, kind: str) -> None:
    if kind not in sent.kinds:
        sent.kinds.append(kind)


def _rest_of_text(whole: str, pieces: list[str] | None) -> str:
    sent = "".join(pieces or ())
    return whole[len(sent) :] if whole.startswith(sent) else ""


def _rest_of_call(call: ToolCall, sent: _SentCall | None) -> dict[str, str] | None:
    if sent is None:
        return {"name": call.name, "arguments": call.arguments, "tool_call_id": call.call_id}
    rest = _rest_of_text(call.arguments, sent.pieces)
    return {"arguments": rest, "tool_call_id": call.call_id} if rest else None
