"""Identities, and which agents have them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from perdure.core.agents import IdentityFilter, IdentityType
from perdure.library.parts.checks import Page
from perdure.server.routes.agents import AgentsPage, agents_answer
from perdure.server.wire.agents import WireAgent
from perdure.server.wire.blocks import WireBlock
from perdure.server.wire.fields import AgentIdIn, BlockIdIn, IdentityIdIn
from perdure.server.wire.http import Library, Router, pages
from perdure.server.wire.identities import IdentityChangesIn, IdentityIn, Properties, WireIdentity, property_values

router = Router(tags=["identities"])


@router.post("/v1/identities/")
async def create(body: IdentityIn, library: Library) -> WireIdentity:
    """Create an identity. Its key must be new within the project."""
    return WireIdentity.make(await library.identities.create(body.fields, body.project_id))


@router.put("/v1/identities/")
async def upsert(body: IdentityIn, library: Library) -> WireIdentity:
    """Create an identity, or change the one of this key."""
    return WireIdentity.make(await library.identities.upsert(body.fields, body.project_id))


@router.get("/v1/identities/")
async def list_identities(
    library: Library,
    page: Annotated[Page, pages("identity")],
    name: Annotated[str | None, Query(description="A part of the name, in any case.")] = None,
    identifier_key: str | None = None,
    identity_type: IdentityType | None = None,
    project_id: str | None = None,
) -> list[WireIdentity]:
    """List identities, newest first by default."""
    where = IdentityFilter(name=name, identifier_key=identifier_key, identity_type=identity_type, project_id=project_id)
    return [WireIdentity.make(identity) for identity in await library.identities.list(where, page)]


@router.get("/v1/identities/count")
async def count(library: Library) -> int:
    """Count the identities."""
    return await library.identities.count()


@router.get("/v1/identities/{identity_id}")
async def retrieve(identity_id: IdentityIdIn, library: Library) -> WireIdentity:
    """Get an identity. `agent_ids` and `block_ids` have at most 1,000 ids; the routes below list all."""
    return WireIdentity.make(await library.identities.get(identity_id))


@router.patch("/v1/identities/{identity_id}")
async def update(identity_id: IdentityIdIn, body: IdentityChangesIn, library: Library) -> WireIdentity:
    """Change the fields that are set; lists are whole new ones."""
    return WireIdentity.make(await library.identities.update(identity_id, body.fields))


@router.put("/v1/identities/{identity_id}/properties")
async def put_properties(identity_id: IdentityIdIn, body: Properties, library: Library) -> WireIdentity:
    """Add properties, or replace those of the same keys."""
    return WireIdentity.make(await library.identities.put_properties(identity_id, property_values(body)))


@router.delete("/v1/identities/{identity_id}")
async def delete(identity_id: IdentityIdIn, library: Library) -> None:
    """Delete an identity; its agents and blocks stay."""
    await library.identities.delete(identity_id)


@router.get("/v1/identities/{identity_id}/agents")
async def list_agents(identity_id: IdentityIdIn, library: Library, page: AgentsPage) -> list[WireAgent]:
    """List the agents of the identity, newest first by default."""
    return await agents_answer(library, await library.identities.filter_of(identity_id), page)


@router.get("/v1/identities/{identity_id}/blocks")
async def list_blocks(
    identity_id: IdentityIdIn, library: Library, page: Annotated[Page, pages("block")]
) -> list[WireBlock]:
    """List the blocks of the identity, newest first by default."""
    return [WireBlock.make(block) for block in await library.identities.list_blocks(identity_id, page)]


@router.patch("/v1/agents/{agent_id}/identities/attach/{identity_id}")
async def attach(agent_id: AgentIdIn, identity_id: IdentityIdIn, library: Library) -> None:
    """Give the agent an identity; twice is no error."""
    await library.identities.attach(agent_id, identity_id)


@router.patch("/v1/agents/{agent_id}/identities/detach/{identity_id}")
async def detach(agent_id: AgentIdIn, identity_id: IdentityIdIn, library: Library) -> None:
    """Take an identity from the agent."""
    await library.identities.detach(agent_id, identity_id)


@router.patch("/v1/blocks/{block_id}/identities/attach/{identity_id}")
async def attach_to_block(block_id: BlockIdIn, identity_id: IdentityIdIn, library: Library) -> WireBlock:
    """Give the block an identity; twice is no error."""
    return WireBlock.make(await library.identities.attach_block(block_id, identity_id))


@router.patch("/v1/blocks/{block_id}/identities/detach/{identity_id}")
async def detach_from_block(block_id: BlockIdIn, identity_id: IdentityIdIn, library: Library) -> WireBlock:
    """Take an identity from the block."""
    return WireBlock.make(await library.identities.detach_block(block_id, identity_id))
