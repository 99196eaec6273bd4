"""`tx.identities`: the identities of one transaction, and which agents and blocks have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from perdure.core.agents import AgentFilter, Identity, IdentityFilter
from perdure.core.blocks import BlockFilter
from perdure.core.errors import AlreadyExists
from perdure.core.ids import AgentId, BlockId, IdentityId
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import RowFormat, insert_into, stored_key
from perdure.storage.tables.deleted import delete_shared
from perdure.storage.tables.table import OWN_AGENT, AgentsTable, OwnId, PagedTable, next_number, own_agent, own_row

_IDENTITY = RowFormat(Identity)


class Identities(PagedTable[IdentityFilter, Identity], AgentsTable[Identity]):
    _kind, _source, _format = "identity", "identities", _IDENTITY
    _links, _order = "agent_identities", "t.number"

    def add(self, identity: Identity) -> Identity:
        """Add an identity, and return it with its number. Raises: AlreadyExists: its key or id exists."""
        identity = replace(identity, org_id=self._org_id, number=next_number(self._db))
        sql = f"{insert_into('identities', _IDENTITY.columns)} ON CONFLICT DO NOTHING"
        if not self._run_counted(sql, **_IDENTITY.params(identity)):
            raise AlreadyExists("identity with the key", identity.identifier_key)
        return identity

    def _where(self, where: IdentityFilter) -> Conditions:
        conditions = Conditions("org_id = :org_id")
        conditions.contain("name", where.name)
        conditions.equal("project_id", where.project_id)
        conditions.equal("identifier_key", where.identifier_key)
        conditions.equal("identity_type", where.identity_type)
        return conditions

    def find_by_key(self, identifier_key: str, project_id: str | None) -> Identity | None:
        """The identity of this key in a project, or with None outside projects; None: there is none."""
        return self._find(
            "identifier_key = :key AND COALESCE(project_id, '') = :project",
            key=stored_key(identifier_key),
            project=stored_key(project_id or ""),
        )

    def put(self, identity: Identity) -> None:
        """Update an identity. Raises: NotFound; AlreadyExists: another one has the key."""
        own = OwnId(self.get(identity.id).id)
        namesake = self.find_by_key(identity.identifier_key, identity.project_id)
        if namesake is not None and namesake.id != identity.id:
            raise AlreadyExists("identity with the key", identity.identifier_key)
        columns = _IDENTITY.params(identity, "identifier_key, name, identity_type, properties, updated_at")
        self._set("identities", {"id": own}, "org_id = :org_id", **columns)

    def delete(self, identity_id: IdentityId) -> None:
        """Delete an identity; its agents and blocks stay. Raises: NotFound."""
        delete_shared(self._db, self._org_id, "identities", self._own(identity_id))

    def attach_agent(self, agent_id: AgentId, identity_id: IdentityId) -> None:
        """Give an agent an identity; twice is no error. Raises: NotFound, TooMany."""
        own = own_agent(self._db, self._org_id, agent_id, lock=True)
        sql = f"{insert_into('agent_identities', 'agent_id, identity_id')} ON CONFLICT DO NOTHING"
        self._run(sql, agent_id=own, identity_id=self._own(identity_id))
        self._limits.check("identities_per_agent", len(self.list_by_agent(agent_id)))

    def detach_agent(self, agent_id: AgentId, identity_id: IdentityId) -> None:
        """Take an identity from an agent. Raises: NotFound: there is no such agent, or it does not have it."""
        where = f"agent_id = :agent_id AND identity_id = :identity_id AND {OWN_AGENT}"
        sql = f"DELETE FROM agent_identities WHERE {where}"
        link = {"agent_id": agent_id, "identity_id": self._own(identity_id)}
        self._change_one("identity of this agent", identity_id, sql, **link)

    def attach_block(self, block_id: BlockId, identity_id: IdentityId) -> None:
        """Give a block an identity; twice is no error. Raises: NotFound."""
        own = own_row(self._db, self._org_id, "block", "blocks", block_id)
        sql = f"{insert_into('block_identities', 'block_id, identity_id')} ON CONFLICT DO NOTHING"
        self._run(sql, block_id=own, identity_id=self._own(identity_id))

    def detach_block(self, block_id: BlockId, identity_id: IdentityId) -> None:
        """Take an identity from a block. Raises: NotFound: the block does not have it."""
        own = "EXISTS (SELECT 1 FROM blocks b WHERE b.id = :block_id AND b.org_id = :org_id)"
        sql = f"DELETE FROM block_identities WHERE block_id = :block_id AND identity_id = :identity_id AND {own}"
        link = {"block_id": block_id, "identity_id": self._own(identity_id)}
        self._change_one("identity of this block", identity_id, sql, **link)

    def _own(self, identity_id: IdentityId) -> OwnId:
        """Return the id of an identity of this organisation, without reading its properties. Raises: NotFound."""
        return own_row(self._db, self._org_id, "identity", "identities", identity_id, lock=True)

    def list_owners(
        self, kind: Literal["agent", "block"], identity_ids: Sequence[IdentityId], *, limit: int | None = None
    ) -> Mapping[IdentityId, Sequence[Any]]:
        """Identity -> the ids of the agents or blocks (`kind`) that have it, oldest first, at most `limit` of each."""
        sql = (
            f"SELECT identity_id, owner_id FROM (SELECT x.identity_id, o.id AS owner_id, o.number,"
            " ROW_NUMBER() OVER (PARTITION BY x.identity_id ORDER BY o.number) AS place"
            f" FROM {kind}_identities x CROSS JOIN {kind}s o WHERE {{keys}} AND o.id = x.{kind}_id"
            f" AND o.org_id = :org_id) y{'' if limit is None else ' WHERE place <= :limit'} ORDER BY number"
        )
        found = self._rows_of_each(sql, "x.identity_id", identity_ids, limit=limit)
        return {identity_id: [row[0] for row in rows] for identity_id, rows in found.items()}


def add_identity_conditions(
    conditions: Conditions, kind: Literal["agent", "block"], where: AgentFilter | BlockFilter
) -> None:
    """Add what a filter of agents or blocks (`kind`) says of identities. The statement calls their table by its first
    letter: `agents a`, `blocks b`."""
    owner = kind[0]
    link = (
        f"SELECT 1 FROM {kind}_identities x JOIN identities i ON i.id = x.identity_id AND i.org_id = {owner}.org_id"
        f" WHERE x.{kind}_id = {owner}.id"
    )
    conditions.add(f"EXISTS ({link} AND i.id = ?)", where.identity_id)
    if keys := [stored_key(key) for key in where.identifier_keys]:
        conditions.add(f"EXISTS ({link} AND i.identifier_key IN ({', '.join('?' * len(keys))}))", *keys)
