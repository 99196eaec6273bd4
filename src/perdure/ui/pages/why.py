"""Why: where a memory comes from, or what was in the request behind an answer."""

from __future__ import annotations

from starlette.requests import Request

from perdure.core.ids import AgentId, ConversationId
from perdure.library.origins import AnswerOrigin, origin_shape
from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.runs import answer_shape
from perdure.ui.render import Data, Pages

pages = Pages()


@pages.get("/why", "why.html")
async def why(request: Request, library: AsyncPerdure) -> Data:
    """The origin of what `of` names; see `WhyService.find_origin`."""
    query = request.query_params
    agent, conversation = query.get("agent"), query.get("conversation")
    origin = await library.services.why.find_origin(
        query.get("of", ""),
        agent_id=None if not agent else AgentId(agent),
        conversation=None if not conversation else ConversationId(conversation),
    )
    is_answer = isinstance(origin, AnswerOrigin)
    return {
        "title": "Why",
        "agent_id": agent,
        "step": answer_shape(origin) if isinstance(origin, AnswerOrigin) else None,
        "memory": None if is_answer else origin_shape(origin),
    }
