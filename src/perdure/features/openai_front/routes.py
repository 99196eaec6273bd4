"""`/openai/v1`: agents, and models with memory, for any program that knows OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import Header
from starlette.requests import Request
from starlette.responses import StreamingResponse

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import ConversationId, RunId
from perdure.core.runs import Run, RunKey
from perdure.core.text.json_strings import sorted_json
from perdure.engine.budget import CallBudget, check_key_size
from perdure.engine.run.accept import Accepted
from perdure.features.openai_front.answers import Answer, Completion, CompletionChunks, completion_shape, data_line
from perdure.features.openai_front.bodies import ChatRequest
from perdure.features.openai_front.capture import KeyAgents, keep_chat, recall, with_recalled
from perdure.features.openai_front.chores import is_chore
from perdure.features.openai_front.models import MEMORY, ModelCard, ModelCards, find_agent, find_card, list_cards
from perdure.features.openai_front.proxy import STREAM, Keep, Proxy
from perdure.features.openai_front.responses import (
    DeletedResponse,
    Response,
    ResponseEvents,
    ResponseRequest,
    output_of,
    response_shape,
    run_id_of,
)
from perdure.features.openai_front.service import Chats
from perdure.features.openai_front.values import Chat, ChatText, digest_of
from perdure.library.agent import AsyncAgent
from perdure.library.messages.reply import Reply
from perdure.library.parts.checks import Page
from perdure.library.prompts import PromptAnswer
from perdure.server.routes.messages import reply_answer
from perdure.server.wire.http import Json, Library, Router, forget_body, json_answer, principal_of, while_connected
from perdure.server.wire.sse import DONE, HEADERS, Streams

router = Router(tags=["openai"])

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
    texts = body.texts
    is_for_program = _is_for_program(texts)
    if body.model.startswith(MEMORY):
        chat = None if is_for_program else await _chat_of(body, texts, request, x_conversation)
        return await _pass_on(body, library, request, x_agent, chat)
    agent = await find_agent(library, body.model)
    if is_for_program:
        return await _do_chore(body, library, agent, request)
    chat = await _chat_of(body, texts, request, x_conversation)
    accepted = await Chats(library.app, agent.id).begin(replace(chat, options=body.run_options))
    streams: Streams = request.app.state.streams
    if not body.stream:
        return await reply_answer(
            streams, accepted, agent.reply_to(accepted), lambda reply: completion_shape(reply, accepted.run, body.model)
        )
    forget_body(request)
    chunks = CompletionChunks(accepted, with_usage=body.with_usage, model=body.model)
    return await streams.stream(agent.follow_accepted(accepted), chunks, pings=True)


async def _chat_of(
    body: ChatRequest | ResponseRequest, texts: Sequence[ChatText], request: Request, conversation: str | None
) -> Chat:
    """The chat that a request sends. Raises: InvalidInput, NotSupported, NotFound."""
    new, answers = body.new_contents()
    return Chat(
        texts=texts,
        new=tuple(new),
        answers=tuple(answers),
        system=body.system,
        anchor=body.anchor(conversation),
        key=principal_of(request).key_id or "",
        # OpenAI's own clients say so.
        is_retry=request.headers.get("x-stainless-retry-count", "0") != "0",
        whole=digest_of(sorted_json(_said_in(await request.json()))),
        client_tools=body.tools_offered,
    )


def _said_in(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request says, without how its answer comes: a try that streams is the same as one that does not."""
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}


async def _pass_on(
    body: ChatRequest, library: Library, request: Request, agent_name: str | None, chat: Chat | None
) -> StreamingResponse:
    """Answer by a model with an agent's memory around it; without a chat by the model alone."""
    app, handle = library.app, await library.handles.resolve(body.model.removeprefix(MEMORY))
    agent = await app.service(KeyAgents).find(library, agent_name, principal_of(request).key_id)
    shape: dict[str, Any] = await request.json()
    keep: Keep | None = None
    if chat is not None:
        check_key_size(len(chat.asked))
        shape["messages"] = with_recalled(shape["messages"], await recall(app, agent, chat))
        keep = partial(keep_chat, app, agent.id, chat)
    budget = CallBudget((await agent.memory())[0], app.ports)
    passing = await app.service(Proxy).ask(handle, shape, budget, keep)
    forget_body(request)
    return StreamingResponse(passing.pieces(), media_type=passing.kind, headers=HEADERS)


async def _do_chore(
    body: ChatRequest, library: Library, agent: AsyncAgent, request: Request
) -> Json[Any] | StreamingResponse:
    """Answer what a program asks beside the chat, by the agent's model alone. Nothing is stored."""
    found = await _ask_beside(body.texts, body.system, library, agent, request)
    now = int(library.app.ports.clock.now().timestamp())
    name = f"chatcmpl-{library.app.ports.ids.new('message')}"
    answer = Answer(name, body.model, now, found.text, found.usage)
    if not body.stream:
        return json_answer(answer.shape)
    text = answer.chunk({"role": "assistant", "content": answer.text})
    chunks = [data_line(one) for one in (text, *answer.last_chunks(with_usage=body.with_usage))]
    return StreamingResponse(iter([*chunks, DONE]), media_type=STREAM, headers=HEADERS)


async def _respond_to_chore(
    body: ResponseRequest, texts: Sequence[ChatText], library: Library, agent: AsyncAgent, request: Request
) -> Json[Any] | StreamingResponse:
    """As `_do_chore`, in the shape of the responses API; the answer can't be read again."""
    found = await _ask_beside(texts, body.system, library, agent, request)
    ports, options = library.app.ports, body.run_options
    options = replace(options, form={"response": {**options.form["response"], "store": False}})
    run = Run(
        id=RunId(ports.ids.new("run")),
        key=RunKey(agent.id, 0),
        conversation_seq=0,
        conversation_id=ConversationId(""),
        status="completed",
        created_at=ports.clock.now(),
        options=options,
    )
    events = list(ResponseEvents(Accepted(run, ())).whole(ports.ids.new("message"), found.text, found.usage))
    shapes = [one for one in events if isinstance(one, dict)]
    if not body.stream:
        return json_answer(shapes[-1]["response"])
    lines = [b"event: %b\n%b" % (one["type"].encode(), data_line(one)) for one in shapes]
    return StreamingResponse(iter([*lines, DONE]), media_type=STREAM, headers=HEADERS)


async def _ask_beside(
    texts: Sequence[ChatText], system: str, library: Library, agent: AsyncAgent, request: Request
) -> PromptAnswer:
    """What the agent's model says to these texts, without memory."""
    *before, last = texts
    said = [f"{one.role}: {one.text}" for one in before]
    prompt = "\n\n".join((*said, last.text))
    return await while_connected(request, library.prompts.generate(agent.id, prompt, system=system or None))


def _is_for_program(texts: Sequence[ChatText]) -> bool:
    """Whether a program asks beside the chat."""
    return bool(texts) and texts[-1].role == "user" and is_chore(texts[-1].text, is_alone=len(texts) == 1)


@router.post("/openai/v1/responses", response_model=None)
async def create_response(
    body: ResponseRequest, library: Library, request: Request, x_conversation: InConversation = None
) -> Json[Response] | StreamingResponse:
    """Answer by an agent, in the shape of OpenAI's responses API."""
    if body.model.startswith(MEMORY):
        raise InvalidInput(f"model: {body.model!r:.80} is asked through /openai/v1/chat/completions")
    agent = await find_agent(library, body.model)
    chats = Chats(library.app, agent.id)
    texts = body.texts(await chats.texts(body.references))
    if _is_for_program(texts) and not body.previous_response_id:
        return await _respond_to_chore(body, texts, library, agent, request)
    chat = await _chat_of(body, texts, request, x_conversation)
    accepted = await chats.begin(replace(chat, options=body.run_options))
    streams: Streams = request.app.state.streams
    if not body.stream:
        return await reply_answer(streams, accepted, agent.reply_to(accepted), lambda one: _whole(accepted.run, one))
    forget_body(request)
    return await streams.stream(agent.follow_accepted(accepted), ResponseEvents(accepted), pings=True)


def _whole(run: Run, reply: Reply) -> dict[str, Any]:
    """The whole answer of a run."""
    output = output_of(reply.messages)
    return response_shape(run, output, reason=reply.stop_reason, failure=reply.failure, usage=reply.usage)


@router.get("/openai/v1/responses/{response_id}")
async def get_response(response_id: str, library: Library) -> Json[Response]:
    """Get an answer again. 404 if its request said `store: false`."""
    run = await _stored_run(library, response_id)
    output = await library.runs.messages_of_run(
        run.id, Page(1_000, ascending=True), lambda _, message: output_of([message]), id_of=lambda item: str(item["id"])
    )
    return json_answer(
        response_shape(run, output, reason=run.stop_reason, failure=run.failure, usage=run.usage if run.ended else None)
    )


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
