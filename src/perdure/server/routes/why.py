"""Where memories and answers come from."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from perdure.library.origins import origin_shape
from perdure.server.http import Library, json_answer
from perdure.server.wire.fields import AgentIdIn, ConversationIdIn

router = APIRouter(tags=["why"])


@router.get("/v1/why")
async def why(
    library: Library,
    of: Annotated[
        str,
        Query(
            description="An id of a run, step, message, passage, block or fact, or its beginning; with `agent_id`"
            " also the handle of a summary, or words that only one memory holds.",
            max_length=1_000,
        ),
    ],
    agent_id: AgentIdIn | None = None,
    conversation_id: Annotated[ConversationIdIn | None, Query(description="Whose summaries a handle names.")] = None,
) -> Response:
    """Tell who wrote a memory, when and in answer to what, or what was in the request behind an answer."""
    origin = await library.services.why.find_origin(of, agent_id=agent_id, conversation=conversation_id)
    return json_answer(origin_shape(origin))
