"""The context window of a conversation: what its next request is made of."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from perdure.core.errors import NotFound
from perdure.core.ids import ConversationId
from perdure.engine.run.preview import Preview
from perdure.library.steps import load_preview, request_inputs_of
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath
from perdure.server.routes.messages import ConversationQuery
from perdure.server.wire.context import context_shape
from perdure.storage.tx import Tx

__all__ = ["router"]

router = APIRouter(tags=["agents"])


@router.get("/v1/agents/{agent_id}/context")
async def retrieve_context(
    agent_id: AgentPath, library: Library, conversation_id: ConversationQuery = None
) -> Response:
    """What fills the window of the agent's default conversation, or of another: texts and tokens of each part."""
    ports = library.app.ports
    inputs = request_inputs_of(ports)

    def read(tx: Tx) -> Preview:
        agent, seq = tx.agents.get(agent_id), 0
        if conversation_id not in (None, "default"):
            conversation = tx.conversations.get(ConversationId(str(conversation_id)))
            if conversation.agent_id != agent_id:
                raise NotFound("conversation", conversation.id)
            seq = conversation.seq
        return load_preview(tx, agent, seq, inputs)

    return json_answer(context_shape(await library.app.store.read(read), counter=ports.counter))
