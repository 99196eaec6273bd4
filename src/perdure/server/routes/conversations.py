"""Conversations: several lines of messages of one agent, which go on at the same time over the same memory.

Where one is named, `default` with an `agent_id`, or the id of an agent itself, is the agent's first; that one is in no
list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query
from fastapi.exceptions import RequestValidationError
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perdure.core.conversations import Conversation, ConversationFilter, ConversationOrder
from perdure.core.errors import Conflict, InvalidInput, NotFound
from perdure.core.ids import AgentId, ConversationId, RunId, is_id
from perdure.core.runs import Run
from perdure.engine.conversations.reset import delete_conversation
from perdure.library.perdure import AsyncPerdure
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import ConversationPath, IdFormat
from perdure.server.limits import Items
from perdure.server.routes.messages import MessageCursor, answer_message, cancelled, list_messages, unfinished_runs
from perdure.server.routes.runs import resumed
from perdure.server.wire.approvals import in_context_ids
from perdure.server.wire.base import WIRE_AUTHOR
from perdure.server.wire.conversations import ConversationChangesIn, ConversationIn, conversation_shape
from perdure.server.wire.input import ResumeRequest, key_of_otids, read_body, read_send, take_body
from perdure.server.wire.messages import MessageType, Shown
from perdure.server.wire.paging import Limit, Order
from perdure.storage.tx import Tx

__all__ = ["hot_routes", "router"]

router = APIRouter(tags=["conversations"])

AgentQuery = Annotated[Annotated[AgentId, IdFormat("agent")] | None, Query()]

_ORDERS: dict[str, ConversationOrder] = {
    "created_at": "created",
    "last_message_at": "last_message",
    "last_run_completion": "last_run",
}
_ARCHIVED = {"unarchived": False, "archived": True, "all": None}


async def _send(request: Request) -> Response:
    perdure: AsyncPerdure = request.app.state.perdure
    body = read_send(await take_body(request), streams_unless_told=True)
    line = await _line(perdure, request.path_params["conversation_id"], body.agent_id)
    return await answer_message(request, body, line.agent_id, line.seq)


hot_routes: Sequence[Route] = [Route("/v1/conversations/{conversation_id}/messages", _send, methods=["POST"])]
"""They come before every other route."""


@router.post("/v1/conversations/")
async def create(
    body: ConversationIn, library: Library, agent_id: Annotated[AgentId, IdFormat("agent"), Query()]
) -> Response:
    """A new line of messages of an agent, over the same memory."""
    body.check()
    ports = library.app.ports
    conversation_id, now = ConversationId(ports.ids.new("conversation")), ports.clock.now()

    def unit(tx: Tx) -> Conversation:
        return tx.conversations.add(
            agent_id, conversation_id, at=now, summary=body.summary, settings=body.settings, hidden=bool(body.hidden)
        )

    return json_answer(conversation_shape(await ports.store.write(unit), ()))


@router.get("/v1/conversations/")
async def list_conversations(
    library: Library,
    agent_id: AgentQuery = None,
    after: Annotated[Annotated[ConversationId, IdFormat("conversation")] | None, Query()] = None,
    limit: Limit = None,
    order: Annotated[Order, Query()] = "desc",
    order_by: Annotated[Literal["created_at", "last_message_at", "last_run_completion"], Query()] = "created_at",
    archive_status: Annotated[Literal["unarchived", "archived", "all"], Query()] = "unarchived",
    summary_search: Annotated[str | None, Query(description="A part of the summary, in any case.")] = None,
) -> Response:
    """Conversations of an agent, or of all, without the agents' first ones; `after` is relative to the order."""
    where = ConversationFilter(agent_id=agent_id, archived=_ARCHIVED[archive_status], text=summary_search)

    def unit(tx: Tx) -> list[Any]:
        found = tx.conversations.page(
            where,
            order=_ORDERS[order_by],
            ascending=order == "asc",
            limit=limit or 50,
            after=None if after is None else ConversationId(after),
        )
        return [conversation_shape(conversation) for conversation in found]

    return json_answer(await library.app.store.read(unit))


@router.get("/v1/conversations/{conversation_id}")
async def retrieve(conversation_id: ConversationPath, library: Library, agent_id: AgentQuery = None) -> Response:
    """A conversation with the messages in its view."""
    line = await _line(library, conversation_id, agent_id)
    return json_answer(await library.app.store.read(_whole, line))


@router.patch("/v1/conversations/{conversation_id}")
async def update(
    conversation_id: ConversationPath, body: ConversationChangesIn, library: Library, agent_id: AgentQuery = None
) -> Response:
    """Change what is said about a conversation, or whether it is archived. It takes messages either way."""
    body.check()
    now = library.app.ports.clock.now()
    named = await _line(library, conversation_id, agent_id or body.agent_id)

    def unit(tx: Tx) -> dict[str, Any]:
        tx.agents.lock(named.agent_id)
        line = tx.conversations.get(named.id)
        return _whole(tx, tx.conversations.put(replace(line, **body.changed(line, at=now)), at=now))

    return json_answer(await library.app.store.write(unit))


@router.delete("/v1/conversations/{conversation_id}")
async def delete(conversation_id: ConversationPath, library: Library, agent_id: AgentQuery = None) -> Response:
    """Take a conversation, and what was said in it, out of every list and view. 409 while a run is on, 422 for an
    agent's first one, which stays."""
    line = await _line(library, conversation_id, agent_id)
    await delete_conversation(line.id, library.app.ports, author=WIRE_AUTHOR)
    return json_answer(None)


@router.get("/v1/conversations/{conversation_id}/messages")
async def list_conversation_messages(
    conversation_id: ConversationPath,
    library: Library,
    agent_id: AgentQuery = None,
    before: MessageCursor = None,
    after: MessageCursor = None,
    limit: Limit = None,
    order: Annotated[Order | None, Query()] = None,
    order_by: Annotated[Literal["created_at"], Query()] = "created_at",
    include_return_message_types: Annotated[Items[MessageType] | None, Query()] = None,
) -> Response:
    """What was said in the conversation; pages as of an agent's history."""
    line = await _line(library, conversation_id, agent_id)
    types = None if include_return_message_types is None else frozenset(include_return_message_types)
    messages = await library.app.store.read(
        list_messages,
        line.agent_id,
        conversation_id="default" if line.seq == 0 else line.id,
        before=before,
        after=after,
        limit=limit or 100,
        order=order,
        shown=Shown(types),
    )
    return json_answer(messages)


@router.post("/v1/conversations/{conversation_id}/cancel")
async def cancel(conversation_id: ConversationPath, library: Library, agent_id: AgentQuery = None) -> Response:
    """Ask every run of the conversation that has not ended to stop. Run id -> `cancelled`, or the status it had ended
    with before. 409 if there is none."""
    line = await _line(library, conversation_id, agent_id)
    runs, waiting = await library.app.store.read(unfinished_runs, line.agent_id, line.seq)
    if not runs:
        raise Conflict(f"there is nothing to cancel: conversation {conversation_id} has no active run")
    return await cancelled(library, runs, waiting)


@router.post("/v1/conversations/{conversation_id}/stream")
async def resume(conversation_id: ConversationPath, library: Library, request: Request) -> Response:
    """The stream of a background run of the conversation, from where the body says. 400 if there is none."""
    body = read_body(ResumeRequest, await take_body(request))
    line = await _line(library, conversation_id, None if body.agent_id is None else AgentId(body.agent_id))
    run = await library.app.store.read(_run_to_resume, line, body)
    if run is None:
        raise HTTPException(400, "No active runs found for this conversation.")
    return await resumed(library, request, run, body)


def _run_to_resume(tx: Tx, line: Conversation, body: ResumeRequest) -> Run | None:
    """Raises: NotFound: the conversation has no such run."""
    if body.run_id is not None:
        run = tx.runs.get(RunId(body.run_id))
        if (run.key.agent_id, run.conversation_seq) != (line.agent_id, line.seq):
            raise NotFound("run", run.id)
        return run
    if body.otid is not None:
        known = tx.runs.find_by_key(line.agent_id, line.seq, key_of_otids([body.otid]))
        return None if known is None else known[0]
    runs, waiting = unfinished_runs(tx, line.agent_id, line.seq)
    return next((run for run in runs if run.id not in waiting), None)


def _whole(tx: Tx, line: Conversation) -> dict[str, Any]:
    return conversation_shape(line, in_context_ids(tx, line.agent_id, line.seq))


async def _line(perdure: AsyncPerdure, conversation_id: str, agent_id: str | None) -> Conversation:
    """The conversation that a path names. Raises: RequestValidationError, InvalidInput, NotFound."""
    if is_id("agent", conversation_id):
        conversation_id, agent_id = "default", conversation_id
    if conversation_id != "default":
        try:
            IdFormat("conversation").check(conversation_id)
        except PydanticCustomError as error:
            where = ("path", "conversation_id")
            wrong = {"type": error.type, "loc": where, "msg": error.message(), "input": conversation_id}
            raise RequestValidationError([wrong]) from error
    elif agent_id is None:
        raise InvalidInput("agent_id: the conversation 'default' needs one")

    def find(tx: Tx) -> Conversation:
        if conversation_id == "default":
            owner = AgentId(str(agent_id))
            tx.agents.model(owner)
            return tx.conversations.at(owner, 0)
        line = tx.conversations.get(ConversationId(conversation_id))
        if agent_id not in (None, line.agent_id):
            raise NotFound("conversation", conversation_id, hint=f"agent {agent_id} has no such conversation")
        return line

    return await perdure.app.store.read(find)
