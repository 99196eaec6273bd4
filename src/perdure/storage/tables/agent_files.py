"""`tx.agent_files`: the files of an agent's folders, and their open views, of one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from perdure.core.files import AgentFile
from perdure.core.ids import AgentId, FileId
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import TIME, Row, iso, restore, storable
from perdure.storage.tables.files import FILE
from perdure.storage.tables.table import Table, first, next_number

_COLUMNS = f"{FILE.columns_of('f')}, d.name, o.is_open, o.first_line, o.last_line, o.used, o.version, o.used_at"
_FROM = (
    "agent_folders x JOIN folders d ON d.id = x.folder_id JOIN files f ON f.folder_id = x.folder_id"
    " LEFT JOIN agent_files o ON o.agent_id = x.agent_id AND o.file_id = f.id"
)
_OWN_FILES = "x.agent_id = :agent_id AND d.org_id = :org_id AND f.status <> 'deleted'"


class AgentFiles(Table):
    def list_versions(self, agent_id: AgentId) -> Mapping[str, int]:
        """The versions of all that an agent's prompt shows of files: by folder id, and by id of each open file."""
        rows = self._rows(
            "SELECT d.id, d.version FROM agent_folders x JOIN folders d ON d.id = x.folder_id"
            " WHERE x.agent_id = :agent_id AND d.org_id = :org_id"
            " UNION ALL SELECT o.file_id, o.version FROM agent_files o JOIN files f ON f.id = o.file_id"
            " WHERE o.agent_id = :agent_id AND o.is_open = 1 AND f.org_id = :org_id AND f.status <> 'deleted'"
            " ORDER BY 1",
            agent_id=agent_id,
        )
        return {row[0]: row[1] for row in rows}

    def open(self, agent_id: AgentId, file_id: FileId, first_line: int, last_line: int, *, at: datetime) -> AgentFile:
        """Open a file at these lines, as the last used one. Raises: NotFound: it is in none of the agent's folders."""
        self.get(agent_id, file_id)
        self._run(
            "INSERT INTO agent_files (agent_id, file_id, is_open, first_line, last_line, used, version, used_at)"
            " SELECT :agent_id, :file_id, 1, :first_line, :last_line, COALESCE(MAX(used), 0) + 1, :version, :at"
            " FROM agent_files WHERE agent_id = :agent_id"
            " ON CONFLICT (agent_id, file_id) DO UPDATE SET is_open = 1, first_line = excluded.first_line,"
            " last_line = excluded.last_line, used = excluded.used, version = excluded.version,"
            " used_at = excluded.used_at",
            agent_id=agent_id,
            file_id=file_id,
            first_line=first_line,
            last_line=last_line,
            version=next_number(self._db),  # a view that is closed and opened again is a new one
            at=iso(at),
        )
        return self.get(agent_id, file_id)

    def close(self, agent_id: AgentId, file_id: FileId) -> bool:
        """Close a file; return whether it was open."""
        changed = self._run_counted(
            "UPDATE agent_files SET is_open = 0 WHERE agent_id = :agent_id AND file_id = :file_id AND is_open = 1"
            " AND EXISTS (SELECT 1 FROM agents WHERE id = :agent_id AND org_id = :org_id)"
            " AND EXISTS (SELECT 1 FROM files WHERE id = :file_id AND status <> 'deleted')",
            agent_id=agent_id,
            file_id=file_id,
        )
        return bool(changed)

    def get(self, agent_id: AgentId, file_id: FileId) -> AgentFile:
        """Raises: NotFound: it is in none of the agent's folders."""
        files = self._read(agent_id, "f.id = :file_id", file_id=storable(file_id))
        return first(files, "file", file_id, hint="it is in none of the agent's folders")

    def list_open(self, agent_id: AgentId) -> Sequence[AgentFile]:
        """The agent's open files, the last used first."""
        return self._read(agent_id, "o.is_open = 1 ORDER BY o.used DESC")

    def find_by_path(self, agent_id: AgentId, name: str, *, limit: int = 20) -> Sequence[AgentFile]:
        """Files of the agent's folders that match `folder/name`, a name, or the part of a name behind a slash."""
        return self._read(
            agent_id,
            "(f.name = :name OR d.name || '/' || f.name = :name OR substr(f.name, length(f.name) - :length) = :end)"
            " ORDER BY d.name || '/' || f.name <> :name, f.name <> :name, d.number, f.number LIMIT :limit",
            name=storable(name),
            end=storable(f"/{name}"),
            length=len(storable(name)),
            limit=limit,
        )

    def list(
        self,
        agent_id: AgentId,
        *,
        is_open: bool | None = None,
        above: tuple[int, int] | None = None,
        below: tuple[int, int] | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[AgentFile]:
        """Files of the agent's folders by (folder's number, file's number), between `above` and `below`, both
        excluded."""
        where = Conditions()
        where.equal("COALESCE(o.is_open, 0)", is_open)
        if above is not None:
            where.add("(d.number, f.number) > (?, ?)", *above)
        if below is not None:
            where.add("(d.number, f.number) < (?, ?)", *below)
        order = "DESC" if newest_first else "ASC"
        return self._read(
            agent_id,
            f"{where} ORDER BY d.number {order}, f.number {order} LIMIT :limit",
            limit=limit,
            **where.params,
        )

    def _read(self, agent_id: AgentId, where: str, **params: Any) -> Sequence[AgentFile]:
        sql = f"SELECT {_COLUMNS} FROM {_FROM} WHERE {_OWN_FILES} AND {where}"
        return [_agent_file(row) for row in self._rows(sql, agent_id=agent_id, **params)]


def _agent_file(row: Row) -> AgentFile:
    folder_name, is_open, first_line, last_line, used, version, used_at = row[-7:]
    return AgentFile(
        file=FILE.read(row),
        folder_name=restore(folder_name),
        is_open=bool(is_open),
        first_line=first_line or 1,
        last_line=last_line or 0,
        used=used or 0,
        version=version or 0,
        used_at=used_at and TIME.load(used_at),
    )
