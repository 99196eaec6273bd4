"""Messages: saying something to an agent, whole or as a stream; its history; stopping what runs.

What is said goes through plain routes (`hot_routes`), because these are what most requests are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.exceptions import RequestValidationError
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perdure.context.request.authorship import input_tokens
from perdure.core.errors import Conflict, InvalidInput, NotFound, PerdureError
from perdure.core.events import MessageAdded, RunEnded, StoredEvent
from perdure.core.ids import AgentId, ConversationId, MessageId, RunId
from perdure.core.messages import Message
from perdure.core.runs import Run, RunFilter, RunKey
from perdure.engine.approvals.answers import find_pending
from perdure.engine.approvals.decisions import calls_of_request
from perdure.engine.conversations.reset import reset_conversations
from perdure.engine.run.accept import Accepted
from perdure.engine.run.accept import Request as RunRequest
from perdure.library.perdure import AsyncPerdure
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.errors import failure_answer, kept_answer
from perdure.server.ids import AgentPath, IdFormat, MessagePath
from perdure.server.limits import Items
from perdure.server.routes.agents import agent_reply, parts_of
from perdure.server.sse import Streams, stream
from perdure.server.wire.approvals import answers_in, named_request, with_calls
from perdure.server.wire.base import WIRE_AUTHOR
from perdure.server.wire.chunks import StreamMode
from perdure.server.wire.input import (
    CancelRequest,
    ImportRequest,
    ResetRequest,
    SendRequest,
    brought_along,
    drafts_of,
    key_of,
    read_body,
    read_send,
    take_body,
)
from perdure.server.wire.messages import SEND_MESSAGE, MessageType, Shown, wire_messages
from perdure.server.wire.paging import Limit, Order
from perdure.server.wire.runs import letta_response, wire_run
from perdure.storage.tx import Tx

__all__ = [
    "MessageCursor",
    "answer_message",
    "cancelled",
    "hot_routes",
    "list_messages",
    "router",
    "unfinished_runs",
]

router = APIRouter()

FAILED_BY_THE_MODEL = frozenset({"error", "llm_api_error", "invalid_llm_response", "insufficient_credits"})
"""Stop reasons that are answered with an error; the others are answered with what was said until then."""

SCANNED_MAX = 10_000
FIRST_LOOKED_AT = 20
WHOLE_PAGE = 50
"""Of shorter pages it happens too often that as many messages are new as would fill some."""

MessageCursor = Annotated[Annotated[str, IdFormat("message")] | None, Query()]
ConversationQuery = Annotated[Annotated[str, IdFormat("conversation", words=("default",))] | None, Query()]


async def _create(request: Request) -> Response:
    agent_id = _agent_id(request)
    return await answer_message(request, read_send(await take_body(request)), agent_id)


async def _create_stream(request: Request) -> Response:
    agent_id = _agent_id(request)
    return await answer_message(request, read_send(await take_body(request), streaming=True), agent_id)


async def _create_async(request: Request) -> Response:
    """The run, which is answered in the background."""
    agent_id, perdure = _agent_id(request), _perdure(request)
    body = read_send(await take_body(request))
    if body.streaming:
        raise InvalidInput(
            "streaming: messages/async does not stream; follow its run with POST /v1/runs/{run_id}/stream"
        )
    accepted = await _accept(perdure, agent_id, 0, body, request.headers.get("idempotency-key"), background=True)
    if not accepted.repeated:
        _streams(request).remember(accepted.run.id, StreamMode(tokens=True, shown=body.shown))
    # It may be under way already: the wire calls what was just accepted `created`.
    return json_answer(wire_run(accepted.run, status=None if accepted.run.ended else "created"))


hot_routes: Sequence[Route] = [
    Route("/v1/agents/{agent_id}/messages", _create, methods=["POST"]),
    Route("/v1/agents/{agent_id}/messages/stream", _create_stream, methods=["POST"]),
    Route("/v1/agents/{agent_id}/messages/async", _create_async, methods=["POST"]),
]
"""They come before every other route."""


async def answer_message(request: Request, body: SendRequest, agent_id: AgentId, conversation_seq: int = 0) -> Response:
    """Say what the request's body says, and answer with the reply or, if asked for, a stream of it.

    Raises: whatever accepting raises; nothing was kept then.
    """
    perdure, streams = _perdure(request), _streams(request)
    accepted = await _accept(
        perdure, agent_id, conversation_seq, body, request.headers.get("idempotency-key"), background=body.background
    )
    run = accepted.run
    if not body.streaming:
        return await _whole(perdure, streams, accepted, body.shown)
    mode = StreamMode(body.stream_tokens, body.include_pings, previews=not accepted.repeated, shown=body.shown)
    if run.background:
        streams.remember(run.id, mode)
    told = perdure.app.runner.follow(run, known=accepted.events)
    return await stream(run, told, mode, streams=streams, clock=perdure.app.ports.clock)


async def _accept(
    perdure: AsyncPerdure,
    agent_id: AgentId,
    conversation_seq: int,
    body: SendRequest,
    key: str | None,
    *,
    background: bool,
) -> Accepted:
    ports = perdure.app.ports
    run_id = RunId(ports.ids.new("run"))
    drafts, answers = drafts_of(body, run_id, ports.ids), answers_in(body.messages or ())
    if answers is not None and (named := {one for one in map(named_request, answers) if one is not None}):
        answers = with_calls(answers, await perdure.app.store.read(_asked, agent_id, conversation_seq, named))
    limit = ports.settings.message_limit_chars
    texts = ["\n".join(part.text for part in draft.parts if part.type == "text") for draft in drafts]
    # A text over the limit is refused before anything is done with it, so it is not counted either.
    tokens = [
        0 if len(text) > limit else input_tokens(draft.role, text, ports.counter)
        for draft, text in zip(drafts, texts, strict=True)
    ]
    return await perdure.app.runner.accept(
        RunRequest(
            run_id=run_id,
            agent_id=agent_id,
            conversation_seq=conversation_seq,
            drafts=drafts,
            tokens=tuple(tokens),
            idempotency_key=key_of(key, body),
            answers=answers,
            client_tools=brought_along(body),
            if_busy=body.if_busy,
            background=background,
            max_steps=await _max_steps(perdure, agent_id, conversation_seq, body, answers=answers is not None),
        )
    )


async def _max_steps(
    perdure: AsyncPerdure, agent_id: AgentId, conversation_seq: int, body: SendRequest, *, answers: bool
) -> int | None:
    """The limit of the request. An answer without one goes on with what is left of that of the message, if it had one
    of its own; else each request counts anew, or a client with tools of its own could make only so many calls."""
    usual = perdure.app.settings.max_steps
    if body.max_steps is not None or not answers:
        return usual if body.max_steps is None else body.max_steps
    stopped = await perdure.app.store.read(_stopped, agent_id, conversation_seq)
    return usual if stopped is None or stopped.max_steps == usual else None


def _stopped(tx: Tx, agent_id: AgentId, conversation_seq: int) -> Run | None:
    pending = find_pending(tx, tx.conversations.at(agent_id, conversation_seq))
    return None if pending is None else pending.run


def _asked(tx: Tx, agent_id: AgentId, conversation_seq: int, requests: Iterable[str]) -> dict[str, Sequence[str]]:
    conversation = tx.conversations.at(agent_id, conversation_seq)
    return {request: calls_of_request(tx, conversation, request) for request in requests}


async def _whole(perdure: AsyncPerdure, streams: Streams, accepted: Accepted, shown: Shown) -> Response:
    """The reply when the run has ended. A client that leaves meanwhile does not stop the run."""
    run, messages = accepted.run, list[Message]()
    end: RunEnded | None = None
    try:
        with streams.waiting():
            async for told in perdure.app.runner.follow(run, known=accepted.events):
                match told:
                    case StoredEvent(event=MessageAdded(message=Message() as message)):
                        messages.append(message)
                    case StoredEvent(event=RunEnded() as end):
                        pass
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not streams.stopping or task is None:
            raise
        task.uncancel()
        return kept_answer(None, run.id)
    except NotFound:
        raise
    except PerdureError as error:
        return kept_answer(error, run.id)
    assert end is not None
    if end.failure is not None and end.stop_reason in FAILED_BY_THE_MODEL:
        return failure_answer(end.failure, run_id=run.id)
    return json_answer(letta_response(messages, end, shown))


@router.get("/v1/agents/{agent_id}/messages")
async def list_agent_messages(
    library: Library,
    agent_id: AgentPath,
    before: MessageCursor = None,
    after: MessageCursor = None,
    limit: Limit = None,
    order: Annotated[Order | None, Query()] = None,
    order_by: Annotated[Literal["created_at"], Query()] = "created_at",
    conversation_id: ConversationQuery = None,
    use_assistant_message: bool = True,
    assistant_message_tool_name: str = SEND_MESSAGE,
    assistant_message_tool_kwarg: str = "message",
    include_return_message_types: Annotated[Items[MessageType] | None, Query()] = None,
) -> Response:
    """The agent's history over all its conversations, or of one."""
    types = None if include_return_message_types is None else frozenset(include_return_message_types)
    shown = Shown(types, use_assistant_message, assistant_message_tool_name, assistant_message_tool_kwarg)
    messages = await library.app.store.read(
        list_messages,
        agent_id,
        conversation_id=conversation_id,
        before=before,
        after=after,
        limit=limit or 100,
        order=order,
        shown=shown,
    )
    return json_answer(messages)


def list_messages(
    tx: Tx,
    agent_id: AgentId,
    *,
    conversation_id: str | None,
    before: str | None,
    after: str | None,
    limit: int,
    order: Order | None,
    shown: Shown,
) -> list[dict[str, Any]]:
    """A page of wire messages, made of up to `limit` stored ones that show something; none is split.

    `after` are the newer ones and `before` the older ones, whatever the order, and those nearest to the cursor. But
    with `order=desc` spelled out and `after` alone, who asks walks through the list as it is shown, to older ones; and
    so does, where no order is given, who asks after the last of a page (`_reads_backwards`).
    Raises: NotFound: no such agent, message or conversation of it.
    """
    tx.agents.model(agent_id)
    seq = _conversation_seq(tx, agent_id, conversation_id)
    after_seq, before_seq = _seq_of(tx, agent_id, after), _seq_of(tx, agent_id, before)
    if after_seq is not None and before is None:
        walks = order == "desc" or (
            order is None and _reads_backwards(tx, agent_id, seq, after_seq, limit=limit, shown=shown)
        )
        if walks:
            after, before, after_seq, before_seq = None, after, None, after_seq
    newest_shown_first = order != "asc"
    backwards = before is not None if (after is None) != (before is None) else newest_shown_first
    found: list[list[dict[str, Any]]] = []
    scanned = 0
    while len(found) < limit and scanned < SCANNED_MAX:
        size = limit - len(found) if shown.types is None else max(limit - len(found), 100)
        page = tx.messages.list(
            agent_id,
            conversation_seq=seq,
            after_seq=after_seq,
            before_seq=before_seq,
            limit=size,
            newest_first=backwards,
        )
        found += [shapes for message in page if (shapes := wire_messages(message, shown))]
        scanned += len(page)
        if len(page) < size:
            break
        if backwards:
            before_seq = page[-1].seq
        else:
            after_seq = page[-1].seq
    del found[limit:]
    if backwards:
        found.reverse()
    flat = [shape for shapes in found for shape in shapes]
    return flat[::-1] if newest_shown_first else flat


@router.post("/v1/agents/{agent_id}/messages/import")
async def import_messages(library: Library, agent_id: AgentPath, body: ImportRequest) -> Response:
    """Put history that took place elsewhere at the end of a conversation, by default the agent's first, with its times.
    What is there already is skipped. No model is asked."""
    wanted = body.conversation_id
    agent = await library.agent(agent_id)
    result = await agent.import_messages(
        body.messages, conversation=None if wanted in (None, "default") else ConversationId(wanted)
    )
    return json_answer(asdict(result) | {"hint": result.hint or None})


@router.get("/v1/messages/{message_id}")
async def retrieve_message(library: Library, message_id: MessagePath) -> Response:
    """The wire messages that one stored message is shown as."""
    message = await library.app.store.read(lambda tx: tx.messages.get(message_id))
    return json_answer(wire_messages(message, Shown()))


@router.post("/v1/agents/{agent_id}/messages/cancel")
async def cancel_messages(library: Library, agent_id: AgentPath, request: Request) -> Response:
    """Ask runs of the agent to stop: those named, or all that have not ended. Run id -> `cancelled`, or the status it
    had ended with before. 409 if none was named and none runs."""
    body = read_body(CancelRequest, await take_body(request))
    runs, waiting = await library.app.store.read(_runs_to_cancel, agent_id, body.run_ids)
    if not runs and body.run_ids is None:
        raise Conflict(f"there is nothing to cancel: agent {agent_id} has no active run")
    return await cancelled(library, runs, waiting)


async def cancelled(library: AsyncPerdure, runs: Sequence[Run], waiting: Collection[RunId]) -> Response:
    """Ask the runs to stop; those `waiting` have stopped at calls, which are given up. Run id -> what became of it."""
    told: dict[str, str] = {}
    for run in runs:
        stopped = run.id in waiting
        run = await library.app.runner.cancel(run.id)
        told[run.id] = run.status if run.ended and not stopped else "cancelled"
    return json_answer(told)


@router.patch("/v1/agents/{agent_id}/reset-messages")
async def reset_messages(library: Library, agent_id: AgentPath, request: Request) -> Response:
    """Take the messages of all conversations of the agent out of view; the agent as it then is. 409 while a run is
    on."""
    read_body(ResetRequest, await take_body(request) or b"{}")
    await reset_conversations(agent_id, None, library.app.ports, author=WIRE_AUTHOR)
    parts = await library.app.store.read(lambda tx: parts_of(tx, tx.agents.get(agent_id)))
    return json_answer(agent_reply(library, parts))


def unfinished_runs(tx: Tx, agent_id: AgentId, conversation_seq: int | None = None) -> tuple[list[Run], set[RunId]]:
    """The runs of an agent, or of one of its conversations, that have not ended; and those that have stopped at calls
    which wait for somebody."""
    active = tx.runs.page(
        RunFilter(agent_ids=(agent_id,), conversation_seq=conversation_seq, statuses=("queued", "running")), limit=1_000
    )
    lines = tx.conversations.waiting(agent_id, limit=1_000)
    stopped = [
        tx.runs.at(RunKey(agent_id, line.pending_run_seq))
        for line in lines
        if line.pending_run_seq is not None and conversation_seq in (None, line.seq)
    ]
    return [*active, *stopped], {run.id for run in stopped}


def _runs_to_cancel(tx: Tx, agent_id: AgentId, run_ids: list[str] | None) -> tuple[list[Run], set[RunId]]:
    """The runs, and those that have stopped at calls which wait for somebody: these are cancelled too."""
    tx.agents.model(agent_id)
    unfinished, waiting = unfinished_runs(tx, agent_id)
    if run_ids is None:
        return unfinished, waiting
    runs = [tx.runs.get(RunId(run_id)) for run_id in run_ids]
    for run in runs:
        if run.key.agent_id != agent_id:
            raise NotFound("run", run.id)
    return runs, waiting


def _conversation_seq(tx: Tx, agent_id: AgentId, conversation_id: str | None) -> int | None:
    if conversation_id is None:
        return None
    if conversation_id == "default":
        return 0
    conversation = tx.conversations.get(ConversationId(conversation_id))
    if conversation.agent_id != agent_id:
        raise NotFound("conversation", conversation_id)
    return conversation.seq


def _reads_backwards(
    tx: Tx, agent_id: AgentId, conversation_seq: int | None, seq: int, *, limit: int, shown: Shown
) -> bool:
    """Whether a page of this query, the newest first, ended at this message: then the clients' loops ask for the page
    after it, and would otherwise be given the messages that they have, again and again.

    No loop asks for what is newer than the first message there is. Elsewhere whole pages tell, if they are long. At one
    that is out of view no page ends.
    """
    if not tx.messages.by_seqs(agent_id, [seq]):
        return False
    older = tx.messages.list(
        agent_id, conversation_seq=conversation_seq, before_seq=seq, limit=FIRST_LOOKED_AT, newest_first=True
    )
    if len(older) < FIRST_LOOKED_AT and not any(wire_messages(message, shown) for message in older):
        return True
    if limit < WHOLE_PAGE or shown.types is not None:
        return False
    return (tx.messages.count_after(agent_id, seq, conversation_seq=conversation_seq) + 1) % limit == 0


def _seq_of(tx: Tx, agent_id: AgentId, message_id: str | None) -> int | None:
    if message_id is None:
        return None
    owner_id, seq = tx.messages.place(MessageId(message_id))  # pages go on from one that a reset took away meanwhile
    if owner_id != agent_id:
        raise NotFound("message", message_id)
    return seq


def _agent_id(request: Request) -> AgentId:
    """The agent's id in a plain route's path. Raises: RequestValidationError."""
    value: str = request.path_params["agent_id"]
    try:
        return AgentId(IdFormat("agent").check(value))
    except PydanticCustomError as error:
        raise RequestValidationError(
            [{"type": error.type, "loc": ("path", "agent_id"), "msg": error.message(), "input": value}]
        ) from error


def _perdure(request: Request) -> AsyncPerdure:
    perdure: AsyncPerdure = request.app.state.perdure
    return perdure


def _streams(request: Request) -> Streams:
    streams: Streams = request.app.state.streams
    return streams
