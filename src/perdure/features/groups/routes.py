"""Groups of agents: creating, changing and deleting them, what is said to them, their transcripts, and the passes of
companions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from perdure.core.errors import Conflict
from perdure.core.ids import AgentId, ConversationId, GroupId
from perdure.core.messages import SEND_MESSAGE
from perdure.features.groups import wire
from perdure.features.groups.values import GROUP_FAILED_REASONS, GroupFilter
from perdure.library.parts.checks import LIMIT_MAX, Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.routes.messages import reply_or_answer
from perdure.server.wire.answers import Message, WireReply
from perdure.server.wire.chunks import StreamMode
from perdure.server.wire.errors import failure_answer
from perdure.server.wire.fields import AgentIdIn, BlockIdIn, GroupIdIn, Items, MessageIdIn, id_in_path
from perdure.server.wire.http import Json, Library, Router, ThisAgent, json_answer, library_of, pages
from perdure.server.wire.input import MessageChange, SendRequest, read_send
from perdure.server.wire.messages import Display, MessageType
from perdure.server.wire.sse import Streams

router = Router(tags=["groups"])

_Page = Annotated[Page, pages("group")]


@router.get("/v1/groups/")
async def list_groups(
    library: Library, page: _Page, manager_type: wire.WireGroupKind | None = None, project_id: str | None = None
) -> list[wire.Group]:
    """List groups, newest first by default, without hidden ones."""
    if manager_type == "swarm":
        return []
    where = GroupFilter(kind=manager_type, project_id=project_id, hidden=False)
    return [wire.Group.make(group) for group in await library.groups.page(where, page)]


@router.get("/v1/groups/count")
async def count(library: Library) -> int:
    """Count the groups, without hidden ones."""
    return await library.groups.count(GroupFilter(hidden=False))


@router.get("/v1/agents/{agent_id}/groups")
async def list_of_agent(
    agent_id: AgentIdIn, library: Library, page: _Page, manager_type: wire.WireGroupKind | None = None
) -> list[wire.Group]:
    """List the groups in which the agent takes part, or which it manages."""
    if manager_type == "swarm":
        return []
    groups = await library.groups.page_of_agent(agent_id, GroupFilter(kind=manager_type), page)
    return [wire.Group.make(group) for group in groups]


@router.post("/v1/groups/")
async def create(body: wire.GroupIn, library: Library) -> wire.Group:
    """Create a group. Its agents get a conversation of their own for it; those they have stay as they are."""
    return wire.Group.make((await library.groups.add(body.new_group)).info)


@router.get("/v1/groups/{group_id}")
async def retrieve(group_id: GroupIdIn, library: Library) -> wire.Group:
    """Get a group."""
    return wire.Group.make((await library.groups.get(group_id)).info)


@router.patch("/v1/groups/{group_id}")
async def update(group_id: GroupIdIn, body: wire.GroupChangesIn, library: Library) -> wire.Group:
    """Change the fields that are set, lists as a whole. A turn under way keeps the old ones. The kind can't change."""
    group = await library.groups.get(group_id)
    body.check_kind(group.info)
    return wire.Group.make((await group.update(**body.changes)).info)


@router.delete("/v1/groups/{group_id}")
async def delete(group_id: GroupIdIn, library: Library) -> None:
    """Delete a group with its transcript; its agents stay, with what they said."""
    await library.groups.by_id(group_id).delete()


@router.patch("/v1/groups/{group_id}/blocks/attach/{block_id}")
async def attach_block(group_id: GroupIdIn, block_id: BlockIdIn, library: Library) -> wire.Group:
    """Share a block with all agents of a group, and answer with the group."""
    return wire.Group.make((await library.groups.by_id(group_id).attach_block(block_id)).info)


@router.patch("/v1/groups/{group_id}/blocks/detach/{block_id}")
async def detach_block(group_id: GroupIdIn, block_id: BlockIdIn, library: Library) -> wire.Group:
    """Take a block that a group shares from its agents, and answer with the group."""
    return wire.Group.make((await library.groups.by_id(group_id).detach_block(block_id)).info)


# --- messages


async def conversation_of(library: AsyncPerdure, group_id: GroupId, agent_id: AgentId) -> ConversationId | None:
    """The conversation in which an agent speaks in a group; None: it has not, or is not of it. Raises: NotFound."""
    return await library.groups.by_id(group_id).conversation_of(agent_id)


async def _send(request: Request) -> Json[WireReply] | StreamingResponse:
    """Send a message to a group, and answer with what its agents say, or on request with a stream of it."""
    return await _answer(request, await read_send(request))


async def _send_and_stream(request: Request) -> Response | StreamingResponse:
    """Send a message to a group, and answer with a stream."""
    return await _answer(request, await read_send(request, always_streams=True))


hot_routes: Sequence[Route] = [
    Route("/v1/groups/{group_id}/messages", _send, methods=["POST"]),
    Route("/v1/groups/{group_id}/messages/stream", _send_and_stream, methods=["POST"]),
]
"""They come before every other route."""


async def _answer(request: Request, body: SendRequest) -> Json[Any] | StreamingResponse:
    """Begin the turn that answers a message, and answer with its reply or stream. A client that leaves does not stop
    the turn. Raises: as `AsyncGroup.send`; nothing was stored then."""
    group_id = GroupId(id_in_path("group", request.path_params["group_id"]))
    group = library_of(request).groups.by_id(group_id)
    streams: Streams = request.app.state.streams
    turn = await group.send_messages(
        wire.group_messages(body),
        idempotency_key=body.key(request.headers.get("idempotency-key")),
        if_busy=body.if_busy,
        max_steps=body.max_steps,
    )
    if body.streaming:
        mode = StreamMode(body.stream_tokens, body.include_pings, display=body.display)
        return await streams.stream(group.follow(turn), wire.GroupChunks(turn, mode), pings=mode.pings)
    reply = await reply_or_answer(streams, group.reply(turn), f"turn {turn.seq} of {turn.group_id}")
    if isinstance(reply, Json):
        return reply
    shape = wire.group_response(reply, body.display)
    if reply.failure is not None and reply.stop_reason in GROUP_FAILED_REASONS:
        return failure_answer(reply.failure, messages=shape["messages"])
    return json_answer(shape)


@router.get("/v1/groups/{group_id}/messages")
async def list_messages(
    group_id: GroupIdIn,
    library: Library,
    page: Annotated[Page, pages("message", limit=100)],
    use_assistant_message: bool = True,
    assistant_message_tool_name: str = SEND_MESSAGE,
    assistant_message_tool_kwarg: str = "message",
    include_return_message_types: Annotated[Items[MessageType] | None, Query()] = None,
) -> list[Message]:
    """List a group's transcript, newest first by default, each message with its speaker's name."""
    types = None if include_return_message_types is None else frozenset(include_return_message_types)
    display = Display(types, use_assistant_message, assistant_message_tool_name, assistant_message_tool_kwarg)
    entries = await library.groups.by_id(group_id).entries(page)
    return [shape for entry, message in entries for shape in wire.entry_shapes(entry, message, display)]


@router.post("/v1/groups/{group_id}/messages/cancel")
async def cancel_messages(group_id: GroupIdIn, library: Library) -> dict[str, str]:
    """Cancel the active turn of the group, with its speakers' runs, and the waiting ones. Answers with number of a turn
    -> `cancelled`, or its status if it has ended. 409: there is none."""
    turns = await library.groups.by_id(group_id).cancel()
    if not turns:
        raise Conflict(f"there is nothing to cancel: group {group_id} has no turn that goes on or waits")
    return {str(turn.seq): turn.status if turn.ended else "cancelled" for turn in turns}


@router.patch("/v1/groups/{group_id}/messages/{message_id}")
async def modify_message(
    group_id: GroupIdIn, message_id: MessageIdIn, body: MessageChange, library: Library
) -> Message:
    """Change what a message of the transcript says, and answer with it; an agent's changes in its own history too."""
    part, parts = body.edit()
    edited = await library.groups.by_id(group_id).edit_message(message_id, part, parts)
    display = Display(use_assistant_message=part in (None, "assistant"))
    kind = "assistant_message" if body.message_type == "message" else body.message_type
    return next(shape for shape in wire.entry_shapes(*edited, display) if shape["message_type"] == kind)


@router.patch("/v1/groups/{group_id}/reset-messages")
async def reset_messages(group_id: GroupIdIn, library: Library) -> None:
    """Empty the transcript, and what the agents saw and said in this group. 409 while a turn has not ended."""
    await library.groups.by_id(group_id).reset()


# --- companions


@router.post("/v1/agents/{agent_id}/companion")
async def enable_companion(agent: ThisAgent, body: wire.CompanionIn) -> wire.CompanionShape:
    """Give an agent a companion and answer with it. The kind `reflection` reads failures, and only proposes changes."""
    return wire.CompanionShape.make(await agent.companion.enable(kind=body.kind))


@router.get("/v1/agents/{agent_id}/companion/passes")
async def list_passes(
    agent: ThisAgent,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="At most this many items.")] = 20,
    before: Annotated[int | None, Query(ge=1, le=2**53, description="Those before the pass of this number.")] = None,
) -> list[wire.PassShape]:
    """List the passes of an agent's companion, newest first: why each began, how it ended, and what it changed."""
    passes = await agent.companion.passes(limit=limit, before=before)
    return [wire.PassShape.make(one) for one in passes]


@router.post("/v1/agents/{agent_id}/companion/wake")
async def wake(agent: ThisAgent) -> wire.PassShape | None:
    """Have an agent's companion read what is new, and answer with the pass that begins or goes on; null: nothing new
    was said. The list of passes shows how it ends."""
    companion = agent.companion
    one = await companion.begin()
    return None if one is None else wire.PassShape.make(await companion.show(one))
