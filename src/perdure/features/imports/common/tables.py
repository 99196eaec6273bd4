"""`tx.of(ImportedItems)`: what imports have brought, by the ids that these derive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.core.ids import AgentId
from perdure.storage.tables.table import OWN_AGENT, Table, own_agent

MOVED = "moved "
"""The beginning of the id that says from which agent an export came that was read into one, and from which it had come
before, and so on."""


class ImportedItems(Table):
    """The conversations and passages that imports have brought, and the messages that they have withdrawn. They stay
    known when the thing itself is deleted."""

    def find(self, agent_id: AgentId, ids: Sequence[str]) -> Mapping[str, str]:
        """Return id -> digest of the imported item, of the known ids; an empty digest: it is incomplete."""
        sql = f"SELECT id, digest FROM imported WHERE {{keys}} AND agent_id = :agent_id AND {OWN_AGENT}"
        found = self._rows_of_each(sql, "id", ids, agent_id=agent_id)
        return {id_: rows[0][0] for id_, rows in found.items() if rows}

    def put(self, agent_id: AgentId, digests: Mapping[str, str]) -> None:
        """Note that these were imported (id -> digest). Raises: NotFound: there is no such agent."""
        own = own_agent(self._db, self._org_id, agent_id)
        self._db.run_many(
            "INSERT INTO imported (agent_id, id, digest) VALUES (:agent_id, :id, :digest)"
            " ON CONFLICT (agent_id, id) DO UPDATE SET digest = :digest",
            [{"agent_id": own, "id": id_, "digest": digest} for id_, digest in digests.items()],
        )

    def find_owner(self, id_: str) -> AgentId | None:
        """Return the oldest agent that has an imported item with this id; None: there is none."""
        return next(iter(self.owners(id_)), None)

    def owners(self, id_: str) -> Sequence[AgentId]:
        """Return the agents for which this id is known, the oldest first."""
        known = "EXISTS (SELECT 1 FROM imported i WHERE i.agent_id = a.id AND i.id = :id)"
        rows = self._rows(f"SELECT a.id FROM agents a WHERE a.org_id = :org_id AND {known} ORDER BY a.number", id=id_)
        return [AgentId(row[0]) for row in rows]

    def list_moved(self, agent_id: AgentId) -> Sequence[Sequence[AgentId]]:
        """Return the ids of the agents whose exports were read into an agent, each with those before it."""
        sql = f"SELECT id FROM imported WHERE agent_id = :agent_id AND id LIKE '{MOVED}%' AND {OWN_AGENT} ORDER BY id"
        rows = self._rows(sql, agent_id=agent_id)
        return [[*map(AgentId, row[0].removeprefix(MOVED).split())] for row in rows]
