"""Pictures in a chat: those that come with a message, and those that messages hold."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.conversations import agent_in
from perdure.core.errors import InvalidInput, NotFound, PerdureError
from perdure.core.ids import ConversationId, MessageId
from perdure.core.messages import IMAGE_TYPES, Image
from perdure.library.agent import AsyncAgentById
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.errors import error_answer
from perdure.server.wire.http import library_of
from perdure.ui.render import HEADERS, Pages, agent_of, is_number

pages = Pages()


async def pictures_of(
    request: Request, library: AsyncPerdure, agent: AsyncAgentById, conversation: ConversationId | None
) -> Sequence[bytes]:
    """The pictures of a form. Raises: InvalidInput: the agent's model takes none."""
    files = [one for one in (await request.form()).getlist("picture") if isinstance(one, UploadFile)]
    found = [await file.read() for file in files]
    for one in files:
        await one.close()
    if not found:
        return ()
    own = agent_in(await library.all_agents.resolve(agent.id), await agent.find_conversation(conversation))
    models = library.app.models
    handle = models.follow(own.model) if own.follows_default else own.model
    if not models.takes_images(handle):
        raise InvalidInput(f"{handle} takes no pictures: choose another model above, or say in words what they show")
    return found


async def picture(request: Request) -> Response:
    """A picture in a message of the agent, or in a waiting message of the query's conversation."""
    library, place = library_of(request), request.path_params["place"]
    try:
        agent, message_id = agent_of(request, library), MessageId(request.path_params["message_id"])
        line = request.query_params.get("conversation")
        waiting = await agent.waiting(ConversationId(line)) if line else ()
        parts = next((draft.parts for one in waiting for draft in one.drafts if draft.id == message_id), None)
        if parts is None:
            await agent.conversation_of_message(message_id)
            parts = (await library.messages.message(message_id)).parts
        part = parts[int(place)] if is_number(place) and int(place) < len(parts) else None
        if not isinstance(part, Image) or part.media_type not in IMAGE_TYPES:
            raise NotFound("picture", f"{message_id}/{place}")
    except PerdureError as error:
        return error_answer(error)
    return Response(base64.b64decode(part.data), media_type=part.media_type, headers=dict(HEADERS))


pages.add("/agents/{agent_id}/pictures/{message_id}/{place}", picture)
