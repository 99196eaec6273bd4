"""Forgetting a text, and undoing that and other corrections. These routes are not part of Letta's API."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from perdure.library.checks import LIMIT_MAX
from perdure.server.http import Library, json_answer
from perdure.server.wire.answers.forgetting import (
    ForgetIn,
    MentionsIn,
    UndoIn,
    correction_shape,
    forgotten_shape,
    mentions_shape,
    undone_shape,
)
from perdure.server.wire.fields import AgentIdIn

router = APIRouter(tags=["agents"])


@router.post("/v1/agents/{agent_id}/mentions")
async def find_mentions(agent_id: AgentIdIn, body: MentionsIn, library: Library) -> Response:
    """Find where a text stands in memory and history, old versions and recorded requests. Nothing is changed."""
    return json_answer(mentions_shape(await library.services.corrections.find_mentions(agent_id, body.text)))


@router.post("/v1/agents/{agent_id}/forget")
async def forget(agent_id: AgentIdIn, body: ForgetIn, library: Library) -> Response:
    """Take a text out of what the agent sees and finds, or with `erase` out of the store's file."""
    result = await library.services.corrections.forget(agent_id, body.text, erase_text=body.erase)
    return json_answer(forgotten_shape(result))


@router.get("/v1/agents/{agent_id}/corrections")
async def list_corrections(
    agent_id: AgentIdIn, library: Library, limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 20
) -> Response:
    """List what was corrected or forgotten, the newest first."""
    corrections = await library.services.corrections.list(agent_id, limit=limit)
    return json_answer([correction_shape(one) for one in corrections])


@router.post("/v1/agents/{agent_id}/undo")
async def undo(agent_id: AgentIdIn, body: UndoIn, library: Library) -> Response:
    """Undo a correction, by default the last. What was changed again since stays as it is."""
    return json_answer(undone_shape(await library.services.corrections.undo(agent_id, body.number)))
