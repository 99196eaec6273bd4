"""`/openai/v1`: agents, and models with memory, for any program that knows OpenAI's API."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse

from perdure.core.errors import NotFound
from perdure.core.ids import PREFIXES, MessageId, RunId, is_id
from perdure.core.messages import Message
from perdure.core.runs import Run
from perdure.features.openai_front.answers import AnswerEnd, ChatWriter, Completion, answer_run, items_of
from perdure.features.openai_front.asking import AgentRequest, digest_of_body, parse_chat
from perdure.features.openai_front.bodies import ChatRequest
from perdure.features.openai_front.capture import agent_of_key
from perdure.features.openai_front.models import MEMORY, ModelCard, ModelCards, find_agent, find_card, list_cards
from perdure.features.openai_front.open_answers import OpenAnswers
from perdure.features.openai_front.reading import STREAM, ResponseTranslator
from perdure.features.openai_front.response_bodies import RESPONSE, ResponseRequest
from perdure.features.openai_front.responses import DeletedResponse, ItemList, Response, ResponseWriter, input_of
from perdure.features.openai_front.service import Chats
from perdure.features.openai_front.values import ConversationAnchor
from perdure.library.agent import AsyncAgent
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.http import Json, Library, Router, json_answer, principal_of
from perdure.server.wire.sse import HEADERS

router = Router(tags=["openai"])

_ALL = Page(1_000, ascending=True)

InConversation = Annotated[str | None, Header(alias="X-Conversation", description="A name of the conversation.")]

OfAgent = Annotated[str | None, Header(alias="X-Agent", description="The agent whose memory a model gets.")]


@router.get("/openai/v1/models")
async def list_openai_models(library: Library) -> Json[ModelCards]:
    """List the agents as models, by their names, and the models that get memory around them, as memory/HANDLE."""
    return json_answer({"object": "list", "data": await list_cards(library)})


@router.get("/openai/v1/models/{model:path}")
async def get_openai_model(model: str, library: Library) -> Json[ModelCard]:
    """Get an agent, or a model with memory, as OpenAI's API shows a model."""
    return json_answer(await find_card(library, model))


@router.post("/openai/v1/chat/completions", response_model=None)
async def create_completion(
    body: ChatRequest,
    library: Library,
    request: Request,
    x_conversation: InConversation = None,
    x_agent: OfAgent = None,
) -> Json[Completion] | StreamingResponse:
    """Answer a chat by an agent, or by a model with memory; store the parts of the chat that are new."""
    sent, agent = await request.json(), await _agent_for(library, request, body.model, x_agent)
    asked = AgentRequest(library, request, body, sent, body.anchor(x_conversation), digest_of_body(sent))
    if body.model.startswith(MEMORY) or asked.is_beside:
        passing, _ = await asked.pass_on(agent)
        return StreamingResponse(passing.pieces(), media_type=passing.kind, headers=HEADERS)
    accepted = await asked.begin(agent)
    writer = ChatWriter.of_run(accepted.run, body.model, with_usage=body.with_usage)
    return await answer_run(request, agent, accepted, writer, stream=body.stream)


async def _agent_for(library: AsyncPerdure, request: Request, model: str, name: str | None) -> AsyncAgent:
    """The agent that a request asks, or whose memory its model gets. Raises: NotFound."""
    if model.startswith(MEMORY):
        known = library.app.service(OpenAnswers).agents
        return await agent_of_key(library, name, principal_of(request).key_id, known)
    return await find_agent(library, model)


@router.post("/openai/v1/responses", response_model=None)
async def create_response(
    body: ResponseRequest,
    library: Library,
    request: Request,
    x_conversation: InConversation = None,
    x_agent: OfAgent = None,
) -> Json[Response] | StreamingResponse:
    """Answer by an agent, or by a model with memory around it, in the shape of OpenAI's responses API."""
    is_model, agent = body.model.startswith(MEMORY), await _agent_for(library, request, body.model, x_agent)
    chats = Chats(library.app, agent.id)
    sent = body.chat(await chats.texts(body.references))
    name, behind = x_conversation or body.conversation_name, body.previous_response_id
    chat_body = parse_chat(sent)
    anchor = chat_body.anchor(name)
    if not is_model and behind and not name:
        anchor = ConversationAnchor(behind=run_id_of(behind))
    asked = AgentRequest(library, request, chat_body, sent, anchor, digest_of_body(await request.json()))
    if is_model:
        asked = await asked.with_earlier(chats, (behind or "").removeprefix(RESPONSE))
    elif behind or not asked.is_beside:
        accepted = await asked.begin(agent, body.echo())
        return await answer_run(request, agent, accepted, ResponseWriter.of_run(accepted.run), stream=body.stream)
    passing, place = await asked.pass_on(agent)
    # It can be followed where it was kept, and not read again.
    ids, now, echo = library.app.ports.ids, library.app.ports.clock.now(), body.echo(store=False)
    said_in, conversation = (ids.new("run"), "") if place is None else (place.said_in, place.conversation.id)
    answer = ResponseTranslator(
        ResponseWriter(said_in, now, conversation, echo), MessageId(ids.new("message")), body.model
    )
    if not body.stream:
        return json_answer(await answer.whole(passing.pieces()))
    return StreamingResponse(answer.events(passing.pieces()), media_type=STREAM, headers=HEADERS)


@router.get("/openai/v1/responses/{response_id}")
async def get_response(response_id: str, library: Library) -> Json[Response]:
    """Get an answer again. 404 if its request said `store: false`."""
    run = await _stored_run(library, response_id)
    outcome = AnswerEnd(run.stop_reason, run.usage if run.ended else None, run.failure)
    return json_answer(ResponseWriter.of_run(run).whole(items_of(await _messages_of(library, run)), outcome))


@router.get("/openai/v1/responses/{response_id}/input_items")
async def list_input_items(
    response_id: str,
    library: Library,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: str | None = None,
    order: Literal["asc", "desc"] = "desc",
) -> Json[ItemList]:
    """List what users said to get an answer."""
    found = input_of(await _messages_of(library, await _stored_run(library, response_id)))
    page = Page(limit + 1, ascending=order == "asc", after=after)
    rest = page.select(found, kind="item", id_of=lambda one: str(one["id"]))
    items = rest[:limit]
    ends = {"first_id": items[0]["id"] if items else None, "last_id": items[-1]["id"] if items else None}
    return json_answer({"object": "list", "data": items, **ends, "has_more": len(rest) > limit})


async def _messages_of(library: AsyncPerdure, run: Run) -> Sequence[Message]:
    return await library.runs.messages_of_run(run.id, _ALL, lambda _, one: [one], id_of=lambda one: one.id)


@router.delete("/openai/v1/responses/{response_id}")
async def delete_response(response_id: str, library: Library) -> Json[DeletedResponse]:
    """Forget an answer by its id; what was said stays in the conversation."""
    await library.runs.hide_run((await _stored_run(library, response_id)).id)
    return json_answer({"id": response_id, "object": "response", "deleted": True})


async def _stored_run(library: Library, response_id: str) -> Run:
    """The run of an answer. Raises: NotFound: there is none, or it was not to be stored."""
    with contextlib.suppress(NotFound):
        run = await library.runs.run(run_id_of(response_id))
        if run.options.form.get("response", {}).get("store"):
            return run
    raise NotFound("response", response_id)


def run_id_of(response_id: str) -> RunId:
    """The run of an answer. Raises: NotFound: no answer has such an id."""
    run_id = f"{PREFIXES['run']}-{response_id.removeprefix(RESPONSE)}"
    if not response_id.startswith(RESPONSE) or not is_id("run", run_id):
        raise NotFound("response", response_id)
    return RunId(run_id)
