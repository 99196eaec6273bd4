"""`tx.archives`: the verbs of archives in one transaction.

What an archive counts (its passages, the uses of its tags) is written with every passage, so that the prompt can show
it without counting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ArchiveId, OrgId
from perdure.core.limits import DEFAULT_LIMITS, Limits
from perdure.core.passages import Archive
from perdure.core.text.words import restore, storable
from perdure.storage.database.base import Database, OwnId, Row, dump, from_iso, iso, load, next_number, own_agent
from perdure.storage.tables.vectors import open_scope_of
from perdure.storage.upkeep.deleted import delete_shared

_COLUMNS = "id, org_id, number, name, description, metadata, passage_count, version, created_at, updated_at"

# A passage carries no organisation of its own: its archive does.
OWN_ARCHIVE = "EXISTS (SELECT 1 FROM archives WHERE id = :archive_id AND org_id = :org_id)"


class Archives:
    def __init__(self, db: Database, org_id: OrgId, limits: Limits = DEFAULT_LIMITS) -> None:
        self._db, self._org_id, self._limits = db, org_id, limits

    def add(self, archive: Archive) -> Archive:
        """Add an archive, and return it with its number."""
        archive = replace(archive, number=next_number(self._db), org_id=self._org_id)
        self._db.run(
            f"INSERT INTO archives ({_COLUMNS}) VALUES (:id, :org_id, :number, :name, :description, :metadata, 0, 0,"
            " :created_at, :updated_at)",
            {
                "id": archive.id,
                "org_id": archive.org_id,
                "number": archive.number,
                "name": storable(archive.name),
                "description": None if archive.description is None else storable(archive.description),
                "metadata": dump(archive.metadata),
                "created_at": iso(archive.created_at),
                "updated_at": iso(archive.updated_at),
            },
        )
        open_scope_of(self._db, self._org_id, archive.number, "archive", archive.id)
        return archive

    def get(self, archive_id: ArchiveId) -> Archive:
        """Raises: NotFound."""
        rows = self._db.rows(
            f"SELECT {_COLUMNS} FROM archives WHERE id = :id AND org_id = :org_id",
            {"id": storable(archive_id), "org_id": self._org_id},
        )
        if not rows:
            raise NotFound("archive", archive_id)
        return _archive(rows[0])

    def put(self, archive: Archive) -> None:
        """Update name, description, metadata and `updated_at` only. Raises: NotFound."""
        changed = self._db.run(
            "UPDATE archives SET name = :name, description = :description, metadata = :metadata, updated_at = :at"
            " WHERE id = :id AND org_id = :org_id",
            {
                "id": archive.id,
                "org_id": self._org_id,
                "name": storable(archive.name),
                "description": None if archive.description is None else storable(archive.description),
                "metadata": dump(archive.metadata),
                "at": iso(archive.updated_at),
            },
        )
        if not changed:
            raise NotFound("archive", archive.id)

    def list(
        self,
        *,
        agent_id: AgentId | None = None,
        name: str | None = None,
        above: int | None = None,
        below: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[Archive]:
        """Archives with numbers between `above` and `below`, both excluded, in order of creation: all, those of an
        agent, or those with this name. Archives of folders are excluded."""
        where = "org_id = :org_id AND NOT EXISTS (SELECT 1 FROM folders f WHERE f.archive_id = archives.id)"
        params: dict[str, Any] = {"org_id": self._org_id, "limit": limit}
        given: dict[str, tuple[str, Any]] = {
            "agent_id": ("id IN (SELECT archive_id FROM agent_archives WHERE agent_id = :agent_id)", agent_id),
            "name": ("name = :name", None if name is None else storable(name)),
            "above": ("number > :above", above),
            "below": ("number < :below", below),
        }
        for key, (condition, value) in given.items():
            if value is not None:
                where, params = f"{where} AND {condition}", params | {key: value}
        order = "DESC" if newest_first else "ASC"
        rows = self._db.rows(
            f"SELECT {_COLUMNS} FROM archives WHERE {where} ORDER BY number {order} LIMIT :limit", params
        )
        return [_archive(row) for row in rows]

    def delete(self, archive_id: ArchiveId) -> None:
        """Take it from all agents and remove it.

        Raises: NotFound; InvalidInput: it still has passages, or is a folder's.
        """
        archive = self.get(archive_id)
        if archive.passage_count:
            raise InvalidInput(f"{archive_id} still has passages: delete them first")
        if self._db.rows(
            "SELECT 1 FROM folders WHERE archive_id = :id AND org_id = :org_id",
            {"id": archive_id, "org_id": self._org_id},
        ):
            raise InvalidInput(f"{archive_id} holds what a folder's files say: delete the folder")
        delete_shared(self._db, self._org_id, "archives", OwnId(archive.id))

    def attach(self, agent_id: AgentId, archive_id: ArchiveId) -> None:
        """Raises: NotFound, TooMany. Attaching twice is no error."""
        self.get(archive_id)
        own = {"agent_id": own_agent(self._db, self._org_id, agent_id), "archive_id": archive_id}
        if self._db.run(
            "INSERT INTO agent_archives (agent_id, archive_id, position) SELECT :agent_id, :archive_id,"
            " COALESCE(MAX(position), 0) + 1 FROM agent_archives WHERE agent_id = :agent_id"
            " ON CONFLICT (agent_id, archive_id) DO NOTHING",
            own,
        ):
            self._limits.check("archives_per_agent", len(self.of_agent(agent_id)))

    def detach(self, agent_id: AgentId, archive_id: ArchiveId) -> None:
        """Raises: NotFound. Detaching an archive that is not attached is not an error."""
        self.get(archive_id)
        self._db.run(
            "DELETE FROM agent_archives WHERE agent_id = :agent_id AND archive_id = :archive_id",
            {"agent_id": own_agent(self._db, self._org_id, agent_id), "archive_id": archive_id},
        )

    def detach_all(self, archive_id: ArchiveId, *, limit: int) -> int:
        """Detach it from up to `limit` of its agents; return from how many. Raises: NotFound."""
        self.get(archive_id)
        some = "SELECT agent_id FROM agent_archives WHERE archive_id = :id ORDER BY agent_id LIMIT :limit"
        return self._db.run(
            f"DELETE FROM agent_archives WHERE archive_id = :id AND agent_id IN ({some})",
            {"id": archive_id, "limit": limit},
        )

    def of_agent(self, agent_id: AgentId) -> Sequence[Archive]:
        """The agent's archives in order of attachment; the agent inserts into the first."""
        columns = ", ".join(f"a.{column}" for column in _COLUMNS.split(", "))
        rows = self._db.rows(
            f"SELECT {columns} FROM agent_archives x JOIN archives a ON a.id = x.archive_id"
            " WHERE x.agent_id = :agent_id AND a.org_id = :org_id ORDER BY x.position",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        return [_archive(row) for row in rows]

    def tags(self, archive_id: ArchiveId, *, limit: int = 20) -> Sequence[tuple[str, int]]:
        """(tag, number of passages), the most used first."""
        rows = self._db.rows(
            f"SELECT tag, uses FROM archive_tags WHERE archive_id = :archive_id AND {OWN_ARCHIVE}"
            " ORDER BY uses DESC, tag LIMIT :limit",
            {"archive_id": archive_id, "org_id": self._org_id, "limit": limit},
        )
        return [(restore(row[0]), row[1]) for row in rows]


def _archive(row: Row) -> Archive:
    return Archive(
        id=row[0],
        org_id=row[1],
        number=row[2],
        name=restore(row[3]),
        description=None if row[4] is None else restore(row[4]),
        metadata=load(row[5]),
        passage_count=row[6],
        version=row[7],
        created_at=from_iso(row[8]),
        updated_at=from_iso(row[9]),
    )
