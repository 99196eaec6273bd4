"""Exact states of agents: kept, restored, cloned. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path as PathParam
from fastapi import Query
from pydantic import Field

from perdure.core.ids import ConversationId
from perdure.features.snapshots.values import NOTE_CHARS, Clone, Restored, Snapshot
from perdure.library.parts.checks import LIMIT_MAX, NUMBER_MAX
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import FILLED, keywords
from perdure.server.wire.http import Library, Router, ThisAgent
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
    """A kept state of an agent. `waits`: tool calls wait for an answer; `upto_seq`: number of its last message."""


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


router = Router(tags=["snapshots"])

_Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="At most this many items.")]
_Before = Annotated[int | None, Query(ge=1, le=NUMBER_MAX, description="Those before the snapshot of this number.")]
_NumberPath = Annotated[int, PathParam(ge=1, le=NUMBER_MAX)]


@router.get("/v1/agents/{agent_id}/snapshots")
async def list_snapshots(agent: ThisAgent, limit: _Limit = 50, before: _Before = None) -> list[SnapshotShape]:
    """List the snapshots of an agent, newest first."""
    return [SnapshotShape.make(snapshot) for snapshot in await agent.snapshots.list(limit=limit, before=before)]


@router.post("/v1/agents/{agent_id}/snapshots")
async def make_snapshot(agent: ThisAgent, body: SnapshotIn) -> SnapshotShape:
    """Keep the agent as it is now, or as a step left it. 409: a run goes on, so there is no state of now."""
    made = await agent.snapshots.make(step=body.step_id, conversation=body.conversation_id, note=body.note)
    return SnapshotShape.make(made)


@router.get("/v1/agents/{agent_id}/snapshots/{number}")
async def get_snapshot(agent: ThisAgent, number: _NumberPath) -> SnapshotShape:
    """Get a snapshot."""
    return SnapshotShape.make(await agent.snapshots.get(number))


@router.get("/v1/agents/{agent_id}/snapshots/{number}/export")
async def export_snapshot(agent: ThisAgent, number: _NumberPath) -> dict[str, Any]:
    """Get a snapshot as one object, with a version and a hash. It has all that the next request is built of."""
    return await agent.snapshots.document(number)


@router.delete("/v1/agents/{agent_id}/snapshots/{number}", status_code=204)
async def delete_snapshot(agent: ThisAgent, number: _NumberPath) -> None:
    """Delete a snapshot; the agent stays as it is."""
    await agent.snapshots.delete(number)


@router.post("/v1/agents/{agent_id}/snapshots/restore")
async def restore_snapshot(agent: ThisAgent, body: RestoreIn) -> RestoredShape:
    """Bring an agent back to a snapshot or to the end of a step. Later messages leave the view and stay in the log.

    What the agent is now is kept as the snapshot `undo`. 409: a run has not ended.
    """
    restored = await agent.snapshots.restore(body.number, step=body.step_id, document=body.snapshot, shared=body.shared)
    return RestoredShape.make(restored)


@router.post("/v1/agents/{agent_id}/clone")
async def clone_agent(agent: ThisAgent, body: CloneIn) -> CloneShape:
    """Make another agent of this one, as it is now, in a snapshot, or at the end of a step. 409: the name is taken."""
    made = await agent.snapshots.clone(body.name, body.number, step=body.step_id, conversation=body.conversation_id)
    return CloneShape.make(made)


@router.post("/v1/snapshots/load")
async def load_snapshot(body: SnapshotFileIn, library: Library) -> CloneShape:
    """Make an agent of a snapshot as one object, here or from another server. Tools are those of the same names."""
    return CloneShape.make(await library.load_snapshot(body.snapshot, name=body.name))
