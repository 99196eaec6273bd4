"""`/openai/v1`: agents, and models with memory, for any program that knows OpenAI's API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Header
from starlette.requests import Request
from starlette.responses import StreamingResponse

from perdure.core.errors import NotFound
from perdure.core.ids import PREFIXES, RunId, is_id
from perdure.core.messages import Message
from perdure.core.runs import Run
from perdure.core.text.json_strings import sorted_json
from perdure.features.openai_front.answers import Completion, CompletionChunks, completion_shape
from perdure.features.openai_front.asking import Asked, parse_chat
from perdure.features.openai_front.bodies import ChatRequest
from perdure.features.openai_front.capture import KeyAgents
from perdure.features.openai_front.models import MEMORY, ModelCard, ModelCards, find_agent, find_card, list_cards
from perdure.features.openai_front.proxy import Passing
from perdure.features.openai_front.reading import STREAM, AsResponse
from perdure.features.openai_front.response_bodies import RESPONSE, ResponseRequest
from perdure.features.openai_front.responses import (
    DeletedResponse,
    ItemList,
    Response,
    ResponseEvents,
    ResponseHead,
    input_of,
    output_of,
)
from perdure.features.openai_front.service import Chats
from perdure.features.openai_front.values import Anchor, ChatPlace, digest_of
from perdure.library.parts.checks import Page
from perdure.server.routes.messages import reply_answer
from perdure.server.wire.http import Json, Library, Router, forget_body, json_answer, principal_of
from perdure.server.wire.sse import HEADERS, Streams

router = Router(tags=["openai"])

T = TypeVar("T")
ALL = Page(1_000, ascending=True)

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
    """Answer a chat by an agent, or by a model with memory around it. What the chat says that its conversation does not
    know yet is added to it."""
    sent: dict[str, Any] = await request.json()
    asked = Asked(library, request, body, sent, body.anchor(x_conversation), _digest_of(sent))
    if body.model.startswith(MEMORY):
        agent = await library.app.service(KeyAgents).find(library, x_agent, principal_of(request).key_id)
        return _passed((await asked.pass_on(agent))[0])
    agent = await find_agent(library, body.model)
    if asked.is_beside:
        return _passed((await asked.pass_on(agent))[0])
    accepted = await asked.begin(agent)
    streams: Streams = request.app.state.streams
    if not body.stream:
        return await reply_answer(
            streams, accepted, agent.reply_to(accepted), lambda reply: completion_shape(reply, accepted.run, body.model)
        )
    forget_body(request)
    chunks = CompletionChunks(accepted, with_usage=body.with_usage, model=body.model)
    return await streams.stream(agent.follow_accepted(accepted), chunks, pings=True)


def _passed(passing: Passing) -> StreamingResponse:
    """An answer as its model makes it."""
    return StreamingResponse(passing.pieces(), media_type=passing.kind, headers=HEADERS)


def _digest_of(body: Mapping[str, Any]) -> str:
    """The digest of what a request says, without how its answer comes: a try that streams is the same as one that does
    not."""
    return digest_of(sorted_json({name: one for name, one in body.items() if name not in ("stream", "stream_options")}))


@router.post("/openai/v1/responses", response_model=None)
async def create_response(
    body: ResponseRequest,
    library: Library,
    request: Request,
    x_conversation: InConversation = None,
    x_agent: OfAgent = None,
) -> Json[Response] | StreamingResponse:
    """Answer by an agent, or by a model with memory around it, in the shape of OpenAI's responses API."""
    is_model = body.model.startswith(MEMORY)
    if is_model:
        agent = await library.app.service(KeyAgents).find(library, x_agent, principal_of(request).key_id)
    else:
        agent = await find_agent(library, body.model)
    chats = Chats(library.app, agent.id)
    sent = body.chat(await chats.texts(body.references))
    name, behind = x_conversation or body.conversation_name, body.previous_response_id
    chat_body = parse_chat(sent)
    anchor = chat_body.anchor(name)
    if not is_model and behind and not name:
        anchor = Anchor(behind=run_id_of(behind))
    asked = Asked(library, request, chat_body, sent, anchor, _digest_of(await request.json()))
    if is_model:
        asked = await asked.with_earlier(chats, (behind or "").removeprefix(RESPONSE))
    if is_model or (asked.is_beside and not behind):
        passing, place = await asked.pass_on(agent)
        return await _passed_as_response(body, library, passing, place)
    accepted = await asked.begin(agent, body.echo())
    streams: Streams = request.app.state.streams
    if not body.stream:
        head = ResponseHead.of_run(accepted.run)
        return await reply_answer(streams, accepted, agent.reply_to(accepted), head.of_reply)
    forget_body(request)
    return await streams.stream(agent.follow_accepted(accepted), ResponseEvents(accepted), pings=True)


async def _passed_as_response(
    body: ResponseRequest, library: Library, passing: Passing, place: ChatPlace | None
) -> Json[Response] | StreamingResponse:
    """The answer of a model as a response. It can be followed where it was kept, and not read again."""
    ports = library.app.ports
    head = ResponseHead(
        id=ports.ids.new("run") if place is None else place.said_in,
        created=int(ports.clock.now().timestamp()),
        conversation="" if place is None else place.conversation.id,
        echo=body.echo(store=False),
    )
    answer = AsResponse(head, ports.ids.new("message"), body.model)
    if not body.stream:
        return json_answer(await answer.whole(passing.pieces()))
    return StreamingResponse(answer.events(passing.pieces()), media_type=STREAM, headers=HEADERS)


@router.get("/openai/v1/responses/{response_id}")
async def get_response(response_id: str, library: Library) -> Json[Response]:
    """Get an answer again. 404 if its request said `store: false`."""
    run = await _stored_run(library, response_id)
    output, usage = await _items_of(library, run, output_of), run.usage if run.ended else None
    usage = run.usage if run.ended else None
    return json_answer(ResponseHead.of_run(run).shape(output, reason=run.stop_reason, failure=run.failure, usage=usage))


@router.get("/openai/v1/responses/{response_id}/input_items")
async def list_input_items(response_id: str, library: Library) -> Json[ItemList]:
    """List what users said to get an answer."""
    items = await _items_of(library, await _stored_run(library, response_id), input_of)
    ends = {"first_id": items[0]["id"] if items else None, "last_id": items[-1]["id"] if items else None}
    return json_answer({"object": "list", "data": items, **ends, "has_more": False})


async def _items_of(library: Library, run: Run, show: Callable[[Sequence[Message]], T]) -> T:
    """What `show` makes of a run's messages."""
    rows = await library.runs.messages_of_run(run.id, ALL, lambda _, one: [one], id_of=lambda one: one.id)
    return show(rows)


@router.delete("/openai/v1/responses/{response_id}")
async def delete_response(response_id: str, library: Library) -> Json[DeletedResponse]:
    """Forget an answer by its id; what was said stays in the conversation."""
    await library.runs.hide_run((await _stored_run(library, response_id)).id)
    return json_answer({"id": response_id, "object": "response", "deleted": True})


async def _stored_run(library: Library, response_id: str) -> Run:
    """The run of an answer. Raises: NotFound: there is none, or it was not to be stored."""
    run = await library.runs.run(run_id_of(response_id))
    if not run.options.form.get("response", {}).get("store"):
        raise NotFound("response", response_id)
    return run


def run_id_of(response_id: str) -> RunId:
    """The run of an answer. Raises: NotFound: no answer has such an id."""
    run_id = f"{PREFIXES['run']}-{response_id.removeprefix(RESPONSE)}"
    if not response_id.startswith(RESPONSE) or not is_id("run", run_id):
        raise NotFound("response", response_id)
    return RunId(run_id)
