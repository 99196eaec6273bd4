"""`tx.folders`: the verbs of folders in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perdure.core.errors import AlreadyExists, InvalidInput, NotFound
from perdure.core.files import Folder
from perdure.core.ids import AgentId, ArchiveId, FolderId, OrgId
from perdure.core.limits import DEFAULT_LIMITS, Limits
from perdure.core.text.words import restore, storable
from perdure.storage.database.base import (
    Database,
    OwnId,
    Row,
    dump,
    from_iso,
    iso,
    load,
    next_number,
    own_agent,
    revise_settings,
)
from perdure.storage.tables.archives import Archives
from perdure.storage.upkeep.deleted import delete_shared

_COLUMNS = (
    "id, org_id, number, name, description, instructions, metadata, archive_id, version, file_count, created_at,"
    " updated_at"
)


class Folders:
    def __init__(self, db: Database, org_id: OrgId, limits: Limits = DEFAULT_LIMITS) -> None:
        self._db, self._org_id, self._limits = db, org_id, limits

    def add(self, folder: Folder) -> Folder:
        """The folder with its number; counts begin at 0. Raises: AlreadyExists: its name is taken."""
        folder = replace(folder, number=next_number(self._db), version=0, file_count=0)
        if not self._db.run(
            f"INSERT INTO folders ({_COLUMNS}) VALUES (:id, :org_id, :number, :name, :description, :instructions,"
            " :metadata, :archive_id, 0, 0, :created_at, :updated_at) ON CONFLICT (org_id, name) DO NOTHING",
            _own_columns(folder)
            | {
                "org_id": self._org_id,
                "number": folder.number,
                "archive_id": folder.archive_id,
                "created_at": iso(folder.created_at),
            },
        ):
            raise AlreadyExists("folder", folder.name)
        return folder

    def get(self, folder_id: FolderId) -> Folder:
        """Raises: NotFound."""
        rows = self._read("id = :id", {"id": storable(folder_id)})
        if not rows:
            raise NotFound("folder", folder_id)
        return rows[0]

    def find(self, name: str) -> Folder | None:
        rows = self._read("name = :name", {"name": storable(name)})
        return rows[0] if rows else None

    def of_archive(self, archive_id: ArchiveId) -> Folder | None:
        """The folder whose files' passages this archive holds; None for all other archives."""
        rows = self._read("archive_id = :archive_id", {"archive_id": storable(archive_id)})
        return rows[0] if rows else None

    def put(self, folder: Folder) -> None:
        """Keep its name, description, instructions, metadata and `updated_at`; nothing else can be changed so.

        Raises: NotFound, AlreadyExists.
        """
        own = OwnId(self.get(folder.id).id)
        namesake = self.find(folder.name)
        if namesake is not None and namesake.id != folder.id:
            raise AlreadyExists("folder", folder.name)
        self._update(own, folder)

    def _update(self, own: OwnId, folder: Folder) -> None:
        self._db.run(
            "UPDATE folders SET name = :name, description = :description, instructions = :instructions,"
            " metadata = :metadata, updated_at = :updated_at, version = version + 1 WHERE id = :id",
            _own_columns(folder) | {"id": own},
        )

    def list(
        self,
        *,
        name: str | None = None,
        above: int | None = None,
        below: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[Folder]:
        """Folders whose numbers lie between `above` and `below`, both left out, in order of creation."""
        where, params = between("number", above, below)
        if name is not None:
            where, params = f"{where} AND name = :name", params | {"name": storable(name)}
        order = "DESC" if newest_first else "ASC"
        return self._read(f"{where} ORDER BY number {order} LIMIT :limit", params | {"limit": limit})

    def count(self) -> int:
        rows = self._db.rows("SELECT COUNT(*) FROM folders WHERE org_id = :org_id", {"org_id": self._org_id})
        return int(rows[0][0])

    def delete(self, folder_id: FolderId) -> None:
        """Detach it from all agents, and delete it with its archive.

        Raises: NotFound; InvalidInput: it still has files, or its archive passages.
        """
        folder = self.get(folder_id)
        held = self._db.rows("SELECT passage_count FROM archives WHERE id = :id", {"id": folder.archive_id})
        if folder.file_count or (held and held[0][0]):
            raise InvalidInput(f"{folder_id} still has files: delete them first")
        delete_shared(self._db, self._org_id, "folders", OwnId(folder.id))
        Archives(self._db, self._org_id).delete(folder.archive_id)

    def attach(self, agent_id: AgentId, folder_id: FolderId, *, opens: bool) -> bool:
        """Attach a folder; return whether it was not attached before. `opens`: open readable files while there is room.

        Raises: NotFound, TooMany.
        """
        self.get(folder_id)
        own_id = own_agent(self._db, self._org_id, agent_id)
        own = {"agent_id": own_id, "folder_id": folder_id, "opens": int(opens)}
        added = self._db.run(
            "INSERT INTO agent_folders (agent_id, folder_id, position, opens) SELECT :agent_id, :folder_id,"
            " COALESCE(MAX(position), 0) + 1, :opens FROM agent_folders WHERE agent_id = :agent_id"
            " ON CONFLICT (agent_id, folder_id) DO NOTHING",
            own,
        )
        if not added:
            self._db.run(
                "UPDATE agent_folders SET opens = :opens WHERE agent_id = :agent_id AND folder_id = :folder_id", own
            )
            return False
        self._limits.check("folders_per_agent", len(self.of_agent(agent_id)))
        revise_settings(self._db, own_id)
        return True

    def detach(self, agent_id: AgentId, folder_id: FolderId) -> bool:
        """Detach a folder and close its files; return whether it was attached. Raises: NotFound."""
        self.get(folder_id)
        own_id = own_agent(self._db, self._org_id, agent_id)
        own = {"agent_id": own_id, "folder_id": folder_id}
        if not self._db.run("DELETE FROM agent_folders WHERE agent_id = :agent_id AND folder_id = :folder_id", own):
            return False
        self._db.run(
            "DELETE FROM agent_files WHERE agent_id = :agent_id"
            " AND EXISTS (SELECT 1 FROM files f WHERE f.id = agent_files.file_id AND f.folder_id = :folder_id)",
            own,
        )
        revise_settings(self._db, own_id)
        return True

    def of_agent(self, agent_id: AgentId) -> Sequence[Folder]:
        """The agent's folders in order of attachment."""
        columns = ", ".join(f"f.{column.strip()}" for column in _COLUMNS.split(","))
        rows = self._db.rows(
            f"SELECT {columns} FROM agent_folders x JOIN folders f ON f.id = x.folder_id"
            " WHERE x.agent_id = :agent_id AND f.org_id = :org_id ORDER BY x.position",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        return [_folder(row) for row in rows]

    def agents(self, folder_id: FolderId, *, opening: bool = False, limit: int | None = None) -> Sequence[AgentId]:
        """The agents that have it, oldest first; with `limit`, some of them in order of ids.

        Args:
            opening: only agents that open new readable files.
        """
        return self._agents(OwnId(self.get(folder_id).id), opening=opening, limit=limit)

    def _agents(self, own: OwnId, *, opening: bool, limit: int | None) -> Sequence[AgentId]:
        rows = self._db.rows(
            "SELECT a.id FROM agent_folders x JOIN agents a ON a.id = x.agent_id WHERE x.folder_id = :folder_id"
            f"{' AND x.opens = 1' if opening else ''}"
            f" ORDER BY {'a.number' if limit is None else 'x.agent_id LIMIT :limit'}",
            {"folder_id": own, "limit": limit},
        )
        return [row[0] for row in rows]

    def _read(self, where: str, params: dict[str, Any]) -> Sequence[Folder]:
        sql = f"SELECT {_COLUMNS} FROM folders WHERE org_id = :org_id AND {where}"
        return [_folder(row) for row in self._db.rows(sql, params | {"org_id": self._org_id})]


def between(column: str, above: int | None, below: int | None) -> tuple[str, dict[str, Any]]:
    """The condition that a number is between two others, both excluded; None is no bound."""
    where, params = f"{column} > :above", {"above": -1 if above is None else above}
    return (where, params) if below is None else (f"{where} AND {column} < :below", params | {"below": below})


def _own_columns(folder: Folder) -> dict[str, Any]:
    return {
        "id": folder.id,
        "name": storable(folder.name),
        "description": None if folder.description is None else storable(folder.description),
        "instructions": None if folder.instructions is None else storable(folder.instructions),
        "metadata": dump(folder.metadata),
        "updated_at": iso(folder.updated_at),
    }


def _folder(row: Row) -> Folder:
    return Folder(
        id=row[0],
        org_id=row[1],
        number=row[2],
        name=restore(row[3]),
        description=None if row[4] is None else restore(row[4]),
        instructions=None if row[5] is None else restore(row[5]),
        metadata=load(row[6]),
        archive_id=row[7],
        version=row[8],
        file_count=row[9],
        created_at=from_iso(row[10]),
        updated_at=from_iso(row[11]),
    )
