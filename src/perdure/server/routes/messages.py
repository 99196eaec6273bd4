"""Messages: sending them to an agent, with a whole or streamed answer; its history; cancelling runs.

Most requests send messages, so these go through plain Starlette routes (`hot_routes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from perdure.core.errors import Conflict, InvalidInput, IrreducibleFloor, NotFound, PerdureError
from perdure.core.features import Point
from perdure.core.ids import AgentId, ConversationId, GroupId
from perdure.core.messages import SEND_MESSAGE
from perdure.core.runs import MAX_COST, Run
from perdure.engine.run.accept import Accepted
from perdure.library.messages.paging import HistoryPage
from perdure.library.messages.reply import Reply
from perdure.library.perdure import AsyncPerdure
from perdure.server.routes.agents import agent_answer
from perdure.server.routes.runs import chunks_again
from perdure.server.wire.agents import WireAgent
from perdure.server.wire.answers import Captured, Imported, Message, WireReply
from perdure.server.wire.chunks import Chunks, StreamMode
from perdure.server.wire.errors import continuing_run_answer, failure_answer
from perdure.server.wire.fields import AgentIdIn, ConversationOrDefault, GroupIdIn, Items, MessageIdIn, id_in_path
from perdure.server.wire.http import Json, Library, Limit, Order, OrderBy, Router, json_answer, library_of
from perdure.server.wire.input import (
    CancelRequest,
    CaptureRequest,
    ImportRequest,
    MessageChange,
    ResetRequest,
    ReturnChange,
    SendRequest,
    read_send,
)
from perdure.server.wire.messages import Display, MessageType, wire_messages
from perdure.server.wire.runs import WireRun, letta_response
from perdure.server.wire.sse import Streams

router = Router()

T = TypeVar("T")

FAILED_BY_THE_MODEL = frozenset({"error", "llm_api_error", "invalid_llm_response", "insufficient_credits"})
"""Stop reasons that are answered with an error; the others with the messages so far."""


async def _create(request: Request) -> Json[WireReply] | StreamingResponse:
    """Send messages to an agent."""
    agent_id = AgentId(id_in_path("agent", request.path_params["agent_id"]))
    return await answer_message(request, await read_send(request), agent_id)


async def _create_stream(request: Request) -> Response | StreamingResponse:
    """Send messages to an agent, and answer with a stream."""
    agent_id = AgentId(id_in_path("agent", request.path_params["agent_id"]))
    return await answer_message(request, await read_send(request, always_streams=True), agent_id)


async def _create_async(request: Request) -> Json[WireRun]:
    """Start a run in the background and answer with it."""
    agent_id = AgentId(id_in_path("agent", request.path_params["agent_id"]))
    body = await read_send(request, may_call_back=True)
    if body.streaming:
        raise InvalidInput(
            "streaming: messages/async does not stream; follow its run with POST /v1/runs/{run_id}/stream"
        )
    accepted = await _submit(request, body, agent_id, 0, background=True)
    # The run may be running already, but the wire calls a run that was just accepted `created`.
    return json_answer(WireRun.make(accepted.run, **({} if accepted.run.ended else {"status": "created"})))


hot_routes: Sequence[Route] = [
    Route("/v1/agents/{agent_id}/messages", _create, methods=["POST"]),
    Route("/v1/agents/{agent_id}/messages/stream", _create_stream, methods=["POST"]),
    Route("/v1/agents/{agent_id}/messages/async", _create_async, methods=["POST"]),
]
"""They come before every other route."""


async def answer_message(
    request: Request, body: SendRequest, agent_id: AgentId, conversation_seq: int = 0
) -> Json[Any] | StreamingResponse:
    """Send the messages of the request's body, and answer with the reply or, on request, with a stream of it.

    Raises: as `AsyncRequests.send_request`; nothing was stored then.
    """
    library = library_of(request)
    streams: Streams = request.app.state.streams
    accepted = await _submit(request, body, agent_id, conversation_seq, background=body.background)
    if body.streaming:
        mode = StreamMode(body.stream_tokens, body.include_pings, previews=not accepted.repeated, display=body.display)
        run, events = accepted.run, library.messages.follow_accepted(accepted)
        chunks = await chunks_again(library, run, mode) if accepted.repeated else Chunks(run, mode)
        return await streams.stream(events, chunks, pings=mode.pings)
    replying = library.messages.reply_to(accepted)
    return await reply_answer(streams, accepted, replying, lambda reply: letta_response(reply, body.display))


async def reply_answer(
    streams: Streams, accepted: Accepted, replying: Coroutine[Any, Any, Reply], shape: Callable[[Reply], dict[str, Any]]
) -> Json[Any]:
    """Wait for the run to end, and answer with a shape of its reply. A client that leaves does not stop the run."""
    run_id = accepted.run.id
    reply = await reply_or_answer(streams, replying, run_id)
    if isinstance(reply, Json):
        return reply
    failure = reply.failure
    if failure is not None and failure.kind != MAX_COST and reply.stop_reason in FAILED_BY_THE_MODEL:
        return failure_answer(failure, run_id=run_id, messages=shape(reply).get("messages", ()))
    if failure is not None and failure.kind == IrreducibleFloor.kind and not any(one.step_id for one in reply.messages):
        return failure_answer(failure, run_id=run_id)  # nothing was done: an empty success would hide why
    return json_answer(shape(reply))


async def reply_or_answer(streams: Streams, replying: Coroutine[Any, Any, T], name: str) -> T | Json[Any]:
    """The reply; or if it can't be waited for, the answer that says that the run, or turn, of this name goes on.

    Raises: NotFound.
    """
    waiting = streams.track(replying)
    try:
        await asyncio.wait({waiting})
    finally:
        waiting.cancel()
    if waiting.cancelled():
        return continuing_run_answer(None, name)
    try:
        return waiting.result()
    except NotFound:
        raise
    except PerdureError as error:
        return continuing_run_answer(error, name)


async def _submit(
    request: Request, body: SendRequest, agent_id: AgentId, conversation_seq: int, *, background: bool
) -> Accepted:
    """Start the run that answers the messages of a request."""
    library = library_of(request)
    callback = None if body.callback_url is None else request.app.state.gate.callback(body.callback_url)
    key = body.key(request.headers.get("idempotency-key"))
    run_request = body.run_request(agent_id, conversation_seq, background=background, key=key, callback=callback)
    return await library.messages.send_request(run_request)


# --- history


async def _history_query(  # no thread is needed for a coroutine
    before: MessageIdIn | None = None,
    after: MessageIdIn | None = None,
    limit: Limit = None,
    order: Order | None = None,
    order_by: OrderBy = None,
    include_return_message_types: Annotated[Items[MessageType] | None, Query()] = None,
) -> tuple[HistoryPage, frozenset[str] | None]:
    """The page of messages that a client asks for, and their types; None: all."""
    types = None if include_return_message_types is None else frozenset(include_return_message_types)
    return HistoryPage(before=before, after=after, limit=limit or 100, order=order), types


HistoryQuery = Annotated[tuple[HistoryPage, frozenset[str] | None], Depends(_history_query)]


async def history_answer(
    library: AsyncPerdure,
    agent_id: AgentId | None,
    conversation: ConversationId | Literal["default"] | None,
    page: HistoryPage,
    display: Display,
) -> Json[Any]:
    """Answer with messages of a conversation, or with None of all of the agent's, or of all agents."""
    shapes = await library.agent_of(agent_id).shown_messages(
        conversation, page, lambda message: wire_messages(message, display)
    )
    return json_answer(shapes)


GROUP_CONVERSATION: Point[[AsyncPerdure, GroupId, AgentId], Awaitable[ConversationId | None]] = Point(
    "group_conversation"
)
"""The conversation in which an agent speaks in a group; None: it is not of the group, or has not spoken."""


async def conversation_in_group(library: AsyncPerdure, group_id: GroupId, agent_id: AgentId) -> ConversationId | None:
    """As `GROUP_CONVERSATION`. Raises: NotFound."""
    return next(filter(None, [await one for one in GROUP_CONVERSATION(library, group_id, agent_id)]), None)


@router.get("/v1/agents/{agent_id}/messages")
async def list_agent_messages(
    library: Library,
    agent_id: AgentIdIn,
    history: HistoryQuery,
    conversation_id: ConversationOrDefault | None = None,
    group_id: GroupIdIn | None = None,
    use_assistant_message: bool = True,
    assistant_message_tool_name: str = SEND_MESSAGE,
    assistant_message_tool_kwarg: str = "message",
) -> Json[list[Message]]:
    """List the messages of all conversations of the agent, of one, or of the one in which it speaks in a group."""
    page, types = history
    display = Display(types, use_assistant_message, assistant_message_tool_name, assistant_message_tool_kwarg)
    conversation = None if conversation_id is None else ConversationId(conversation_id)
    if group_id is not None:
        in_group = await conversation_in_group(library, group_id, agent_id)
        if in_group is None or conversation not in (None, in_group):
            return json_answer([])
        conversation = in_group
    return await history_answer(library, agent_id, conversation, page, display)


@router.post("/v1/agents/{agent_id}/messages/import")
async def import_messages(library: Library, agent_id: AgentIdIn, body: ImportRequest) -> Json[Imported]:
    """Append messages from elsewhere, with their times, to a conversation, by default the agent's first. Messages that
    are there already are skipped. No model is called."""
    is_first = body.conversation_id in (None, "default")
    conversation = None if is_first else ConversationId(body.conversation_id or "")
    result = await library.agent_of(agent_id).import_messages(body.messages, conversation=conversation)
    return json_answer(Imported.make(result))


@router.post("/v1/agents/{agent_id}/messages/capture")
async def capture_messages(library: Library, agent_id: AgentIdIn, body: CaptureRequest) -> Json[Captured]:
    """Append what a program said to a provider, and what that answered, to the agent's first conversation. No model is
    called."""
    said = body.messages(library.app.ports.clock.now())
    result = await library.agent_of(agent_id).import_messages(said, source=body.provider)
    return json_answer({"success": True, **Imported.make(result)})


@router.get("/v1/messages/")
async def list_messages(
    library: Library, history: HistoryQuery, conversation_id: ConversationOrDefault | None = None
) -> Json[list[Message]]:
    """List the messages of all agents, or of one conversation, the newest first. The cursors work as in the list of an
    agent. System messages are listed with their conversation only."""
    page, types = history
    conversation = None if conversation_id is None else ConversationId(conversation_id)
    return await history_answer(library, None, conversation, replace(page, newest_first=True), Display(types))


@router.get("/v1/messages/{message_id}")
async def retrieve_message(library: Library, message_id: MessageIdIn) -> Json[list[Message]]:
    """Get the wire messages that show one stored message."""
    return json_answer(wire_messages(await library.messages.message(message_id), Display()))


@router.patch("/v1/agents/{agent_id}/messages/{message_id}")
async def modify_message(
    library: Library, agent_id: AgentIdIn, message_id: MessageIdIn, body: MessageChange
) -> Json[Message]:
    """Change what a message says, and answer with it. The model sees the new text from its next request on, searches
    find it, and the log keeps the old one. 409 while a run of its conversation has not ended. The system message of a
    conversation changes with the agent's `system`."""
    part, parts = body.edit()
    call_id = body.tool_call_id if isinstance(body, ReturnChange) else None
    message = await library.agent_of(agent_id).edit_message(message_id, part, parts, call_id=call_id)
    shapes = wire_messages(message, Display(use_assistant_message=part in (None, "assistant")))
    kind = f"{message.role}_message" if body.message_type == "message" else body.message_type
    return json_answer(next((shape for shape in shapes if shape["message_type"] == kind), shapes[0]))


@router.post("/v1/agents/{agent_id}/messages/cancel")
async def cancel_messages(
    library: Library, agent_id: AgentIdIn, body: CancelRequest | None = None
) -> Json[dict[str, str]]:
    """Cancel these runs of the agent, or all that have not ended. Answers with run id -> `cancelled`, or the status of
    a run that had ended before. 409 if no run is named and none runs."""
    run_ids = None if body is None else body.run_ids
    runs = await library.agent_of(agent_id).cancel_all(whole_agent=True, run_ids=run_ids)
    if not runs and run_ids is None:
        raise Conflict(f"there is nothing to cancel: agent {agent_id} has no active run")
    return cancelled_answer(runs)


def cancelled_answer(runs: Sequence[Run]) -> Json[Any]:
    """Answer with run id -> `cancelled`, or the status of a run that had ended before."""
    return json_answer({run.id: run.status if run.ended else "cancelled" for run in runs})


@router.patch("/v1/agents/{agent_id}/reset-messages")
async def reset_messages(library: Library, agent_id: AgentIdIn, body: ResetRequest | None = None) -> WireAgent:
    """Take all conversations' messages out of view; answer with the agent. 409 while a run has not ended."""
    await library.agent_of(agent_id).reset()
    return await agent_answer(library, agent_id)
