"""Snapshots on the wire. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from perdure.core.ids import ConversationId
from perdure.features.snapshots.values import NOTE_CHARS, Clone, Restored, Snapshot
from perdure.library.parts.checks import NUMBER_MAX
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import FILLED, keywords
from perdure.server.wire.shapes import WireShape

_Number = Annotated[int, Field(ge=1, le=NUMBER_MAX)]
_Step = Annotated[str, keywords(pattern=FILLED, maxLength=100)]
_Conversation = Annotated[ConversationId, keywords(pattern=FILLED, maxLength=100)]
_Name = Annotated[str, keywords(pattern=FILLED, maxLength=200)]


class SnapshotShape(
    WireShape,
    of=Snapshot,
    fields=(
        "agent_id number reason note step_id conversation_id waits moment.model moment.upto_seq created_by created_at"
    ),
):
    """An exact state of an agent that is kept. `waits`: calls of tools wait for an answer in it; `upto_seq`: the number
    of its last message."""


class RestoredShape(WireShape, of=Restored, fields="agent_id conversation_id undo hidden"):
    """What a restore has done. `undo`: the snapshot that takes it back; `hidden`: how many messages left the view;
    `left`: what is not as it was, a sentence each."""

    left: list[str]


class CloneShape(WireShape, of=Clone, fields="agent_id name"):
    """An agent that was made from a snapshot. `left`: what it has not got, a sentence each."""

    left: list[str]


class SnapshotIn(WireRequest):
    """A snapshot to keep: of now, or of the end of a step."""

    step_id: _Step | None = None
    conversation_id: _Conversation | None = None
    note: Annotated[str, keywords(maxLength=NOTE_CHARS)] = ""


class RestoreIn(WireRequest):
    """What an agent is brought back to: a snapshot by its number, the end of a step, or a snapshot of it as one object.
    `shared`: blocks that other agents have too are changed as well."""

    number: _Number | None = None
    step_id: _Step | None = None
    snapshot: dict[str, Any] | None = None
    shared: bool = False


class CloneIn(WireRequest):
    """The name of a clone, and what it is made of: a snapshot, the end of a step, or the agent as it is now."""

    name: _Name
    number: _Number | None = None
    step_id: _Step | None = None
    conversation_id: _Conversation | None = None


class SnapshotFileIn(WireRequest):
    """A snapshot as one object, and the name of the agent that is made of it; by default the name in it."""

    snapshot: dict[str, Any]
    name: _Name | None = None
