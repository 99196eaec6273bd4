"""`tx.of(Folders)`: the folders of one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from perdure.core.errors import AlreadyExists, InvalidInput
from perdure.core.ids import AgentId, ArchiveId, FolderId
from perdure.features.files.values import Folder
from perdure.storage.database.conditions import Conditions, NumberWindow
from perdure.storage.database.row_format import RowFormat, assignments, insert_into, stored_key
from perdure.storage.tables.deleted import delete_shared
from perdure.storage.tables.table import AgentsTable, NumberedTable, OwnId, next_number, own_agent, revise_settings

_FOLDER = RowFormat(Folder)


class Folders(NumberedTable[Folder], AgentsTable[Folder]):
    _kind, _source, _format = "folder", "folders", _FOLDER
    _links, _order = "agent_folders", "x.position"

    def add(self, folder: Folder) -> Folder:
        """Add a folder without files, and return it with its number. Raises: AlreadyExists: its name exists."""
        folder = replace(folder, number=next_number(self._db), version=0, file_count=0)
        sql = f"{insert_into('folders', _FOLDER.columns)} ON CONFLICT (org_id, name) DO NOTHING"
        if not self._run_counted(sql, **_FOLDER.params(folder)):
            raise AlreadyExists("folder", folder.name)
        return folder

    def find(self, name: str) -> Folder | None:
        return self._find("name = :name", name=stored_key(name))

    def find_by_archive(self, archive_id: ArchiveId) -> Folder | None:
        """The folder whose files' passages this archive holds; None for all other archives."""
        return self._find("archive_id = :archive_id", archive_id=stored_key(archive_id))

    def put(self, folder: Folder) -> None:
        """Update name, description, instructions, metadata and `updated_at` only. Raises: NotFound, AlreadyExists."""
        own = OwnId(self.get(folder.id).id)
        namesake = self.find(folder.name)
        if namesake is not None and namesake.id != folder.id:
            raise AlreadyExists("folder", folder.name)
        columns = assignments("name, description, instructions, metadata, updated_at")
        params = _FOLDER.params(folder) | {"id": own}
        self._run(f"UPDATE folders SET {columns}, version = version + 1 WHERE id = :id", **params)

    def list(
        self, *, name: str | None = None, agent_id: AgentId | None = None, **window: Unpack[NumberWindow]
    ) -> Sequence[Folder]:
        """Folders numbered between `above` and `below`, not included: all, or an agent's. Raises: NotFound: agent."""
        where = Conditions()
        where.add("name = ?", name and stored_key(name))
        owner = agent_id and own_agent(self._db, self._org_id, agent_id)
        where.add("id IN (SELECT folder_id FROM agent_folders WHERE agent_id = ?)", owner)
        return self._in_window(where, window)

    def count(self) -> int:
        return int(self._rows("SELECT COUNT(*) FROM folders WHERE org_id = :org_id")[0][0])

    def delete(self, folder_id: FolderId) -> None:
        """Detach it from all agents, and delete it with its archive.

        Raises: NotFound; InvalidInput: it still has files, deleted ones included whose texts a worker still removes.
        """
        folder = self.get(folder_id)
        if self._rows("SELECT 1 FROM files WHERE folder_id = :id LIMIT 1", id=folder.id):
            raise InvalidInput(f"{folder_id} still has files: delete them first")
        delete_shared(self._db, self._org_id, "folders", OwnId(folder.id))

    def attach(self, agent_id: AgentId, *folder_ids: FolderId, opens: bool) -> Sequence[FolderId]:
        """Attach folders; return those that were not attached before. `opens`: open readable files while there is room.

        Raises: NotFound, TooMany.
        """
        own = own_agent(self._db, self._org_id, agent_id, lock=True)
        rows = self._rows("SELECT folder_id FROM agent_folders WHERE agent_id = :id", id=own)
        before, ids = {row[0] for row in rows}, [folder.id for folder in self._get_each(folder_ids, lock=True)]
        links: list[dict[str, Any]] = [{"agent_id": own, "folder_id": one, "opens": int(opens)} for one in ids]
        self._db.run_many(
            "INSERT INTO agent_folders (agent_id, folder_id, position, opens) SELECT :agent_id, :folder_id,"
            " COALESCE(MAX(position), 0) + 1, :opens FROM agent_folders WHERE agent_id = :agent_id"
            " ON CONFLICT (agent_id, folder_id) DO UPDATE SET opens = excluded.opens",
            links,
        )
        new = [id_ for id_ in dict.fromkeys(ids) if id_ not in before]
        if new:
            self._limits.check("folders_per_agent", len(self.list_by_agent(agent_id)))
            revise_settings(self._db, own, times=len(new))
        return new

    def detach(self, agent_id: AgentId, folder_id: FolderId) -> bool:
        """Detach a folder and close its files; return whether it was attached. Raises: NotFound."""
        own = own_agent(self._db, self._org_id, agent_id, lock=True)
        self.get(folder_id)
        link = {"agent_id": own, "folder_id": folder_id}
        if not self._run_counted(
            "DELETE FROM agent_folders WHERE agent_id = :agent_id AND folder_id = :folder_id", **link
        ):
            return False
        self._run(
            "DELETE FROM agent_files WHERE agent_id = :agent_id"
            " AND EXISTS (SELECT 1 FROM files f WHERE f.id = agent_files.file_id AND f.folder_id = :folder_id)",
            **link,
        )
        revise_settings(self._db, own)
        return True

    def list_agents(self, folder_id: FolderId, *, opening: bool = False, limit: int | None = None) -> Sequence[AgentId]:
        """The agents that have it, oldest first; with `limit`, some of them in order of ids.

        Args:
            opening: only agents that open new readable files.
        """
        rows = self._rows(
            "SELECT a.id FROM agent_folders x JOIN agents a ON a.id = x.agent_id WHERE x.folder_id = :folder_id"
            f"{' AND x.opens = 1' if opening else ''}"
            f" ORDER BY {'a.number' if limit is None else 'x.agent_id LIMIT :limit'}",
            folder_id=OwnId(self.get(folder_id).id),
            limit=limit,
        )
        return [row[0] for row in rows]
