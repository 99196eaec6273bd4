"""`tx.agent_files`: the files of an agent's folders, and their open views, of one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.files import AgentFile
from perdure.core.ids import AgentId, FileId, OrgId
from perdure.core.text.words import restore, storable
from perdure.storage.database.base import Database, Row, from_iso, iso, next_number
from perdure.storage.tables.files import FILE_COLUMNS, file_of

_OF_FILE = ", ".join(f"f.{column.strip()}" for column in FILE_COLUMNS.split(","))
_COLUMNS = f"{_OF_FILE}, d.name, o.is_open, o.first_line, o.last_line, o.used, o.version, o.used_at"
_FROM = (
    "agent_folders x JOIN folders d ON d.id = x.folder_id JOIN files f ON f.folder_id = x.folder_id"
    " LEFT JOIN agent_files o ON o.agent_id = x.agent_id AND o.file_id = f.id"
)
_THERE = "x.agent_id = :agent_id AND d.org_id = :org_id AND f.status <> 'deleted'"
_AT = len(FILE_COLUMNS.split(","))


class AgentFiles:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def shown(self, agent_id: AgentId) -> Mapping[str, int]:
        """The versions of all that an agent's prompt shows of files: by folder id, and by id of each open file."""
        rows = self._db.rows(
            "SELECT d.id, d.version FROM agent_folders x JOIN folders d ON d.id = x.folder_id"
            " WHERE x.agent_id = :agent_id AND d.org_id = :org_id"
            " UNION ALL SELECT o.file_id, o.version FROM agent_files o JOIN files f ON f.id = o.file_id"
            " WHERE o.agent_id = :agent_id AND o.is_open = 1 AND f.org_id = :org_id AND f.status <> 'deleted'"
            " ORDER BY 1",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        return {row[0]: row[1] for row in rows}

    def open(self, agent_id: AgentId, file_id: FileId, first_line: int, last_line: int, *, at: datetime) -> AgentFile:
        """Open a file at these lines, as the last used one. Raises: NotFound: it is in none of the agent's folders."""
        self.get(agent_id, file_id)
        self._db.run(
            "INSERT INTO agent_files (agent_id, file_id, is_open, first_line, last_line, used, version, used_at)"
            " SELECT :agent_id, :file_id, 1, :first_line, :last_line, COALESCE(MAX(used), 0) + 1, :version, :at"
            " FROM agent_files WHERE agent_id = :agent_id"
            " ON CONFLICT (agent_id, file_id) DO UPDATE SET is_open = 1, first_line = excluded.first_line,"
            " last_line = excluded.last_line, used = excluded.used, version = excluded.version,"
            " used_at = excluded.used_at",
            {
                "agent_id": agent_id,
                "file_id": file_id,
                "first_line": first_line,
                "last_line": last_line,
                "version": next_number(self._db),  # a view that is closed and opened again is a new one
                "at": iso(at),
            },
        )
        return self.get(agent_id, file_id)

    def close(self, agent_id: AgentId, file_id: FileId) -> bool:
        """Close a file; return whether it was open."""
        return bool(
            self._db.run(
                "UPDATE agent_files SET is_open = 0 WHERE agent_id = :agent_id AND file_id = :file_id AND is_open = 1"
                " AND EXISTS (SELECT 1 FROM agents WHERE id = :agent_id AND org_id = :org_id)"
                " AND EXISTS (SELECT 1 FROM files WHERE id = :file_id AND status <> 'deleted')",
                {"agent_id": agent_id, "file_id": file_id, "org_id": self._org_id},
            )
        )

    def get(self, agent_id: AgentId, file_id: FileId) -> AgentFile:
        """Raises: NotFound: it is in none of the agent's folders."""
        rows = self._read(agent_id, "f.id = :file_id", {"file_id": storable(file_id)})
        if not rows:
            raise NotFound("file", file_id, hint="it is in none of the agent's folders")
        return rows[0]

    def opened(self, agent_id: AgentId) -> Sequence[AgentFile]:
        """The agent's open files, the last used first."""
        return self._read(agent_id, "o.is_open = 1 ORDER BY o.used DESC", {})

    def named(self, agent_id: AgentId, name: str, *, limit: int = 20) -> Sequence[AgentFile]:
        """Files of the agent's folders that match `folder/name`, a name, or the part of a name behind a slash."""
        return self._read(
            agent_id,
            "(f.name = :name OR d.name || '/' || f.name = :name OR substr(f.name, length(f.name) - :length) = :end)"
            " ORDER BY d.name || '/' || f.name <> :name, f.name <> :name, d.number, f.number LIMIT :limit",
            {"name": storable(name), "end": storable(f"/{name}"), "length": len(storable(name)), "limit": limit},
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
        where, params = "1 = 1", {"limit": limit}
        if is_open is not None:
            where = f"COALESCE(o.is_open, 0) = {int(is_open)}"
        for sign, name, place in ((">", "above", above), ("<", "below", below)):
            if place is not None:
                where += f" AND (d.number, f.number) {sign} (:{name}_folder, :{name}_file)"
                params |= {f"{name}_folder": place[0], f"{name}_file": place[1]}
        order = "DESC" if newest_first else "ASC"
        return self._read(agent_id, f"{where} ORDER BY d.number {order}, f.number {order} LIMIT :limit", params)

    def _read(self, agent_id: AgentId, where: str, params: dict[str, Any]) -> Sequence[AgentFile]:
        sql = f"SELECT {_COLUMNS} FROM {_FROM} WHERE {_THERE} AND {where}"
        rows = self._db.rows(sql, params | {"agent_id": agent_id, "org_id": self._org_id})
        return [_agent_file(row) for row in rows]


def _agent_file(row: Row) -> AgentFile:
    folder_name, is_open, first_line, last_line, used, version, used_at = row[_AT:]
    return AgentFile(
        file=file_of(row[:_AT]),
        folder_name=restore(folder_name),
        is_open=bool(is_open),
        first_line=first_line or 1,
        last_line=last_line or 0,
        used=used or 0,
        version=version or 0,
        used_at=from_iso(used_at),
    )
