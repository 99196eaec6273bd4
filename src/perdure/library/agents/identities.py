"""Identities: making, finding, changing and removing them, and which agents and blocks have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.agents import AgentFilter, Identity, IdentityFilter, IdentityType
from perdure.core.blocks import Block, BlockFilter
from perdure.core.ids import AgentId, BlockId, IdentityId
from perdure.core.text.reprs import attributes
from perdure.domain.values import check_item_limits
from perdure.engine.conversations.reset import delete
from perdure.library.parts.checks import Page, check_page
from perdure.library.parts.part import AsyncPart, reads, writes
from perdure.storage.tx import Tx

OWNERS_MAX = 1_000
"""How many agents and blocks of an identity are listed with it. Their own lists have all."""

Property = Mapping[str, Any]
"""`key`, `value` and `type`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityFields:
    """Values of an identity. In a change, None leaves what there is; the ids are whole new sets."""

    identifier_key: str | None = None
    name: str | None = None
    identity_type: IdentityType | None = None
    properties: Sequence[Property] | None = None
    agent_ids: Sequence[AgentId] | None = None
    block_ids: Sequence[BlockId] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityState:
    """An identity with the oldest of its agents and blocks, at most `OWNERS_MAX` of each."""

    identity: Identity
    agent_ids: Sequence[AgentId]
    block_ids: Sequence[BlockId]


class AllIdentities(AsyncPart):
    """The operations on identities."""

    async def create(self, fields: IdentityFields, project_id: str | None = None) -> IdentityState:
        """A new identity with its agents and blocks. Raises: AlreadyExists: its key; NotFound: an agent or block."""
        return await self._ports.store.write(lambda tx: load_identity(tx, self._add(tx, fields, project_id)))

    @writes
    def upsert(self, tx: Tx, fields: IdentityFields, project_id: str | None = None) -> IdentityState:
        """The identity of this key with these values, made if it is not there. Raises: NotFound: an agent or block."""
        before = tx.identities.find_by_key(fields.identifier_key or "", project_id)
        after = self._add(tx, fields, project_id) if before is None else self._put(tx, before, fields)
        return load_identity(tx, after)

    async def get(self, identity_id: IdentityId) -> IdentityState:
        """The identity with this id. Raises: NotFound."""
        return await self._ports.store.read(lambda tx: load_identity(tx, tx.identities.get(identity_id)))

    @reads
    def list(self, tx: Tx, where: IdentityFilter, page: Page) -> Sequence[IdentityState]:
        """A page of identities. Raises: InvalidInput; NotFound: the page begins at no identity."""
        check_page(page)
        return load_identities(tx, tx.identities.page(where=where, **page.arguments))

    async def count(self) -> int:
        """How many identities there are."""
        return await self._ports.store.read(lambda tx: tx.identities.count(IdentityFilter()))

    @writes
    def update(self, tx: Tx, identity_id: IdentityId, fields: IdentityFields) -> IdentityState:
        """The identity as changed. Raises: NotFound; AlreadyExists: another one has the key."""
        return load_identity(tx, self._put(tx, tx.identities.get(identity_id), fields))

    @writes
    def put_properties(self, tx: Tx, identity_id: IdentityId, properties: Sequence[Property]) -> IdentityState:
        """The identity with these properties in place of those of the same keys; the others stay. Raises: NotFound."""
        before = tx.identities.get(identity_id)
        merged = [*before.properties, *properties]
        return load_identity(tx, self._put(tx, before, IdentityFields(properties=merged)))

    async def delete(self, identity_id: IdentityId) -> None:
        """Remove an identity; its agents and blocks stay. Raises: NotFound."""
        await delete(self._ports, lambda tx: tx.identities.delete(identity_id))

    @reads
    def list_blocks(self, tx: Tx, identity_id: IdentityId, page: Page) -> Sequence[Block]:
        """A page of the identity's blocks. Raises: NotFound."""
        where = BlockFilter(identity_id=tx.identities.get(identity_id).id)
        return tx.blocks.page(where=where, **page.arguments)

    async def filter_of(self, identity_id: IdentityId) -> AgentFilter:
        """The filter of the identity's agents. Raises: NotFound."""
        return AgentFilter(identity_id=(await self.get(identity_id)).identity.id)

    async def attach(self, agent_id: AgentId, identity_id: IdentityId) -> None:
        """Give the agent an identity; twice is no error. Raises: NotFound, TooMany."""
        await self._ports.store.write(lambda tx: tx.identities.attach_agent(agent_id, identity_id))

    @writes
    def detach(self, tx: Tx, agent_id: AgentId, identity_id: IdentityId) -> None:
        """Take an identity from the agent. Raises: NotFound."""
        tx.agents.model(agent_id)
        tx.identities.detach_agent(agent_id, identity_id)

    @writes
    def attach_block(self, tx: Tx, block_id: BlockId, identity_id: IdentityId) -> Block:
        """Give the block an identity, and return the block; twice is no error. Raises: NotFound."""
        tx.identities.attach_block(block_id, identity_id)
        return tx.blocks.get(block_id)

    @writes
    def detach_block(self, tx: Tx, block_id: BlockId, identity_id: IdentityId) -> Block:
        """Take an identity from the block, and return the block. Raises: NotFound."""
        tx.identities.detach_block(block_id, identity_id)
        return tx.blocks.get(block_id)

    def _add(self, tx: Tx, fields: IdentityFields, project_id: str | None) -> Identity:
        """Add an identity with its agents and blocks. Raises: AlreadyExists, NotFound, TooMany."""
        now = self._ports.clock.now()
        identity = Identity(
            id=IdentityId(self._ports.ids.new("identity")),
            org_id=tx.org_id,
            identifier_key=fields.identifier_key or "",
            name=fields.name or "",
            identity_type=fields.identity_type or "other",
            project_id=project_id,
            properties=_by_key(fields.properties or ()),
            created_at=now,
            updated_at=now,
        )
        _check(tx, identity)
        identity = tx.identities.add(identity)
        _set_owners(tx, identity.id, fields)
        return identity

    def _put(self, tx: Tx, before: Identity, fields: IdentityFields) -> Identity:
        """Change an identity, and return it as changed. Raises: AlreadyExists, NotFound, TooMany."""
        names = ("identifier_key", "name", "identity_type")
        values = {name: value for name in names if (value := getattr(fields, name)) is not None}
        if fields.properties is not None:
            values["properties"] = _by_key(fields.properties)
        after = replace(before, **values, updated_at=self._ports.clock.now())
        _check(tx, after)
        tx.identities.put(after)
        _set_owners(tx, after.id, fields)
        return after


def load_identity(tx: Tx, identity: Identity) -> IdentityState:
    """The identity with the ids of its agents and blocks."""
    return load_identities(tx, [identity])[0]


def load_identities(tx: Tx, identities: Sequence[Identity]) -> Sequence[IdentityState]:
    """The identities with their agents and blocks."""
    ids = [identity.id for identity in identities]
    agents, blocks = (tx.identities.list_owners(kind, ids, limit=OWNERS_MAX) for kind in ("agent", "block"))
    return [IdentityState(identity=one, agent_ids=agents[one.id], block_ids=blocks[one.id]) for one in identities]


def set_identities(tx: Tx, agent_id: AgentId, identity_ids: Sequence[IdentityId]) -> None:
    """Give the agent these identities, and take all others from it. Raises: NotFound, TooMany."""
    for identity in tx.identities.list_by_agent(agent_id):
        if identity.id not in identity_ids:
            tx.identities.detach_agent(agent_id, identity.id)
    for identity_id in dict.fromkeys(identity_ids):
        tx.identities.attach_agent(agent_id, identity_id)


def _set_owners(tx: Tx, identity_id: IdentityId, fields: IdentityFields) -> None:
    """Give an identity to the agents and blocks in `fields`, and take it from all others; None leaves them."""
    if fields.agent_ids is not None:
        for agent_id in {*tx.identities.list_owners("agent", [identity_id])[identity_id]} - {*fields.agent_ids}:
            tx.identities.detach_agent(agent_id, identity_id)
        for agent_id in dict.fromkeys(fields.agent_ids):
            tx.identities.attach_agent(agent_id, identity_id)
    if fields.block_ids is not None:
        for block_id in {*tx.identities.list_owners("block", [identity_id])[identity_id]} - {*fields.block_ids}:
            tx.identities.detach_block(block_id, identity_id)
        for block_id in dict.fromkeys(fields.block_ids):
            tx.identities.attach_block(block_id, identity_id)


def _by_key(properties: Sequence[Property]) -> tuple[Property, ...]:
    """The properties, each key once: with its last value, in the place of its first one."""
    return tuple({one["key"]: one for one in properties}.values())


def _check(tx: Tx, identity: Identity) -> None:
    """Check that names and properties of an identity are not too long. Raises: TooMany."""
    keys = [str(one["key"]) for one in identity.properties]
    names = {"key": max(keys, key=len, default=""), **attributes(identity, "identifier_key", "name", "project_id")}
    check_item_limits(tx.limits, names=names, metadata={"properties": list(identity.properties)})
