"""Exact states of agents: kept, restored, cloned. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path as PathParam
from fastapi import Query

from perdure.features.snapshots import wire
from perdure.library.parts.checks import LIMIT_MAX, NUMBER_MAX
from perdure.server.wire.http import Library, Router, ThisAgent

router = Router(tags=["snapshots"])

_Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="At most this many items.")]
_Before = Annotated[int | None, Query(ge=1, le=NUMBER_MAX, description="Those before the snapshot of this number.")]
_Number = Annotated[int, PathParam(ge=1, le=NUMBER_MAX)]


@router.get("/v1/agents/{agent_id}/snapshots")
async def list_snapshots(agent: ThisAgent, limit: _Limit = 50, before: _Before = None) -> list[wire.SnapshotShape]:
    """List the snapshots of an agent, newest first."""
    return [wire.SnapshotShape.make(one) for one in await agent.snapshots.list(limit=limit, before=before)]


@router.post("/v1/agents/{agent_id}/snapshots")
async def make_snapshot(agent: ThisAgent, body: wire.SnapshotIn) -> wire.SnapshotShape:
    """Keep the agent as it is now, or as a step left it. 409: a run goes on, so there is no state of now."""
    made = await agent.snapshots.make(step=body.step_id, conversation=body.conversation_id, note=body.note)
    return wire.SnapshotShape.make(made)


@router.get("/v1/agents/{agent_id}/snapshots/{number}")
async def get_snapshot(agent: ThisAgent, number: _Number) -> wire.SnapshotShape:
    """Get a snapshot."""
    return wire.SnapshotShape.make(await agent.snapshots.get(number))


@router.get("/v1/agents/{agent_id}/snapshots/{number}/export")
async def export_snapshot(agent: ThisAgent, number: _Number) -> dict[str, Any]:
    """Get a snapshot as one object, with a version and a hash. It has all that the next request is built of."""
    return await agent.snapshots.document(number)


@router.delete("/v1/agents/{agent_id}/snapshots/{number}", status_code=204)
async def delete_snapshot(agent: ThisAgent, number: _Number) -> None:
    """Delete a snapshot; the agent stays as it is."""
    await agent.snapshots.delete(number)


@router.post("/v1/agents/{agent_id}/snapshots/restore")
async def restore_snapshot(agent: ThisAgent, body: wire.RestoreIn) -> wire.RestoredShape:
    """Bring an agent back to a snapshot or to the end of a step. Later messages leave the view and stay in the log.

    What the agent is now is kept as the snapshot `undo`. 409: a run has not ended.
    """
    restored = await agent.snapshots.restore(body.number, step=body.step_id, document=body.snapshot, shared=body.shared)
    return wire.RestoredShape.make(restored)


@router.post("/v1/agents/{agent_id}/clone")
async def clone_agent(agent: ThisAgent, body: wire.CloneIn) -> wire.CloneShape:
    """Make another agent of this one, as it is now, in a snapshot, or at the end of a step. 409: the name is taken."""
    made = await agent.snapshots.clone(body.name, body.number, step=body.step_id, conversation=body.conversation_id)
    return wire.CloneShape.make(made)


@router.post("/v1/snapshots/load")
async def load_snapshot(body: wire.SnapshotFileIn, library: Library) -> wire.CloneShape:
    """Make an agent of a snapshot as one object, here or from another server. Tools are those of the same names."""
    return wire.CloneShape.make(await library.load_snapshot(body.snapshot, name=body.name))
