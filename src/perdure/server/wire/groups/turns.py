"""What a group says, on the wire: whole replies, the chunks of streams, and transcripts. Each message names its
speaker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar

from perdure.core.groups.turns import (
    GROUP_FAILED_REASONS,
    GroupEvent,
    GroupMessage,
    GroupStopReason,
    GroupTurn,
    GroupTurnEnded,
    Speaker,
    SpeakerEvent,
    SpeakerFailed,
    SpeakerStarted,
)
from perdure.core.ids import RunId
from perdure.core.messages import Message
from perdure.core.runs import Failure, StopReason
from perdure.domain.conversations.call_batches import join_batches
from perdure.library.services.groups.groups import entry_id, is_deleted
from perdure.library.services.groups.reply import GroupReply, SpeakerReply
from perdure.server.wire.chunks import Chunk, Chunks, StreamMode
from perdure.server.wire.messages import FIRST_FIELDS, Display, content_shape, otid, second, wire_messages
from perdure.server.wire.runs import stop_reason, usage_statistics

STOP_REASONS: Mapping[GroupStopReason, StopReason] = {
    "end_turn": "end_turn",
    "termination_token": "end_turn",
    "max_turns": "max_steps",
    "max_tokens": "max_tokens_exceeded",
    "max_cost": "insufficient_credits",
    "max_depth": "max_steps",
    "no_speaker": "error",
    "requires_approval": "requires_approval",
    "cancelled": "cancelled",
    "error": "error",
}
"""Why a turn ended -> the word that clients know for it. `group_stop_reason` beside it is the exact one."""


def _stop_shape(turn: GroupTurn) -> dict[str, Any]:
    """The wire message that says why a turn ended."""
    reason = turn.stop_reason or "error"
    return stop_reason(STOP_REASONS[reason]) | {"group_stop_reason": reason}


def _usage_shape(turn: GroupTurn, run_ids: list[RunId]) -> dict[str, Any]:
    """The usage of a turn, with the runs of its speakers."""
    return usage_statistics(turn.usage, turn.step_count, None) | {"run_ids": run_ids}


def _by(speaker: Speaker, shape: dict[str, Any]) -> dict[str, Any]:
    """The wire message as one that this agent of the group says. The numbers of its run are not those of the stream."""
    return shape | {"name": speaker.name, "sender_id": speaker.agent_id, "seq_id": None}


def group_response(reply: GroupReply, display: Display) -> dict[str, Any]:
    """The response to a message for a group, not streamed: the messages of all speakers, in order, and in place of one
    who failed, or after what it said, why it did."""
    return {
        "messages": [shape for one in reply.replies for shape in _reply_shapes(one, display)],
        "stop_reason": _stop_shape(reply.turn),
        "usage": _usage_shape(reply.turn, [one.reply.run_id for one in reply.replies if one.reply]),
        "logprobs": None,
        "turns": None,
    }


def _reply_shapes(one: SpeakerReply, display: Display) -> list[dict[str, Any]]:
    """The wire messages of what one agent says, and of why it failed."""
    shapes = [
        _by(one.speaker, shape)
        for message in (join_batches(one.reply.messages) if one.reply is not None else ())
        if display.is_in_reply(message)
        for shape in wire_messages(message, display)
    ]
    return shapes + (entry_shapes(one.failure, None, display) if one.failure is not None else [])


class GroupChunks:
    """The chunks of a stream of one turn: those of the speakers' runs, one after the other, and one end."""

    owner: ClassVar[str] = "the group"

    def __init__(self, turn: GroupTurn, mode: StreamMode) -> None:
        self.name = f"turn {turn.seq} of {turn.group_id}"
        self._mode = mode
        self._speaker: Speaker | None = None
        self._chunks: Chunks | None = None
        self._run_ids: list[RunId] = []
        self._turn: GroupTurn | None = None

    def of(self, event: GroupEvent, *, now: datetime) -> Iterator[Chunk]:
        """The chunks to send for an event; often none."""
        match event:
            case SpeakerStarted(speaker=speaker, run=run):
                self._speaker, self._chunks = speaker, Chunks(run, self._mode)
                self._run_ids.append(run.id)
            case SpeakerEvent(speaker=speaker, event=inner) if self._chunks is not None:
                for chunk in self._chunks.of(inner, now=now):
                    # A ping is nobody's.
                    yield (
                        chunk if isinstance(chunk, Failure) or chunk["message_type"] == "ping" else _by(speaker, chunk)
                    )
            case SpeakerFailed(entry=entry):
                yield from entry_shapes(entry, None, self._mode.display)
            case GroupTurnEnded(turn=turn):
                self._turn = turn

    def end(self) -> Iterator[Chunk]:
        """The last chunks, after all events."""
        if self._turn is None:
            return
        yield _stop_shape(self._turn)
        if self._turn.failure is not None and self._turn.stop_reason in GROUP_FAILED_REASONS:
            yield self._turn.failure
        else:
            yield _usage_shape(self._turn, self._run_ids)

    def broken(self, failure: Failure) -> Iterator[Chunk]:
        """The last chunks of a stream that ends before its turn."""
        yield stop_reason("error") | {"group_stop_reason": "error"}
        yield failure

    def ping(self, now: datetime) -> dict[str, Any]:
        """The chunk that keeps a quiet connection open."""
        fields = {"id": f"ping-{uuid.uuid4()}", "date": second(now), "message_type": "ping", "run_id": self._run_id}
        return FIRST_FIELDS | fields

    def error(self, failure: Failure) -> dict[str, Any]:
        """The chunk of a failure."""
        return {
            "message_type": "error_message",
            "run_id": self._run_id,
            "error_type": failure.kind,
            "message": failure.message,
            "detail": failure.message,
            "seq_id": None,
        }

    @property
    def _run_id(self) -> RunId | None:
        """The run of the speaker of now."""
        return self._run_ids[-1] if self._run_ids else None


def entry_shapes(entry: GroupMessage, message: Message | None, display: Display) -> list[dict[str, Any]]:
    """The wire messages of an entry of a transcript. Speeches are those of their agents; what the group itself says of
    one, such as why it failed, is a message of the system."""
    if message is not None:
        shapes = wire_messages(message, display)
        return [shape | {"name": entry.sender_name, "sender_id": entry.sender_id} for shape in shapes]
    is_user = entry.kind == "user"
    content = content_shape(entry.parts) if is_user else _notice(entry)
    shape = FIRST_FIELDS | {
        "id": entry_id(entry),
        "date": second(entry.created_at),
        "name": entry.sender_name or None,
        "message_type": "user_message" if is_user else "system_message",
        "otid": otid(entry_id(entry), 0),
        "sender_id": entry.sender_id,
        "run_id": entry.run_id,
        "content": content,
    }
    return [shape] if display.includes(shape["message_type"]) else []


def _notice(entry: GroupMessage) -> str:
    """What the transcript says of an agent that said nothing itself."""
    if is_deleted(entry, None):
        return f"{entry.sender_name} said something that was deleted."
    if entry.kind in ("silence", "choice"):
        return f"{entry.sender_name} says nothing."
    if entry.kind == "approval":
        return f"{entry.sender_name} waits for an approval of its tool call."
    return f"{entry.sender_name} failed: {entry.text}"
