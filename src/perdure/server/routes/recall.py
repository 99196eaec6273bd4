"""Recall: one text within a budget of tokens, for programs that use Perdure as their memory."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath
from perdure.server.wire.recall import AgentRecallIn, RecallIn, recalled_shape

router = APIRouter(tags=["recall"])


@router.post("/v1/agents/{agent_id}/recall")
async def recall_of_agent(agent_id: AgentPath, body: AgentRecallIn, library: Library) -> Response:
    """The best of the agent's blocks, passages and messages for a query that fits the budget. It changes nothing."""
    return json_answer(
        recalled_shape(
            await library.services.search.recall(
                body.query,
                budget_tokens=body.budget_tokens,
                agent_id=agent_id,
                conversation_id=body.conversation_id,
                archives=body.archive_ids,
                blocks=body.blocks,
                messages=body.messages,
                floor=body.floor,
                explain=body.explain,
            )
        )
    )


@router.post("/v1/recall")
async def recall(body: RecallIn, library: Library) -> Response:
    """The same of archives, with or without an agent."""
    return json_answer(
        recalled_shape(
            await library.services.search.recall(
                body.query,
                budget_tokens=body.budget_tokens,
                agent_id=body.agent_id,
                archives=body.archive_ids,
                blocks=body.blocks,
                messages=body.messages,
                floor=body.floor,
                explain=body.explain,
                timezone=body.timezone,
            )
        )
    )
