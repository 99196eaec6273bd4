"""Memory blocks: those of an agent, by label, and all blocks, by id."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request
from pydantic import Field

from perdure.core.agents import AgentFilter
from perdure.core.blocks import BlockFilter
from perdure.domain.blocks.units import NewBlock
from perdure.library.parts.checks import Page
from perdure.server.routes.agents import AgentsPage, agent_answer, agents_answer
from perdure.server.wire.agents import WireAgent
from perdure.server.wire.base import WIRE_FIELDS, wire_members
from perdure.server.wire.blocks import BlockChanges, NewWireBlock, WireBlock
from perdure.server.wire.fields import AgentIdIn, BlockIdIn, IdentityIdIn, Items, Tags
from perdure.server.wire.http import Library, Router, pages, require_scope

router = Router(tags=["blocks"])

_COUNT_MAX = 2**31 - 1
_Count = Annotated[int | None, Query(ge=0, le=_COUNT_MAX)]


# --- an agent's blocks


@router.get("/v1/agents/{agent_id}/core-memory/blocks")
@router.get("/v1/agents/{agent_id}/core-memory/blocks/", include_in_schema=False)  # else the label is empty
async def list_of_agent(
    agent_id: AgentIdIn, library: Library, page: Annotated[Page, pages("block", limit=100)]
) -> list[WireBlock]:
    """List the agent's blocks; `asc` is the order of creation."""
    return [WireBlock.make(block) for block in await library.blocks.page(BlockFilter(agent_id=agent_id), page)]


# A label may hold a slash, so these two stand before the routes that take a label.
@router.patch("/v1/agents/{agent_id}/core-memory/blocks/attach/{block_id}")
async def attach(agent_id: AgentIdIn, block_id: BlockIdIn, library: Library) -> WireAgent:
    """Give the agent a block, which it may share with others; twice is no error."""
    await library.agent_of(agent_id).blocks.attach(block_id)
    return await agent_answer(library, agent_id)


@router.patch("/v1/agents/{agent_id}/core-memory/blocks/detach/{block_id}")
async def detach(agent_id: AgentIdIn, block_id: BlockIdIn, library: Library) -> WireAgent:
    """Take a block out of the agent's memory; the block itself stays."""
    await library.agent_of(agent_id).blocks.detach_block(block_id)
    return await agent_answer(library, agent_id)


@router.get("/v1/agents/{agent_id}/core-memory/blocks/{block_label:path}")
async def retrieve_of_agent(agent_id: AgentIdIn, block_label: str, library: Library) -> WireBlock:
    """Get the agent's block of this label."""
    return WireBlock.make(await library.agent_of(agent_id).blocks.get(block_label))


@router.patch("/v1/agents/{agent_id}/core-memory/blocks/{block_label:path}")
async def update_of_agent(
    agent_id: AgentIdIn, block_label: str, body: BlockChanges, library: Library, request: Request
) -> WireBlock:
    """Change the agent's block of this label, also where it is shared. The scope `user` may change only the value."""
    if others := sorted(body.model_fields_set - {"value"}):
        require_scope(request, "builder", what=f"changing {', '.join(others)} of a block")
    return WireBlock.make(await library.agent_of(agent_id).blocks.edit(block_label, body.changes))


# --- all blocks


@router.post("/v1/blocks/")
async def create(body: NewWireBlock, library: Library) -> WireBlock:
    """Create a block that no agent has yet."""
    return WireBlock.make(await library.blocks.add(NewBlock(**body.fields)))


# A coroutine, because FastAPI runs a plain function in a thread.
async def _block_filter(
    label: Annotated[str | None, Query(description="The whole label.")] = None,
    name: Annotated[str | None, Query(description="The name of a template.")] = None,
    label_search: Annotated[str | None, Query(description="A part of the label, in any case.")] = None,
    value_search: Annotated[str | None, Query(description="A part of the value, in any case.")] = None,
    description_search: Annotated[str | None, Query(description="A part of the description, in any case.")] = None,
    templates_only: bool = False,
    tags: Annotated[Tags | None, Query()] = None,
    match_all_tags: bool = False,
    connected_to_agents_count_gt: _Count = None,
    connected_to_agents_count_lt: _Count = None,
    connected_to_agents_count_eq: Annotated[Items[Annotated[int, Field(ge=0, le=_COUNT_MAX)]] | None, Query()] = None,
    project_id: str | None = None,
    identity_id: IdentityIdIn | None = None,
    identifier_keys: Annotated[Items[str] | None, Query()] = None,
    show_hidden_blocks: bool = False,
) -> BlockFilter:
    """The blocks that a query asks for, without the hidden ones."""
    return BlockFilter(
        label=label,
        label_text=label_search,
        value_text=value_search,
        description_text=description_search,
        tags=tuple(tags or ()),
        all_tags=match_all_tags,
        templates_only=templates_only,
        agents_min=None if connected_to_agents_count_gt is None else connected_to_agents_count_gt + 1,
        agents_max=None if connected_to_agents_count_lt is None else connected_to_agents_count_lt - 1,
        agents_in=tuple(connected_to_agents_count_eq or ()),
        identity_id=identity_id,
        identifier_keys=tuple(identifier_keys or ()),
        holding=wire_members(WIRE_FIELDS, template_name=name, project_id=project_id),
        hidden=None if show_hidden_blocks else False,
    )


_Where = Annotated[BlockFilter, Depends(_block_filter)]


@router.get("/v1/blocks/")
async def list_blocks(
    library: Library, page: Annotated[Page, pages("block", order="asc")], where: _Where
) -> list[WireBlock]:
    """List blocks, oldest first by default, without the hidden ones."""
    return [WireBlock.make(block) for block in await library.blocks.page(where, page)]


@router.get("/v1/blocks/count")
async def count(library: Library, where: _Where) -> int:
    """Count the blocks that a list with this filter has, over all its pages."""
    return await library.blocks.count(where)


@router.get("/v1/blocks/{block_id}")
async def retrieve(block_id: BlockIdIn, library: Library) -> WireBlock:
    """Get a block."""
    return WireBlock.make(await library.blocks.get(block_id))


@router.patch("/v1/blocks/{block_id}")
async def update(block_id: BlockIdIn, body: BlockChanges, library: Library) -> WireBlock:
    """Change the fields that are set, for all agents that have the block."""
    return WireBlock.make(await library.blocks.edit(block_id, body.changes))


@router.delete("/v1/blocks/{block_id}")
async def delete(block_id: BlockIdIn, library: Library) -> None:
    """Remove the block with its history from every agent."""
    await library.blocks.delete(block_id)


@router.get("/v1/blocks/{block_id}/agents")
async def list_agents(block_id: BlockIdIn, library: Library, page: AgentsPage) -> list[WireAgent]:
    """List the agents that have the block, newest first by default."""
    await library.blocks.get(block_id)
    return await agents_answer(library, AgentFilter(block_id=block_id), page)
