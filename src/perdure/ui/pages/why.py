"""Why: where a memory comes from, or what was in the request behind an answer."""

from __future__ import annotations

from starlette.requests import Request

from perdure.core.ids import AgentId, ConversationId, MessageId, is_id
from perdure.library.origins import AnswerOrigin, FactOrigin, origin_shape
from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.runs import answer_shape
from perdure.ui.render import Data, Pages

SOURCES_MAX = 20

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
        "places": await _places(library, origin) if isinstance(origin, FactOrigin) else {},
    }


async def _places(library: AsyncPerdure, origin: FactOrigin) -> dict[str, str]:
    """The id of a source of a fact -> the page where it stands."""
    services, places = library.services, dict[str, str]()
    for source in origin.sources[-SOURCES_MAX:]:
        if is_id("passage", source.id):
            places[source.id] = f"/why?of={source.id}"
        if is_id("message", source.id) and source.text is not None:
            message = await services.messages.get(MessageId(source.id))
            line = await services.conversations.find_of_message(message.id)
            places[source.id] = f"/agents/{message.agent_id}?conversation={line.id}&before={message.seq + 1}"
    return places
