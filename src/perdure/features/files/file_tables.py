"""`tx.of(Files)`: the files of one transaction: a file, its bytes, its processing, its text; `tx.of(AgentFiles)`: the
files of an agent's folders, and their open views.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Unpack

from perdure.core.errors import AlreadyExists, LeaseLost
from perdure.core.forgetting.redaction import Redactor
from perdure.core.ids import AgentId, ArchiveId, FileId, FolderId
from perdure.features.files.values import AgentFile, File, FilePart, file_tag
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions, NumberWindow
from perdure.storage.tables.table import NumberedTable, OwnId, Table, first, keep_places, next_number, place_in
from perdure.storage.tables.vectors import NEVER

FILE = row_format.RowFormat(File)
_RESULT_COLUMNS = (
    "kind, status, problem, title, warnings, done, total, page_count, line_count, char_count, chunk_count, updated_at"
)
_PART = row_format.RowFormat(FilePart)

# Bytes and parts have no organisation column: their file has.
_OWN_FILE = "file_id = :file_id AND EXISTS (SELECT 1 FROM files WHERE id = :file_id AND org_id = :org_id)"
_ABANDONED = (
    "SELECT file_id, seq FROM file_uploads WHERE created_at < :before"
    " AND NOT EXISTS (SELECT 1 FROM files WHERE files.id = file_uploads.file_id)"
)
_UNENDED = "status NOT IN ('completed', 'error')"
_LEASE_HOLDS = f"id = :id AND org_id = :org_id AND lease_owner = :owner AND tries = :tries AND {_UNENDED}"
_RELEASE = (
    "UPDATE files SET lease_owner = NULL, lease_until = NULL, tries = tries - 1,"
    " status = CASE WHEN status = 'deleted' THEN status ELSE 'pending' END"
)


class Files(NumberedTable[File]):
    """The files of folders: their rows, uploaded bytes, claims by workers, and texts."""

    _kind, _source, _format = "file", "files", FILE
    _in_org = "org_id = :org_id AND status <> 'deleted'"

    def add(self, file: File) -> File:
        """Add a file; return it with its number. Raises: NotFound: no such folder; AlreadyExists: its name is taken."""
        if self.find(file.folder_id, file.name) is not None:
            raise AlreadyExists("file", file.name)
        rows = self._rows(
            "UPDATE folders SET file_seq = file_seq + 1, file_count = file_count + 1, updated_at = :at"
            " WHERE id = :id AND org_id = :org_id RETURNING file_seq - 1",
            id=file.folder_id,
            at=row_format.iso(file.created_at),
        )
        file = replace(file, number=first(rows, "folder", file.folder_id)[0])
        self._run(row_format.insert_into("files", FILE.columns), **FILE.params(file))
        self._db.signal("files")
        return file

    def place(self, file_id: FileId) -> tuple[FolderId, int]:
        """Return the folder of a file and its number there, also of a deleted file. Raises: NotFound."""
        place = place_in(self._db, self._org_id, "file", "files", ("folder_id", "number"), file_id)
        return FolderId(place[0]), int(place[1])

    def find(self, folder_id: FolderId, name: str) -> File | None:
        where = "folder_id = :folder_id AND name = :name"
        return self._find(where, folder_id=folder_id, name=row_format.stored_key(name))

    def find_by_digest(self, digest: str, *, suffix: str) -> File | None:
        """A converted file with these bytes whose name ends in `suffix`."""
        files = self._read(
            "digest = :digest AND status = 'completed' AND substr(name, length(name) - :more) = :suffix LIMIT 1",
            digest=digest,
            suffix=row_format.storable(suffix),
            more=len(suffix) - 1,
        )
        return files[0] if files else None

    def list(self, folder_id: FolderId, **window: Unpack[NumberWindow]) -> Sequence[File]:
        """Files with numbers between `above` and `below`, both excluded."""
        where = Conditions("folder_id = :folder_id", folder_id=folder_id)
        return self._in_window(where, window)

    def measure(self, folder_id: FolderId | None = None) -> tuple[int, int]:
        """How many files there are, in all folders or in one, and how many bytes they have."""
        where = Conditions("org_id = :org_id", "status <> 'deleted'")
        where.equal("folder_id", folder_id)
        rows = self._rows(f"SELECT COUNT(*), COALESCE(SUM(size_bytes), 0) FROM files WHERE {where}", **where.params)
        return int(rows[0][0]), int(rows[0][1])

    def count_queued_passages(self, folder_id: FolderId) -> Mapping[FileId, int]:
        """File -> how many of its passages wait for vectors, without zeros."""
        # The statement starts at the queue, which is empty most of the time.
        rows = self._rows(
            "SELECT p.tags, COUNT(*) FROM folders d JOIN archives a ON a.id = d.archive_id"
            " JOIN embedding_queue q ON q.number = a.number JOIN passages p ON p.archive_id = a.id AND p.seq = q.seq"
            " WHERE d.id = :folder_id AND d.org_id = :org_id AND q.not_before < :never GROUP BY p.tags",
            folder_id=folder_id,
            never=NEVER,
        )
        counts: dict[FileId, int] = {}
        for tags, count in rows:
            for tag in row_format.load(tags):
                if tag.startswith(file_tag(FileId(""))):
                    file_id = FileId(tag.removeprefix(file_tag(FileId(""))))
                    counts[file_id] = counts.get(file_id, 0) + int(count)
        return counts

    def delete(self, file_id: FileId) -> None:
        """Hide a file and free its name; a worker (`claim`) removes its rows, last by `purge`. Raises: NotFound."""
        file = self.get(file_id)
        self._db.signal("files")
        keep_places(self._db, self._org_id, {file_id: {"folder_id": file.folder_id, "number": file.number}})
        self._run("DELETE FROM file_uploads WHERE file_id = :id", id=file_id)
        # A worker on it loses its claim. The id as its name is certainly free.
        self._run(
            "UPDATE files SET status = 'deleted', name = id, lease_owner = NULL, lease_until = NULL, tries = 0"
            " WHERE id = :id",
            id=file_id,
        )
        self._run(
            "UPDATE folders SET file_count = file_count - 1, version = version + 1 WHERE id = :id", id=file.folder_id
        )

    def drop_views(self, file_id: FileId, *, limit: int) -> int:
        """Remove a file's views of up to `limit` agents; return how many."""
        agents = "SELECT agent_id FROM agent_files WHERE file_id = :file_id ORDER BY agent_id LIMIT :limit"
        sql = f"DELETE FROM agent_files WHERE agent_id IN ({agents}) AND {_OWN_FILE}"
        return self._run_counted(sql, file_id=file_id, limit=limit)

    def purge(self, file: File) -> None:
        """Remove the row and text of a deleted file whose passages and views are removed. Raises: LeaseLost."""
        sql = f"DELETE FROM files WHERE {_LEASE_HOLDS} AND status = 'deleted'"
        if not self._run_counted(sql, id=file.id, owner=file.lease_owner, tries=file.tries):
            raise LeaseLost(f"{file.id} is not ours to remove")
        for table in ("file_parts", "file_pages"):
            self._run(f"DELETE FROM {table} WHERE file_id = :id", id=file.id)

    # -- its bytes -----------------------------------------------------------------------------------------------------

    def put_bytes(self, file_id: FileId, seq: int, data: bytes, *, at: datetime) -> None:
        """Store a part of a file's bytes, even before the file is added; parts count from 0."""
        sql = row_format.insert_into("file_uploads", "file_id, seq, bytes, created_at")
        self._run(sql, file_id=file_id, seq=seq, bytes=data, created_at=row_format.iso(at))

    def get_bytes(self, file_id: FileId, seq: int) -> bytes | None:
        """A part of the bytes; None after the last."""
        rows = self._rows(f"SELECT bytes FROM file_uploads WHERE seq = :seq AND {_OWN_FILE}", file_id=file_id, seq=seq)
        return bytes(rows[0][0]) if rows else None

    def drop_bytes(self, file_id: FileId) -> None:
        self._run(f"DELETE FROM file_uploads WHERE {_OWN_FILE}", file_id=file_id)

    def has_abandoned(self, *, before: datetime) -> bool:
        """Whether there are parts older than `before` whose file was never added."""
        return bool(self._rows(f"{_ABANDONED} LIMIT 1", before=row_format.iso(before)))

    def drop_abandoned(self, *, before: datetime, limit: int) -> int:
        """Remove up to `limit` parts older than `before` whose file was never added; return how many."""
        parts = f"{_ABANDONED} LIMIT :limit"
        sql = f"DELETE FROM file_uploads WHERE (file_id, seq) IN ({parts})"
        return self._run_counted(sql, before=row_format.iso(before), limit=limit)

    def forget_object(self, file_id: FileId) -> None:
        """Forget the key of a file's bytes, which were removed."""
        self._run("UPDATE files SET object_key = '' WHERE id = :id AND org_id = :org_id", id=file_id)

    def named_keys(self, keys: Sequence[str]) -> set[str]:
        """Which of these keys of objects a file names, also a deleted file that is not removed yet."""
        where = Conditions("org_id = :org_id")
        where.among("object_key", keys)
        return {row[0] for row in self._rows(f"SELECT object_key FROM files WHERE {where}", **where.params)}

    # -- taking a text out of it

    def get_part(self, file_id: FileId, seq: int) -> str:
        """The text of a part of a file. Raises: NotFound."""
        rows = self._rows(f"SELECT text FROM file_parts WHERE {_OWN_FILE} AND seq = :seq", file_id=file_id, seq=seq)
        return row_format.restore(str(first(rows, "file", file_id)[0]))

    def put_part(self, file_id: FileId, seq: int, text: str) -> None:
        """Replace the text of a part by one with the same lines and length; drop the file's digest, as bytes differ."""
        stored = row_format.storable(text)
        self._run(
            f"UPDATE file_parts SET text = :text WHERE {_OWN_FILE} AND seq = :seq",
            file_id=file_id,
            seq=seq,
            text=stored,
        )
        self._run("UPDATE files SET digest = '' WHERE id = :file_id AND org_id = :org_id", file_id=file_id)

    def mask_parts(self, file_id: FileId, redactor: Redactor, *, after: int = -1, limit: int = 4) -> int | None:
        """Mask a text in the next parts of a file, also across two; return the part to go on after, None: the end."""
        rows = self._rows(
            f"SELECT seq, text FROM file_parts WHERE {_OWN_FILE} AND seq > :after ORDER BY seq LIMIT :limit",
            file_id=file_id,
            after=after,
            limit=limit,
        )
        texts = [row_format.restore(row[1]) for row in rows]
        for (seq, _), text, masked in zip(rows, texts, redactor.mask(texts), strict=True):
            if masked != text:
                self.put_part(file_id, seq, masked)
        return rows[-2][0] if len(rows) == limit and limit > 1 else None  # the last one again, beside its next

    def has_waiting(self, archive_id: ArchiveId) -> bool:
        """Whether a file of the folder with this archive is still to be read: its bytes may hold anything."""
        return bool(
            self._rows(
                "SELECT 1 FROM files i JOIN folders f ON f.id = i.folder_id WHERE f.archive_id = :id"
                " AND f.org_id = :org_id AND i.status NOT IN ('completed', 'error', 'deleted') LIMIT 1",
                id=archive_id,
            )
        )

    # -- its processing ------------------------------------------------------------------------------------------------

    def has_work(self) -> bool:
        """Whether a file is unfinished, claimed or not."""
        return bool(self._rows(f"SELECT 1 FROM files WHERE org_id = :org_id AND {_UNENDED} LIMIT 1"))

    def claim(self, *, owner: str, at: datetime, until: datetime, dead_owners: Sequence[str] = ()) -> File | None:
        """Claim the oldest file that waits for conversion or removal, and count the try. None: no file is free."""
        dead = Conditions()
        dead.among("lease_owner", dead_owners)
        free = f"org_id = :org_id AND {_UNENDED} AND (lease_owner IS NULL OR lease_until < :at OR {dead})"
        params = {"at": row_format.iso(at), "owner": owner, "until": row_format.iso(until), **dead.params}
        skip = f"{self._db.for_update} SKIP LOCKED" if self._db.for_update else ""  # another process takes it just now
        rows = self._rows(f"SELECT id FROM files WHERE {free} ORDER BY created_at, number LIMIT 8{skip}", **params)
        claims = (self._claim(OwnId(row[0]), free, params) for row in rows)
        return next((file for file in claims if file is not None), None)

    def _claim(self, own: OwnId, free: str, params: Mapping[str, Any]) -> File | None:
        """Claim one file, unless another process has just done so."""
        return self._one(
            FILE,
            "UPDATE files SET lease_owner = :owner, lease_until = :until, tries = tries + 1,"
            " status = CASE WHEN status = 'deleted' THEN status ELSE 'parsing' END, done = 0, total = 0,"
            f" updated_at = :at WHERE id = :id AND {free} RETURNING {FILE.columns}",
            id=own,
            **params,
        )

    def list_owners(self) -> Sequence[str]:
        """The owners of all claims."""
        rows = self._rows(
            f"SELECT DISTINCT lease_owner FROM files WHERE org_id = :org_id AND {_UNENDED} AND lease_owner IS NOT NULL"
        )
        return [row[0] for row in rows]

    def renew(self, file: File, *, until: datetime, done: int | None = None, total: int | None = None) -> None:
        """Extend the claim of `file`, and store the progress.

        Raises: LeaseLost: the claim is another's or has ended, or the file is gone.
        """
        self._update_claimed(
            file,
            "lease_until = :until, done = COALESCE(:done, done), total = COALESCE(:total, total)",
            {"until": row_format.iso(until), "done": done, "total": total},
        )

    def end(self, file: File) -> None:
        """Store the result of a claimed file, release it, and count up its folder's version. Raises: LeaseLost."""
        changes = f"{row_format.assignments(_RESULT_COLUMNS)}, lease_owner = NULL, lease_until = NULL"
        self._update_claimed(file, changes, FILE.params(file))
        if file.status == "completed":
            self._run("UPDATE folders SET version = version + 1 WHERE id = :id", id=file.folder_id)

    def _update_claimed(self, file: File, changes: str, params: Mapping[str, Any]) -> None:
        """Update a file that is claimed as `file` says. Raises: LeaseLost."""
        lease = {"id": file.id, "owner": file.lease_owner, "tries": file.tries}
        if not self._run_counted(f"UPDATE files SET {changes} WHERE {_LEASE_HOLDS}", **{**params, **lease}):
            raise LeaseLost(f"{file.id} is not ours to process any more")

    def release_all(self, owner: str) -> None:
        """Release all files of `owner`; these tries are not counted."""
        self._run(f"{_RELEASE} WHERE org_id = :org_id AND lease_owner = :owner AND {_UNENDED}", owner=owner)

    def release_claim(self, file: File) -> None:
        """Release this claim if it still holds; the try is not counted."""
        self._run(f"{_RELEASE} WHERE {_LEASE_HOLDS}", id=file.id, owner=file.lease_owner, tries=file.tries)

    # -- its text ------------------------------------------------------------------------------------------------------

    def put_parts(self, file_id: FileId, parts: Sequence[FilePart], page_starts: Sequence[int] = ()) -> None:
        """Add parts of a file's text, and its page starts if given."""
        self.get(file_id)
        self._db.run_many(
            row_format.insert_into("file_parts", f"file_id, {_PART.columns}"),
            [{"file_id": file_id, **_PART.params(part)} for part in parts],
        )
        if page_starts:
            self._run(
                f"{row_format.insert_into('file_pages', 'file_id, starts')}"
                " ON CONFLICT (file_id) DO UPDATE SET starts = excluded.starts",
                file_id=file_id,
                starts=row_format.dump(list(page_starts)),
            )

    def drop_parts(self, file_id: FileId) -> None:
        """Remove a file's text and page starts."""
        for table in ("file_parts", "file_pages"):
            self._run(f"DELETE FROM {table} WHERE {_OWN_FILE}", file_id=file_id)

    def parts(self, file_id: FileId, *, from_line: int = 1, after_seq: int = -1, limit: int = 1) -> Sequence[FilePart]:
        """The parts of a text, in order, from the part in which `from_line` begins and after number `after_seq`."""
        return self._all(
            _PART,
            f"SELECT {_PART.columns} FROM file_parts WHERE {_OWN_FILE} AND seq > :after"
            " AND seq >= COALESCE((SELECT MAX(b.seq) FROM file_parts b WHERE b.file_id = :file_id"
            " AND b.first_line <= :line AND b.first_char = 0), 0) ORDER BY seq LIMIT :limit",
            file_id=file_id,
            after=after_seq,
            line=from_line,
            limit=limit,
        )

    def page_starts(self, file_id: FileId) -> Sequence[int]:
        """The first line of each page, from 1; empty where there are no pages."""
        rows = self._rows(f"SELECT starts FROM file_pages WHERE {_OWN_FILE}", file_id=file_id)
        return row_format.load(rows[0][0]) if rows else []


_COLUMNS = f"{FILE.columns_of('f')}, d.name, o.is_open, o.first_line, o.last_line, o.used, o.version, o.used_at"
_FROM = (
    "agent_folders x JOIN folders d ON d.id = x.folder_id JOIN files f ON f.folder_id = x.folder_id"
    " LEFT JOIN agent_files o ON o.agent_id = x.agent_id AND o.file_id = f.id"
)
_OWN_FILES = "d.org_id = :org_id AND f.status <> 'deleted'"


class AgentFiles(Table):
    """The files in an agent's folders, each with the range that the agent has open."""

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
            at=row_format.iso(at),
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
        """A file of an agent's folders, with what the agent has open of it. Raises: NotFound: it is in none of them."""
        files = self._read(agent_id, "f.id = :file_id", file_id=row_format.storable(file_id))
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
            name=row_format.stored_key(name),
            end=row_format.stored_key(f"/{name}"),
            length=len(row_format.stored_key(name)),
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
        """Files of an agent's folders by (folder's number, file's number) between `above` and `below`, not included."""
        where = Conditions()
        where.equal("COALESCE(o.is_open, 0)", is_open)
        if above is not None:
            where.add("(d.number, f.number) > (?, ?)", *above)
        if below is not None:
            where.add("(d.number, f.number) < (?, ?)", *below)
        order = "DESC" if newest_first else "ASC"
        return self._read(
            agent_id, f"{where} ORDER BY d.number {order}, f.number {order} LIMIT :limit", limit=limit, **where.params
        )

    def list_first(self, agent_ids: Sequence[AgentId], *, limit: int) -> Mapping[AgentId, Sequence[AgentFile]]:
        """Agent -> the first files of its folders, sorted as `list`."""
        place = "ROW_NUMBER() OVER (PARTITION BY x.agent_id ORDER BY d.number, f.number) AS place"
        sql = (
            f"SELECT * FROM (SELECT x.agent_id, {_COLUMNS}, {place} FROM {_FROM} WHERE {{keys}} AND {_OWN_FILES}) t"
            " WHERE place <= :limit ORDER BY place"
        )
        found = self._rows_of_each(sql, "x.agent_id", agent_ids, limit=limit)
        return {agent_id: [_agent_file(row[:-1]) for row in rows] for agent_id, rows in found.items()}

    def _read(self, agent_id: AgentId, where: str, **params: Any) -> Sequence[AgentFile]:
        sql = f"SELECT {_COLUMNS} FROM {_FROM} WHERE x.agent_id = :agent_id AND {_OWN_FILES} AND {where}"
        return [_agent_file(row) for row in self._rows(sql, agent_id=agent_id, **params)]


def _agent_file(row: row_format.Row) -> AgentFile:
    folder_name, is_open, first_line, last_line, used, version, used_at = row[-7:]
    return AgentFile(
        file=FILE.read(row),
        folder_name=row_format.restore(folder_name),
        is_open=bool(is_open),
        first_line=first_line or 1,
        last_line=last_line or 0,
        used=used or 0,
        version=version or 0,
        used_at=used_at and row_format.TIME.load(used_at),
    )
