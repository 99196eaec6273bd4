"""Agents: creating, listing, changing and deleting them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from random import choice
from typing import Annotated, Literal

from fastapi import Depends, Query

from perdure.core import agents as core
from perdure.core.agents import AgentFilter, AgentOrder
from perdure.core.features import Point
from perdure.core.ids import AgentId, ConversationId
from perdure.core.runs import StopReason
from perdure.library.agents.agents import FullAgent
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.agents import AgentChangesIn, AgentIn, WireAgent, WireSecret, agent_shape, agent_type_of
from perdure.server.wire.answers import Confirmation
from perdure.server.wire.base import WIRE_SETTING, wire_members
from perdure.server.wire.blocks import GIT_TAG, WireBlock, WireMemory
from perdure.server.wire.conversations import CompactIn, Context, WireCompaction, context_shape
from perdure.server.wire.fields import AgentIdIn, ConversationOrDefault, IdentityIdIn, Items, Tags
from perdure.server.wire.http import Library, Limit, Order, Router, ThisAgent, pages
from perdure.server.wire.models import facts_of
from perdure.server.wire.shapes import Object

router = Router(tags=["agents"])

AgentsPage = Annotated[Page, pages("agent")]
"""A page of the agents that have something."""

FILE_BLOCKS: Point[[AsyncPerdure, Sequence[core.Agent]], Awaitable[Mapping[AgentId, list[Object]]]] = Point(
    "file_blocks"
)
"""The files that an agent's answer shows as blocks."""

_ORDERS: dict[str, AgentOrder] = {"created_at": "created", "updated_at": "updated", "last_run_completion": "used"}
_OrderBy = Literal["created_at", "updated_at", "last_run_completion"] | None

_ADJECTIVES = "Amber Brave Calm Clever Early Gentle Golden Keen Lively Lucky Mellow Nimble Quiet Silver Swift Warm"
_NOUNS = "Badger Cedar Comet Falcon Harbor Heron Lantern Maple Meadow Otter Pebble Raven River Sparrow Willow Wren"
"""Words of the names that agents get if the client sends none."""


@router.post("/v1/agents/")
async def create(body: AgentIn, library: Library) -> WireAgent:
    """Create an agent with its blocks, tools and first messages, all or nothing."""
    body.check_supported()
    models, handle = library.handles, body.model_handle
    model = await models.resolve(handle)
    name = choice(_ADJECTIVES.split()) + choice(_NOUNS.split())
    new = body.new_agent(name, model, follows_default=models.means_default(handle))
    agent = await library.all_agents.add(
        new, belongings=body.belongings, messages=body.first_messages, companion=body.companion(body.agent_type) or None
    )
    return await agent_answer(library, agent.id)


# A coroutine, because FastAPI runs a plain function in a thread.
async def _agent_filter(
    name: Annotated[str | None, Query(description="The whole name.")] = None,
    query_text: Annotated[str | None, Query(description="A part of the name, in any case.")] = None,
    tags: Annotated[Tags | None, Query()] = None,
    match_all_tags: bool = False,
    created_by_id: str | None = None,
    last_stop_reason: StopReason | None = None,
    project_id: str | None = None,
    identity_id: IdentityIdIn | None = None,
    identifier_keys: Annotated[Items[str] | None, Query()] = None,
    template_id: str | None = None,
    base_template_id: str | None = None,
    show_hidden_agents: bool = False,
) -> AgentFilter:
    """The agents that a query asks for, without hidden ones."""
    return AgentFilter(
        name=name,
        text=query_text,
        tags=tuple(tags or ()),
        all_tags=match_all_tags,
        created_by=created_by_id,
        stop_reason=last_stop_reason,
        identity_id=identity_id,
        identifier_keys=tuple(identifier_keys or ()),
        holding=wire_members(
            WIRE_SETTING, project_id=project_id, template_id=template_id, base_template_id=base_template_id
        ),
        hidden=None if show_hidden_agents else False,
    )


_Where = Annotated[AgentFilter, Depends(_agent_filter)]


@router.get("/v1/agents/")
async def list_agents(
    library: Library,
    page: Annotated[Page, pages("agent", order_by=_OrderBy)],
    where: _Where,
    order_by: _OrderBy = None,
    sort_by: Annotated[_OrderBy, Query(deprecated=True)] = None,
) -> list[WireAgent]:
    """List agents, newest first by default, without hidden ones."""
    order = _ORDERS[order_by or sort_by or "created_at"]
    return await agents_answer(library, where, page, order)


@router.get("/v1/tags/")
async def list_tags(
    library: Library,
    limit: Limit = 50,
    order: Annotated[Order, Query(description="`asc` is from A to Z.")] = "asc",
    before: Annotated[str | None, Query(description="A tag: those before it in this order.")] = None,
    after: Annotated[str | None, Query(description="A tag: those after it in this order.")] = None,
    order_by: Literal["name"] = "name",
    name: Annotated[str | None, Query(description="A part of the tag, in any case.")] = None,
    query_text: Annotated[str | None, Query(deprecated=True)] = None,
) -> Sequence[str]:
    """List the tags that agents and blocks have, each once."""
    page = Page(50 if limit is None else limit, order == "asc", after, before)
    return await library.all_agents.tags(page, text=name or query_text)


@router.get("/v1/agents/count")
async def count(library: Library, where: _Where) -> int:
    """Count the agents that a list with this filter has, over all its pages."""
    return await library.all_agents.count(where)


@router.get("/v1/agents/{agent_id}")
async def retrieve(agent_id: AgentIdIn, library: Library) -> WireAgent:
    """Get an agent with everything that belongs to it."""
    return await agent_answer(library, agent_id)


@router.patch("/v1/agents/{agent_id}")
async def update(agent_id: AgentIdIn, body: AgentChangesIn, library: Library) -> WireAgent:
    """Change the fields in the body; `tool_ids` and `block_ids` are whole sets, `tags` and `metadata` new values."""
    agent = library.agent_of(agent_id)
    body.check_supported((await agent.state()).message_ids if body.message_ids else ())
    models, handle = library.handles, body.model_handle
    if body.model is None and handle == (await library.all_agents.resolve(agent_id)).model:
        handle = None  # older clients send all of `llm_config` back
    model = None if handle is None else await models.resolve(handle, agent_id)
    follows = models.means_default(handle)
    await agent.edit(
        lambda before: body.changes(before, model, follows_default=follows),
        belongings=body.belongings,
        companion=lambda before: body.companion(agent_type_of(before)),
    )
    return await agent_answer(library, agent_id)


@router.delete("/v1/agents/{agent_id}")
async def delete(agent_id: AgentIdIn, library: Library) -> Confirmation:
    """Delete an agent with its whole history; its blocks and archives stay."""
    await library.agent_of(agent_id).delete()
    return {"message": f"Agent id={agent_id} successfully deleted"}


@router.get("/v1/agents/{agent_id}/core-memory")
async def core_memory(agent: ThisAgent, library: Library) -> WireMemory:
    """Get the agent's blocks, in the older shape."""
    owner, blocks = await agent.memory()
    files = (await _file_blocks(library, [owner]))[owner.id]
    shapes = [WireBlock.make(block) for block in blocks]
    fields = {"agent_type": agent_type_of(owner), "git_enabled": GIT_TAG in owner.tags}
    return WireMemory.make(None, **fields, blocks=shapes, file_blocks=files)


@router.get("/v1/agents/{agent_id}/context")
async def retrieve_context(
    agent: ThisAgent, library: Library, conversation_id: ConversationOrDefault | None = None
) -> Context:
    """Get the parts of the next request of a conversation, by default the agent's first: their texts and tokens."""
    conversation = None if conversation_id in (None, "default") else ConversationId(str(conversation_id))
    return context_shape(await agent.preview(conversation), counter=library.app.ports.counter)


@router.post("/v1/agents/{agent_id}/summarize")
async def summarize(agent: ThisAgent, body: CompactIn | None = None) -> WireCompaction:
    """Take messages of the agent's first conversation out of view behind a summary, and answer with it. 400 if none is
    in view, 409 while a run has not ended."""
    return WireCompaction.make(await agent.compact_view(None, (body or CompactIn()).settings))


@router.post("/v1/agents/{agent_id}/system-prompt/recompile", include_in_schema=False)  # its older name
@router.post("/v1/agents/{agent_id}/recompile")
async def recompile(agent: ThisAgent, dry_run: bool = False, update_timestamp: bool = False) -> str:
    """Compile the agent's system prompt with the memory of now, also for its next request, and answer with its text.
    `dry_run` changes nothing. The text names the time of the last compilation, or with `update_timestamp` of this
    one."""
    return await agent.recompile(dry_run=dry_run, keep_time=not update_timestamp)


@router.get("/v1/agents/{agent_id}/secrets")
async def list_secrets(agent: ThisAgent) -> list[WireSecret]:
    """List the names of the agent's secrets, from A to Z; every value is empty."""
    return [WireSecret.make(secret) for secret in await agent.secrets.list()]


# --- shared with other routes


async def agent_answer(library: AsyncPerdure, agent_id: AgentId) -> WireAgent:
    """Answer with the agent as it is now. Raises: NotFound."""
    return (await agent_replies(library, [await library.agent_of(agent_id).state()]))[0]


async def agents_answer(
    library: AsyncPerdure, where: AgentFilter, page: Page, order: AgentOrder = "created"
) -> list[WireAgent]:
    """Answer with a page of agents. Raises: NotFound: the page begins at no agent."""
    return await agent_replies(library, await library.all_agents.states(where, page, order))


async def agent_replies(library: AsyncPerdure, states: Sequence[FullAgent]) -> list[WireAgent]:
    """The agents in the wire's shape, their files included."""
    blocks = await _file_blocks(library, [state.agent for state in states if any(state.of_features.values())])
    shapes = [agent_shape(one, facts_of(library.app, one.agent.model), library.app.embedder) for one in states]
    for shape in shapes:
        shape["memory"]["file_blocks"] = blocks.get(shape["id"], [])
    return shapes


async def _file_blocks(library: AsyncPerdure, agents: Sequence[core.Agent]) -> dict[AgentId, list[Object]]:
    """Agent -> the first files of its folders as blocks."""
    found: dict[AgentId, list[Object]] = {agent.id: [] for agent in agents}
    for blocks in FILE_BLOCKS(library, agents) if agents else ():
        for agent_id, some in (await blocks).items():
            found[agent_id] += some
    return found
