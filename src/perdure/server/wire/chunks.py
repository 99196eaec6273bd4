"""The chunks of a stream: a state machine from stored events and deltas to wire messages.

Only background runs have numbers (`seq_id`). They follow from the stored events alone: an event takes one, a message as
many as it can make chunks. So a stream that is resumed, in whatever mode and after a restart, numbers the same things
alike, and nothing is sent twice or left out. A message that the client does not get leaves a gap.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Generic, Literal, TypeVar

from perdure.core.events import Delta, DeltaStreamed, Event, MessageAdded, RunEnded, RunQueued, StepStarted, StoredEvent
from perdure.core.ids import MessageId, RunId, StepId
from perdure.core.messages import Message, ToolCall
from perdure.core.runs import FAILED_REASONS, Failure, Run, Step
from perdure.core.text.json_strings import StringMember
from perdure.domain.conversations.units import batch_of, join_rows
from perdure.server.wire import messages as wire
from perdure.server.wire.fields import RunIdIn
from perdure.server.wire.runs import RequestUsage, stop_reason
from perdure.server.wire.shapes import Object, WireShape

E = TypeVar("E")

Chunk = dict[str, Any] | Failure
"""A wire message; or why the run failed, which is sent as an event of its own kind."""


@dataclass(frozen=True, slots=True)
class StreamMode:
    """The form of a stream.

    Args:
        tokens: messages come piece by piece.
        previews: the stream gets every delta. False for a client that joins a run under way: the message that is being
            made then comes as one piece.
    """

    tokens: bool = False
    pings: bool = True
    previews: bool = True
    display: wire.Display = field(default_factory=wire.Display)

    @classmethod
    def of(cls, form: Mapping[str, Any], *, previews: bool = True) -> StreamMode:
        """Return the mode that a run was started with; token by token, if it was not started by a stream."""
        return cls(form.get("stream_tokens", True), form.get("include_pings", True), previews, wire.Display.of(form))


@dataclass(slots=True)
class _CallPreview:
    """The pieces of a tool call that were sent before it was whole."""

    name: str
    call_id: str
    pieces: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Preview:
    """The pieces of a message that were sent before it was whole.

    Args:
        groups: those that have begun, in order: their numbers within the message.
        texts: group -> the pieces of its text.
        calls: by their numbers in the model's answer.
        speeches: the calls that are displayed as messages, by the same numbers: (call id, the reader of its text).
        holds_calls: further calls are not previewed: whether a call waits for somebody, and so its place among the
            others, is known when it is whole.
    """

    date: str
    groups: list[wire.GroupKey] = field(default_factory=list)
    texts: dict[wire.GroupKey, list[str]] = field(default_factory=dict)
    calls: dict[int, _CallPreview] = field(default_factory=dict)
    speeches: dict[int, tuple[str, StringMember]] = field(default_factory=dict)
    holds_calls: bool = False

    def begin(self, group: wire.GroupKey) -> None:
        """Give a group the next number, unless it has one."""
        if group not in self.groups:
            self.groups.append(group)

    def add_text(self, group: wire.GroupKey, text: str) -> None:
        """Remember a piece of a text."""
        self.begin(group)
        self.texts.setdefault(group, []).append(text)


class ErrorMessage(
    WireShape,
    of=Failure,
    fields="message_type run_id error_type message detail seq_id",
    error_type="kind",
    detail="message",
):
    """Why the run failed, after its `stop_reason`. The event has the name `error`."""

    message_type: Literal["error_message"] = "error_message"
    run_id: RunIdIn | None
    seq_id: int | None


class ChunkMaker(ABC, Generic[E]):
    """Makes the chunks of one stream: for its events, at its end, and if it breaks. `name`: the stream's name in the
    log; `owner`: the name of what was deleted, if that ends the stream."""

    owner: ClassVar[str] = "the agent or conversation of the run"
    name: str
    named: bool = False
    """Whether each event has the name that its chunk has as `type`."""
    run_id: RunId | None = None
    """The run that the chunks are of now."""

    @abstractmethod
    def of(self, event: E, *, now: datetime) -> Iterator[Chunk]:
        """The chunks to send for an event; often none."""

    @abstractmethod
    def end(self) -> Iterator[Chunk]:
        """The last chunks, after all events."""

    def broken(self, failure: Failure) -> Iterator[Chunk]:
        """The last chunks of a stream that ends before its run."""
        yield stop_reason("error")
        yield failure

    def ping(self, now: datetime) -> Object:
        """The chunk that keeps a quiet connection open."""
        fields = {"id": f"ping-{uuid.uuid4()}", "date": wire.second(now), "message_type": "ping", "seq_id": self.newest}
        return wire.FIRST_FIELDS | fields | {"run_id": self.run_id}

    def error(self, failure: Failure) -> Object:
        """The chunk of a failure."""
        return ErrorMessage.make(failure, run_id=self.run_id, seq_id=self.newest)

    @property
    def newest(self) -> int | None:
        """The number up to which the client has everything; None: the chunks have none."""
        return None


class Chunks(ChunkMaker[StoredEvent | Delta]):
    """The chunks of one stream, in order; those numbered up to `starting_after` are left out, and the pieces of those
    `steps` of the run that were abandoned."""

    def __init__(self, run: Run, mode: StreamMode, *, starting_after: int = 0, steps: Sequence[Step] = ()) -> None:
        self.name = self.run_id = run.id
        self._mode, self._display, self._after = mode, mode.display, starting_after
        self._numbered = run.background
        self._void = {step.id for step in steps if step.status == "abandoned"}
        self._shift = 0  # how many numbers messages took beyond the one of their event
        self._last = 0
        self._previews: dict[MessageId, _Preview] = {}
        self._end: RunEnded | None = None
        self._call_counts: dict[StepId, int] = {}
        self._results: list[Message] = []  # the rows of a batch that is not complete
        self._results_number = 0  # of the newest of them

    def of(self, event: StoredEvent | Delta, *, now: datetime) -> Iterator[Chunk]:
        if isinstance(event, Delta):
            yield from self._delta(event, None, now)
            return
        number = self._last = event.seq + self._shift
        if self._results and _ends_batch(event.event, self._results[0]):
            yield from self._join_results()
        match event.event:
            case RunQueued() if self._mode.pings:
                if self._is_new(number):
                    yield self.ping(event.created_at)
            case DeltaStreamed(delta=delta):
                yield from self._delta(delta, number, event.created_at)
            case MessageAdded(message=Message() as message):
                more = wire.count_numbers(message) - 1
                self._shift += more
                self._last += more
                if self._display.is_in_reply(message):
                    yield from self._add_message(message, number)
            case RunEnded() as end:
                self._end = end

    def end(self) -> Iterator[Chunk]:
        """Yield the last chunks, after all events, as a run that is cancelled after it stopped ends twice."""
        if self._end is None:
            return
        yield stop_reason(self._end.stop_reason)
        if self._end.failure is not None and self._end.stop_reason in FAILED_REASONS:
            yield self._end.failure
        else:
            end = self._end
            yield RequestUsage.make(end.usage, step_count=end.step_count, context_tokens=end.context_tokens)

    @property
    def newest(self) -> int | None:
        """The number up to which the client has everything: without the results that are held back."""
        if not self._numbered:
            return None
        return self._last if not self._results else min(self._last, self._results_number - 1)

    def _is_new(self, number: int | None) -> bool:
        """Whether the client has not received the chunk of this number."""
        return number is None or not self._numbered or number > self._after

    def _add_message(self, message: Message, number: int) -> Iterator[Chunk]:
        """The chunks of a message that is in the log now. Results are held back until all of their batch are there."""
        if message.step_id is not None and message.calls:
            self._call_counts[message.step_id] = len(message.calls)
        if batch_of(message) is None or message.step_id is None:
            yield from self._message(message, number)
            return
        self._results.append(message)
        self._results_number = number
        # The calls of a run that goes on after an approval stand in the events of the run before.
        if len(self._results) == self._call_counts.get(message.step_id):
            yield from self._join_results()

    def _join_results(self) -> Iterator[Chunk]:
        """The chunk of a batch, with the number of its newest row."""
        message = join_rows(self._results)
        self._results = []
        yield from self._message(message, self._results_number)

    def _message(self, message: Message, number: int) -> Iterator[Chunk]:
        """The chunks of a message that is whole now."""
        preview = self._previews.pop(message.id, None)
        if self._mode.tokens and message.role == "assistant":
            for group in wire.groups_of(message, self._display):
                yield from self._missing_chunks(message, group, preview, number + group.offset)
            return
        for shape in wire.wire_messages(message, self._display, seq=number if self._numbered else None):
            if self._is_new(shape["seq_id"]):
                yield shape

    def _missing_chunks(
        self, message: Message, group: wire.PartGroup, preview: _Preview | None, number: int
    ) -> Iterator[Chunk]:
        """Yield the chunks of a group, numbered from `number`, that the deltas lacked: usually none."""
        if not self._display.includes(group.type):
            return

        def shape(offset: int = 0) -> dict[str, Any]:
            """Return the common fields of a chunk of the group."""
            return wire.common_fields(message, group.type, group.index, number + offset if self._numbered else None)

        if group.kind in ("calls", "waiting"):
            sent = {} if preview is None else {call.call_id: call for call in preview.calls.values()}
            for place, call in enumerate(group.calls):
                for offset, piece in _rest_of_call(call, sent.get(call.call_id)):
                    offset += place * wire.CALL_NUMBERS
                    if self._is_new(number + offset):
                        yield shape(offset) | {"tool_call": piece, "tool_calls": piece}
            return
        pieces = preview.texts.get(group.key, []) if preview is not None else []
        rest = _rest_of_text(group.text, pieces)
        if rest and self._is_new(number):
            yield shape() | (wire.reasoning_fields(rest) if group.kind == "reasoning" else {"content": rest})

    def _delta(self, delta: Delta, number: int | None, now: datetime) -> Iterator[Chunk]:
        """The chunk of a delta, if the client gets it."""
        if not self._mode.tokens or (number is None and not self._mode.previews) or delta.step_id in self._void:
            return
        preview = self._previews.get(delta.message_id)
        if preview is None:
            preview = self._previews[delta.message_id] = _Preview(wire.second(now))
        if delta.kind == "text" or delta.kind == "reasoning":
            group: wire.GroupKey = (delta.kind, "")
            preview.add_text(group, delta.text)
            fields = {"content": delta.text} if delta.kind == "text" else wire.reasoning_fields(delta.text)
        elif (piece := self._call_piece(delta, preview)) is not None:
            group, fields = piece
        else:
            return
        message_type = wire.GROUP_TYPES[group[0]]
        if not self._is_new(number) or not self._display.includes(message_type):
            return
        yield wire.FIRST_FIELDS | {
            "id": delta.message_id,
            "date": preview.date,
            "message_type": message_type,
            "otid": wire.otid(delta.message_id, preview.groups.index(group)),
            "step_id": delta.step_id,
            "seq_id": number,
            "run_id": self.run_id,
            **fields,
        }

    def _call_piece(self, delta: Delta, preview: _Preview) -> tuple[wire.GroupKey, dict[str, Any]] | None:
        """The group and the fields of a piece of a call, which `preview` remembers; None: nothing is sent for it."""
        group: wire.GroupKey = ("calls", "")
        if delta.kind == "tool_name":
            call_id = delta.call_id or ""
            if self._display.speaks_by(delta.text) and delta.awaits is None and not delta.refused:
                if not preview.holds_calls:
                    preview.speeches[delta.index] = call_id, StringMember(self._display.tool_argument)
                return None
            preview.holds_calls = preview.holds_calls or delta.awaits is not None
            if preview.holds_calls or not self._display.previews(delta.text, delta.loop_arguments, delta.refused):
                return None
            preview.calls[delta.index] = call = _CallPreview(delta.text, call_id)
            preview.begin(group)
            piece = {"name": call.name, "tool_call_id": call.call_id}
        elif delta.index in preview.speeches:
            return _speech_piece(delta, preview)
        elif delta.index not in preview.calls:
            return None
        else:
            call = preview.calls[delta.index]
            call.pieces.append(delta.text)
            piece = {"arguments": delta.text, "tool_call_id": call.call_id}
        return group, {"tool_call": piece, "tool_calls": piece}


def _speech_piece(delta: Delta, preview: _Preview) -> tuple[wire.GroupKey, dict[str, Any]] | None:
    """Return group and fields of a chunk for a call shown as a message (`send_message`); None: it has no text."""
    call_id, reader = preview.speeches[delta.index]
    group: wire.GroupKey = ("speech", call_id)
    text = reader.read(delta.text)
    if reader.has_begun:
        preview.begin(group)
    if not text:
        return None
    preview.add_text(group, text)
    return group, {"content": text}


def _ends_batch(event: Event, row: Message) -> bool:
    """Whether an event means that no more results of the same batch as `row`, a stored message with some, follow."""
    if isinstance(event, MessageAdded):
        return event.message is not None and batch_of(event.message) != batch_of(row)
    return isinstance(event, StepStarted | RunEnded | DeltaStreamed)


def _rest_of_text(text: str, pieces: list[str]) -> str:
    """The text after the pieces at its start; empty if it does not start with them."""
    start = "".join(pieces)
    return text[len(start) :] if text.startswith(start) else ""


def _rest_of_call(call: ToolCall, sent: _CallPreview | None) -> Iterator[tuple[int, dict[str, str]]]:
    """The pieces of a call that the client has not received, with their places: 0 its name, 1 its arguments."""
    shape = wire.call_shape(call)
    name = shape.pop("name")
    if sent is None:
        yield 0, {"name": name, "tool_call_id": call.call_id}
        yield 1, shape
    elif rest := _rest_of_text(call.arguments, sent.pieces):
        yield 1, {"arguments": rest, "tool_call_id": call.call_id}
