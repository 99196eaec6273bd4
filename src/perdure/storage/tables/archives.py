"""`tx.archives`: the archives of one transaction.

An archive's counts (its passages, the uses of its tags) are written with every passage, so that the prompt can show
them without counting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Unpack

from perdure.core.errors import InvalidInput
from perdure.core.features import feature_roots, find_features
from perdure.core.ids import AgentId, ArchiveId
from perdure.core.passages import Archive, ArchiveOwner
from perdure.storage.database.conditions import Conditions, NumberWindow
from perdure.storage.database.row_format import RowFormat, insert_into, restore, storable, stored_key
from perdure.storage.tables.deleted import delete_shared
from perdure.storage.tables.table import OWN_ARCHIVE, NumberedTable, OwnId, lock_numbers, next_number, own_agent
from perdure.storage.tables.vectors import open_scope_of

_ARCHIVE = RowFormat(Archive)

_WHOLE = [root.name for root in feature_roots() if root.reference]
# First those that each node has whole: most archives that belong to something are found there.
_USES = sorted(
    (use for feature in find_features() for use in feature.archives), key=lambda use: use.table not in _WHOLE
)
_OWNED = tuple(
    f"NOT EXISTS (SELECT 1 FROM {use.table} x WHERE x.{column} = archives.id)"
    for use in _USES
    for column in use.columns
)


class Archives(NumberedTable[Archive]):
    _kind, _source, _format = "archive", "archives", _ARCHIVE

    def add(self, archive: Archive) -> Archive:
        """Add an archive without passages, and return it with its number."""
        archive = replace(archive, number=next_number(self._db), org_id=self._org_id, passage_count=0, version=0)
        self._run(insert_into("archives", _ARCHIVE.columns), **_ARCHIVE.params(archive))
        open_scope_of(self._db, self._org_id, archive.number, "archive", archive.id)
        return archive

    def lock_names(self) -> None:
        """Keep others from adding archives until the end of this transaction, in a database with concurrent writers."""
        lock_numbers(self._db)

    def put(self, archive: Archive) -> None:
        """Update name, description, metadata and `updated_at` only. Raises: NotFound."""
        self._update(archive, "name, description, metadata, updated_at")

    def list(
        self, *, agent_id: AgentId | None = None, name: str | None = None, **window: Unpack[NumberWindow]
    ) -> Sequence[Archive]:
        """Archives with numbers between `above` and `below`, both excluded, in order of creation: all, those of an
        agent, or those with this name. An archive that belongs to a folder or the like is left out."""
        where = Conditions(*_OWNED)
        where.add("id IN (SELECT archive_id FROM agent_archives WHERE agent_id = ?)", agent_id)
        where.add("name = ?", name and stored_key(name))
        return self._in_window(where, window)

    def delete(self, archive_id: ArchiveId) -> None:
        """Delete an archive. Raises: NotFound; InvalidInput: it has passages, or is a folder's or a graph's."""
        archive = self.get(archive_id)
        if archive.passage_count:
            raise InvalidInput(f"{archive_id} still has passages: delete them first")
        if (owner := self.find_owner(archive_id)) is not None:
            raise InvalidInput(f"{archive_id} holds {owner.use.holds}: delete the {owner.use.kind}")
        delete_shared(self._db, self._org_id, "archives", OwnId(archive.id))

    def attach(self, agent_id: AgentId, *archive_ids: ArchiveId) -> None:
        """Give an agent archives, behind those it has; twice is no error. Raises: NotFound, TooMany."""
        own = own_agent(self._db, self._org_id, agent_id, lock=True)
        before = {row[0] for row in self._rows("SELECT archive_id FROM agent_archives WHERE agent_id = :id", id=own)}
        new = [archive.id for archive in self._get_each(archive_ids, lock=True) if archive.id not in before]
        self._db.run_many(
            "INSERT INTO agent_archives (agent_id, archive_id, position) SELECT :agent_id, :archive_id,"
            " COALESCE(MAX(position), 0) + 1 FROM agent_archives WHERE agent_id = :agent_id"
            " ON CONFLICT (agent_id, archive_id) DO NOTHING",
            [{"agent_id": own, "archive_id": archive_id} for archive_id in new],
        )
        if new:
            self._limits.check("archives_per_agent", len(self.list_by_agent(agent_id)))

    def detach(self, agent_id: AgentId, archive_id: ArchiveId) -> None:
        """Take an archive from an agent, if it has it. Raises: NotFound: the agent or archive."""
        own = own_agent(self._db, self._org_id, agent_id, lock=True)
        self.get(archive_id)
        sql = "DELETE FROM agent_archives WHERE agent_id = :agent_id AND archive_id = :archive_id"
        self._run(sql, agent_id=own, archive_id=archive_id)

    def detach_all(self, archive_id: ArchiveId, *, limit: int) -> int:
        """Detach an archive from up to `limit` agents; return from how many. Raises: NotFound."""
        self.get(archive_id)
        agents = "SELECT agent_id FROM agent_archives WHERE archive_id = :id ORDER BY agent_id LIMIT :limit"
        sql = f"DELETE FROM agent_archives WHERE archive_id = :id AND agent_id IN ({agents})"
        return self._run_counted(sql, id=archive_id, limit=limit)

    def find_owner(self, archive_id: ArchiveId) -> ArchiveOwner | None:
        """The folder or the like that the archive belongs to; None: it belongs to nothing."""
        for use in _USES:
            sql = f"SELECT id, name FROM {use.table} WHERE org_id = :org_id AND :id IN ({', '.join(use.columns)})"
            for id_, name in self._rows(sql, id=storable(archive_id)):
                return ArchiveOwner(use, id_, restore(name))
        return None

    def list_by_agent(self, agent_id: AgentId) -> Sequence[Archive]:
        """The agent's archives in order of attachment; the agent inserts into the first."""
        # Agents and archives are two families of rows (`storage.distribution`), so this takes two statements.
        sql = "SELECT archive_id FROM agent_archives WHERE agent_id = :agent_id ORDER BY position"
        return [*self.list_by_ids([row[0] for row in self._rows(sql, agent_id=agent_id)]).values()]

    def list_by_ids(self, archive_ids: Sequence[ArchiveId]) -> Mapping[ArchiveId, Archive]:
        """Id -> archive, in the order of the ids; an id that no archive has is left out."""
        return self._list_by_ids(archive_ids)

    def list_agents(self, archive_id: ArchiveId, *, limit: int) -> Sequence[AgentId]:
        """The ids of agents that have the archive, in order of the ids."""
        return self._agents_of("agent_archives", "archive_id", OWN_ARCHIVE, archive_id, limit)

    def tags(self, archive_id: ArchiveId, *, limit: int = 20) -> Sequence[tuple[str, int]]:
        """(tag, number of passages), the most used first."""
        of_archive = f"archive_id = :archive_id AND {OWN_ARCHIVE}"
        sql = f"SELECT tag, uses FROM archive_tags WHERE {of_archive} ORDER BY uses DESC, tag LIMIT :limit"
        return [(restore(tag), uses) for tag, uses in self._rows(sql, archive_id=archive_id, limit=limit)]
