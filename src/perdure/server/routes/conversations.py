"""Conversations: several lines of messages of one agent over the same memory.

In place of a conversation's id, `default` with an `agent_id`, or the id of an agent, means the agent's first
conversation. Lists leave the first one out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import Depends, HTTPException, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from perdure.core.conversations import ConversationFilter, ConversationOrder
from perdure.core.errors import Conflict, InvalidInput
from perdure.core.ids import AgentId, ConversationId, is_id
from perdure.library.agent import AsyncAgentById
from perdure.library.parts.checks import Page
from perdure.server.routes.messages import HistoryQuery, answer_message, cancelled_answer, conversation_in_group
from perdure.server.routes.runs import resume_stream
from perdure.server.wire import conversations as wire
from perdure.server.wire.answers import Message, WireReply
from perdure.server.wire.fields import AgentIdIn, ConversationIdIn, ConversationPath, GroupIdIn, MessageIdIn, id_in_path
from perdure.server.wire.http import Json, Library, Limit, Order, Router, library_of
from perdure.server.wire.input import ResumeRequest, key_of_otids, read_send
from perdure.server.wire.messages import Display, wire_messages

router = Router(tags=["conversations"])

_ORDERS: dict[str, ConversationOrder] = {
    "created_at": "created",
    "last_message_at": "last_message",
    "last_run_completion": "last_run",
}
_ARCHIVED = {"unarchived": False, "archived": True, "all": None}


async def find_in_path(
    library: Library, conversation_id: ConversationPath, agent_id: AgentIdIn | None = None
) -> tuple[AsyncAgentById, ConversationId | None]:
    """The agent and the conversation that a path names; no conversation is the agent's first.

    Raises: RequestValidationError, InvalidInput.
    """
    if is_id("agent", conversation_id):
        return library.agent_of(AgentId(conversation_id)), None
    if conversation_id != "default":
        return library.agent_of(agent_id), ConversationId(id_in_path("conversation", conversation_id))
    if agent_id is None:
        raise InvalidInput("agent_id: the conversation 'default' needs one")
    return library.agent_of(agent_id), None


Found = Annotated[tuple[AsyncAgentById, ConversationId | None], Depends(find_in_path)]
"""The agent and the conversation that a path names."""


async def _send(request: Request) -> Json[WireReply] | StreamingResponse:
    """Send messages to a conversation. The answer is a stream unless the body says otherwise."""
    body = await read_send(request, streams_by_default=True)
    agent, named = await find_in_path(library_of(request), request.path_params["conversation_id"], body.agent_id)
    conversation = await agent.find_conversation(named)
    return await answer_message(request, body, conversation.agent_id, conversation.seq)


hot_routes: Sequence[Route] = [Route("/v1/conversations/{conversation_id}/messages", _send, methods=["POST"])]
"""They come before every other route."""


@router.post("/v1/conversations/")
async def create(body: wire.ConversationIn, library: Library, agent_id: AgentIdIn) -> wire.WireConversation:
    """Create a conversation of an agent. Its runs see and edit copies of the blocks with `isolated_block_labels`, in
    place of the agent's; 404 for a label that the agent has not."""
    conversation = await library.agent_of(agent_id).create_conversation(
        body.values(), hidden=bool(body.hidden), isolated_labels=body.isolated_block_labels or ()
    )
    return wire.WireConversation.make(conversation)


@router.get("/v1/conversations/")
async def list_conversations(
    library: Library,
    agent_id: AgentIdIn | None = None,
    after: ConversationIdIn | None = None,
    limit: Limit = None,
    order: Order = "desc",
    order_by: Literal["created_at", "last_message_at", "last_run_completion"] = "created_at",
    archive_status: Literal["unarchived", "archived", "all"] = "unarchived",
    summary_search: Annotated[str | None, Query(description="A part of the summary, in any case.")] = None,
) -> list[wire.WireConversation]:
    """List conversations of an agent, or of all, without the agents' first ones; `after` is relative to the order."""
    where = ConversationFilter(agent_id=agent_id, archived=_ARCHIVED[archive_status], text=summary_search)
    page = Page(limit or 50, order == "asc", after)
    conversations = await library.conversations.page_of_states(where, page, _ORDERS[order_by])
    return [wire.WireConversation.make(conversation) for conversation in conversations]


@router.post("/v1/conversations/ephemeral")
async def create_ephemeral(body: wire.EphemeralConversationIn, library: Library) -> wire.WireConversation:
    """Create a conversation without an agent of yours. Its own agent has this prompt, no blocks and no tools; neither
    is in a list, and both are deleted together."""
    return wire.WireConversation.make(
        await library.conversations.create_ephemeral(body.model, body.system, body.values())
    )


@router.get("/v1/conversations/{conversation_id}")
async def retrieve(found: Found) -> wire.WireConversation:
    """Get a conversation with the ids of the messages in view."""
    agent, named = found
    return wire.WireConversation.make(await agent.conversation_state(named))


@router.patch("/v1/conversations/{conversation_id}")
async def update(
    conversation_id: ConversationPath,
    body: wire.ConversationChangesIn,
    library: Library,
    agent_id: AgentIdIn | None = None,
) -> wire.WireConversation:
    """Change a conversation's texts, its own settings, or whether it is archived; it takes messages either way."""
    body.check_supported()
    agent, named = await find_in_path(library, conversation_id, agent_id or body.agent_id)
    return wire.WireConversation.make(await agent.change_conversation(named, body.changes()))


@router.delete("/v1/conversations/{conversation_id}")
async def delete(found: Found) -> None:
    """Remove a conversation and its messages from every list and view. 409 while a run has not ended, 422 for an
    agent's first one, which stays."""
    agent, named = found
    await agent.delete_conversation(named)


@router.get("/v1/conversations/{conversation_id}/messages")
async def list_conversation_messages(
    found: Found, library: Library, history: HistoryQuery, group_id: GroupIdIn | None = None
) -> Sequence[Message]:
    """List the messages of the conversation, the newest first. The cursors work as in the list of an agent. With a
    group, none if the conversation is not one of its agents'."""
    agent, named = found
    if group_id is not None:
        conversation = await agent.find_conversation(named)
        if await conversation_in_group(library, group_id, conversation.agent_id) != conversation.id:
            return []
    page, types = history
    page, display = replace(page, newest_first=True), Display(types)
    return await agent.shown_messages(named or "default", page, lambda message: wire_messages(message, display))


@router.post("/v1/conversations/{conversation_id}/cancel")
async def cancel(conversation_id: ConversationPath, found: Found) -> Json[dict[str, str]]:
    """Cancel every run of the conversation that has not ended. Answers with run id -> `cancelled`, or the status of a
    run that had ended before. 409 if there is none."""
    agent, named = found
    runs = await agent.cancel_all(conversation=named)
    if not runs:
        raise Conflict(f"there is nothing to cancel: conversation {conversation_id} has no active run")
    return cancelled_answer(runs)


@router.post("/v1/conversations/{conversation_id}/compact")
async def compact(
    conversation_id: ConversationPath, library: Library, body: wire.CompactIn | None = None
) -> wire.WireCompaction:
    """Move messages out of view behind a summary; answer with it. 400: none is in view; 409: a run has not ended."""
    body = body or wire.CompactIn()
    agent, named = await find_in_path(library, conversation_id, body.agent_id)
    return wire.WireCompaction.make(await agent.compact_view(named, body.settings))


@router.post("/v1/conversations/{conversation_id}/fork")
async def fork(found: Found, message_id: MessageIdIn | None = None, hidden: bool = False) -> wire.WireConversation:
    """Create a conversation with a copy of what this one has in view, up to `message_id` if it is given. Calls without
    a result are left out. A hidden one is in no list."""
    agent, named = found
    return wire.WireConversation.make(await agent.fork_state(named, upto=message_id, hidden=hidden))


@router.post("/v1/conversations/{conversation_id}/recompile")
async def recompile(
    conversation_id: ConversationPath, library: Library, body: wire.RecompileIn | None = None, dry_run: bool = False
) -> str:
    """Compile the conversation's system prompt with the memory of now, also for its next request, and answer with its
    text. `dry_run` changes nothing."""
    agent, named = await find_in_path(library, conversation_id, body.agent_id if body else None)
    return await agent.recompile(conversation=named, dry_run=dry_run)


@router.post("/v1/conversations/{conversation_id}/stream")
async def resume(
    conversation_id: ConversationPath, library: Library, request: Request, body: ResumeRequest | None = None
) -> StreamingResponse:
    """Continue the stream of a conversation's background run after the body's chunk. 400 if there is none."""
    body = body or ResumeRequest()
    agent, named = await find_in_path(library, conversation_id, body.agent_id)
    run = await agent.find_resumable(
        named, run_id=body.run_id, idempotency_key=None if body.otid is None else key_of_otids([body.otid])
    )
    if run is None:
        raise HTTPException(400, "No active runs found for this conversation.")
    return await resume_stream(library, request, run, body)
