"""The context window of a conversation: the parts of its next request."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from perdure.core.ids import ConversationId
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath
from perdure.server.routes.messages import ConversationQuery
from perdure.server.wire.context import context_shape

router = APIRouter(tags=["agents"])


@router.get("/v1/agents/{agent_id}/context")
async def retrieve_context(
    agent_id: AgentPath, library: Library, conversation_id: ConversationQuery = None
) -> Response:
    """Get the parts of the next request of a conversation, by default the agent's first: their texts and tokens."""
    conversation = None if conversation_id in (None, "default") else ConversationId(str(conversation_id))
    found = await library.services.steps.preview(agent_id, conversation)
    return json_answer(context_shape(found, counter=library.app.ports.counter))
