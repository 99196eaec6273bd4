"""`tx.files`: the verbs of files in one transaction: the file, its bytes, its processing, its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.errors import AlreadyExists, LeaseLost, NotFound
from perdure.core.files import File, FilePart, FileStatus, file_tag
from perdure.core.ids import FileId, FolderId, OrgId
from perdure.core.text.words import restore, storable
from perdure.storage.database.base import Database, OwnId, Row, dump, from_iso, iso, load
from perdure.storage.tables.folders import between
from perdure.storage.tables.vectors import NEVER

FILE_COLUMNS = (
    "id, org_id, folder_id, number, name, original_name, media_type, size_bytes, digest, kind, status, problem, title,"
    " warnings, done, total, page_count, line_count, char_count, chunk_count, tries, lease_owner, lease_until,"
    " created_at, updated_at"
)

# Bytes and parts carry no organisation of their own: their file does.
_OWN_FILE = "EXISTS (SELECT 1 FROM files WHERE id = :file_id AND org_id = :org_id)"
_UNENDED = "status NOT IN ('completed', 'error')"
_LEASE_HOLDS = f"id = :id AND org_id = :org_id AND lease_owner = :owner AND tries = :tries AND {_UNENDED}"


class Files:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def add(self, file: File) -> File:
        """The file with its number. Raises: NotFound: no such folder; AlreadyExists: its name is taken."""
        if self.find(file.folder_id, file.name) is not None:
            raise AlreadyExists("file", file.name)
        advanced = self._db.update(
            "folders",
            "file_seq = file_seq + 1, file_count = file_count + 1, updated_at = :at",
            "id = :id AND org_id = :org_id",
            {"id": file.folder_id, "org_id": self._org_id, "at": iso(file.created_at)},
            returning="file_seq - 1",
        )
        if not advanced:
            raise NotFound("folder", file.folder_id)
        file = replace(file, number=advanced[0][0])
        names = [column.strip() for column in FILE_COLUMNS.split(",")]
        self._db.run(
            f"INSERT INTO files ({FILE_COLUMNS}) VALUES ({', '.join(f':{name}' for name in names)})",
            _result_columns(file)
            | {
                "org_id": self._org_id,
                "folder_id": file.folder_id,
                "number": file.number,
                "name": storable(file.name),
                "original_name": storable(file.original_name),
                "media_type": storable(file.media_type),
                "size_bytes": file.size_bytes,
                "digest": file.digest,
                "tries": file.tries,
                "lease_owner": file.lease_owner,
                "lease_until": None if file.lease_until is None else iso(file.lease_until),
                "created_at": iso(file.created_at),
            },
        )
        return file

    def get(self, file_id: FileId) -> File:
        """Raises: NotFound."""
        rows = self._read("id = :id", {"id": storable(file_id)})
        if not rows:
            raise NotFound("file", file_id)
        return rows[0]

    def find(self, folder_id: FolderId, name: str) -> File | None:
        rows = self._read("folder_id = :folder_id AND name = :name", {"folder_id": folder_id, "name": storable(name)})
        return rows[0] if rows else None

    def same_content(self, digest: str, *, suffix: str) -> File | None:
        """A converted file with these bytes whose name ends in `suffix`."""
        rows = self._read(
            "digest = :digest AND status = 'completed' AND substr(name, length(name) - :more) = :suffix LIMIT 1",
            {"digest": digest, "suffix": storable(suffix), "more": len(suffix) - 1},
        )
        return rows[0] if rows else None

    def list(
        self,
        folder_id: FolderId,
        *,
        above: int | None = None,
        below: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[File]:
        """Files with numbers between `above` and `below`, both excluded."""
        where, params = between("number", above, below)
        order = "DESC" if newest_first else "ASC"
        return self._read(
            f"folder_id = :folder_id AND {where} ORDER BY number {order} LIMIT :limit",
            params | {"folder_id": folder_id, "limit": limit},
        )

    def count(self, folder_id: FolderId) -> Mapping[FileStatus, int]:
        """Status -> number of files, without zeros."""
        rows = self._db.rows(
            "SELECT status, COUNT(*) FROM files WHERE folder_id = :folder_id AND org_id = :org_id"
            " AND status <> 'deleted' GROUP BY status",
            {"folder_id": folder_id, "org_id": self._org_id},
        )
        return {row[0]: row[1] for row in rows}

    def unembedded(self, folder_id: FolderId) -> Mapping[FileId, int]:
        """File -> how many of its passages wait for vectors, without zeros."""
        # The statement starts at the queue, which is empty most of the time.
        rows = self._db.rows(
            "SELECT p.tags, COUNT(*) FROM folders d JOIN archives a ON a.id = d.archive_id"
            " JOIN embedding_queue q ON q.number = a.number JOIN passages p ON p.archive_id = a.id AND p.seq = q.seq"
            " WHERE d.id = :folder_id AND d.org_id = :org_id AND q.not_before < :never GROUP BY p.tags",
            {"folder_id": folder_id, "org_id": self._org_id, "never": NEVER},
        )
        waiting: dict[FileId, int] = {}
        for tags, count in rows:
            for tag in load(tags):
                if tag.startswith(file_tag(FileId(""))):
                    file_id = FileId(tag.removeprefix(file_tag(FileId(""))))
                    waiting[file_id] = waiting.get(file_id, 0) + int(count)
        return waiting

    def delete(self, file_id: FileId) -> None:
        """Hide a file and free its name. A worker (`claim`) removes its rows, and at last calls `forget`. Raises:
        NotFound."""
        file = self.get(file_id)
        self._db.run("DELETE FROM file_uploads WHERE file_id = :id", {"id": file_id})
        # A worker on it loses its claim. The id as its name is certainly free.
        self._db.run(
            "UPDATE files SET status = 'deleted', name = id, lease_owner = NULL, lease_until = NULL, tries = 0"
            " WHERE id = :id",
            {"id": file_id},
        )
        self._db.run(
            "UPDATE folders SET file_count = file_count - 1, version = version + 1 WHERE id = :id",
            {"id": file.folder_id},
        )

    def drop_views(self, file_id: FileId, *, limit: int) -> int:
        """Remove a file's views of up to `limit` agents; return how many."""
        some = "SELECT agent_id FROM agent_files WHERE file_id = :file_id ORDER BY agent_id LIMIT :limit"
        return self._db.run(
            f"DELETE FROM agent_files WHERE file_id = :file_id AND agent_id IN ({some}) AND {_OWN_FILE}",
            {"file_id": file_id, "limit": limit, "org_id": self._org_id},
        )

    def forget(self, file: File) -> None:
        """Remove the row and text of a deleted file whose passages and views are removed. Raises: LeaseLost."""
        if not self._db.run(f"DELETE FROM files WHERE {_LEASE_HOLDS} AND status = 'deleted'", self._lease_params(file)):
            raise LeaseLost(f"{file.id} is not ours to remove")
        for table in ("file_parts", "file_pages"):
            self._db.run(f"DELETE FROM {table} WHERE file_id = :id", {"id": file.id})

    # -- its bytes -----------------------------------------------------------------------------------------------------

    def put_bytes(self, file_id: FileId, seq: int, data: bytes, *, at: datetime) -> None:
        """Store a part of a file's bytes, even before the file is added; parts count from 0."""
        self._db.run(
            "INSERT INTO file_uploads (file_id, seq, bytes, created_at) VALUES (:file_id, :seq, :bytes, :at)",
            {"file_id": file_id, "seq": seq, "bytes": data, "at": iso(at)},
        )

    def bytes_of(self, file_id: FileId, seq: int) -> bytes | None:
        """A part of the bytes; None after the last."""
        rows = self._db.rows(
            f"SELECT bytes FROM file_uploads WHERE file_id = :file_id AND seq = :seq AND {_OWN_FILE}",
            {"file_id": file_id, "seq": seq, "org_id": self._org_id},
        )
        return bytes(rows[0][0]) if rows else None

    def drop_bytes(self, file_id: FileId) -> None:
        self._db.run(
            f"DELETE FROM file_uploads WHERE file_id = :file_id AND {_OWN_FILE}",
            {"file_id": file_id, "org_id": self._org_id},
        )

    def drop_abandoned(self, *, before: datetime) -> int:
        """Remove parts older than `before` whose file was never added; return how many."""
        return self._db.run(
            "DELETE FROM file_uploads WHERE created_at < :before"
            " AND NOT EXISTS (SELECT 1 FROM files WHERE files.id = file_uploads.file_id)",
            {"before": iso(before)},
        )

    # -- its processing ------------------------------------------------------------------------------------------------

    def unended(self) -> bool:
        """Whether a file is unfinished, claimed or not."""
        return bool(
            self._db.rows(
                f"SELECT 1 FROM files WHERE org_id = :org_id AND {_UNENDED} LIMIT 1", {"org_id": self._org_id}
            )
        )

    def claim(self, *, owner: str, at: datetime, until: datetime, dead_owners: Sequence[str] = ()) -> File | None:
        """Claim the oldest file that waits for conversion or removal, and count the try. None: no file is free."""
        params: dict[str, Any] = {"org_id": self._org_id, "at": iso(at)}
        params |= {f"dead{index}": dead for index, dead in enumerate(dead_owners)}
        dead = ", ".join(f":dead{index}" for index in range(len(dead_owners)))
        free = "(lease_owner IS NULL OR lease_until < :at" + (f" OR lease_owner IN ({dead}))" if dead else ")")
        found = self._db.rows(
            f"SELECT id FROM files WHERE org_id = :org_id AND {_UNENDED} AND {free} ORDER BY created_at, number"
            " LIMIT 8",
            params,
        )
        params |= {"owner": owner, "until": iso(until)}
        taken = (self._take(OwnId(row[0]), free, params) for row in found)
        return next((file for file in taken if file is not None), None)

    def _take(self, own: OwnId, free: str, params: Mapping[str, Any]) -> File | None:
        # The condition is checked again in the update: another process may have claimed it.
        rows = self._db.rows(
            "UPDATE files SET lease_owner = :owner, lease_until = :until, tries = tries + 1,"
            " status = CASE WHEN status = 'deleted' THEN status ELSE 'parsing' END, done = 0, total = 0,"
            f" updated_at = :at WHERE id = :id AND {_UNENDED} AND {free} RETURNING {FILE_COLUMNS}",
            {**params, "id": own},
        )
        return file_of(rows[0]) if rows else None

    def holders(self) -> Sequence[str]:
        """The owners of all claims."""
        rows = self._db.rows(
            f"SELECT DISTINCT lease_owner FROM files WHERE org_id = :org_id AND {_UNENDED} AND lease_owner IS NOT NULL",
            {"org_id": self._org_id},
        )
        return [row[0] for row in rows]

    def hold(
        self,
        file: File,
        *,
        until: datetime,
        status: FileStatus | None = None,
        done: int | None = None,
        total: int | None = None,
    ) -> None:
        """Extend the claim of `file`, and store the progress.

        Raises: LeaseLost: the claim is another's or has ended, or the file is gone.
        """
        if not self._db.run(
            "UPDATE files SET lease_until = :until, status = COALESCE(:status, status), done = COALESCE(:done, done),"
            f" total = COALESCE(:total, total) WHERE {_LEASE_HOLDS}",
            self._lease_params(file) | {"until": iso(until), "status": status, "done": done, "total": total},
        ):
            raise LeaseLost(f"{file.id} is not ours to process any more")

    def end(self, file: File) -> None:
        """Store the result of a claimed file and release it. A readable file increments its folder's version. Raises:
        LeaseLost."""
        names = (name for name in _result_columns(file) if name != "id")
        changes = ", ".join(f"{name} = :{name}" for name in names)
        if not self._db.run(
            f"UPDATE files SET {changes}, lease_owner = NULL, lease_until = NULL WHERE {_LEASE_HOLDS}",
            self._lease_params(file) | _result_columns(file),
        ):
            raise LeaseLost(f"{file.id} is not ours to process any more")
        if file.status == "completed":
            self._db.run("UPDATE folders SET version = version + 1 WHERE id = :id", {"id": file.folder_id})

    _RELEASE = (
        "UPDATE files SET lease_owner = NULL, lease_until = NULL, tries = tries - 1,"
        " status = CASE WHEN status = 'deleted' THEN status ELSE 'pending' END"
    )

    def release(self, owner: str) -> None:
        """Release all files of `owner`; these tries are not counted."""
        self._db.run(
            f"{self._RELEASE} WHERE org_id = :org_id AND lease_owner = :owner AND {_UNENDED}",
            {"org_id": self._org_id, "owner": owner},
        )

    def give_back(self, file: File) -> None:
        """Release this claim if it still holds; the try is not counted."""
        self._db.run(f"{self._RELEASE} WHERE {_LEASE_HOLDS}", self._lease_params(file))

    # -- its text ------------------------------------------------------------------------------------------------------

    def put_parts(self, file_id: FileId, parts: Sequence[FilePart], page_starts: Sequence[int] = ()) -> None:
        """Add parts of a file's text, and its page starts if given."""
        self.get(file_id)
        self._db.run_many(
            "INSERT INTO file_parts (file_id, seq, first_line, first_char, text)"
            " VALUES (:file_id, :seq, :first_line, :first_char, :text)",
            [
                {
                    "file_id": file_id,
                    "seq": part.seq,
                    "first_line": part.first_line,
                    "first_char": part.first_char,
                    "text": storable(part.text),
                }
                for part in parts
            ],
        )
        if page_starts:
            self._db.run(
                "INSERT INTO file_pages (file_id, starts) VALUES (:file_id, :starts)"
                " ON CONFLICT (file_id) DO UPDATE SET starts = excluded.starts",
                {"file_id": file_id, "starts": dump(list(page_starts))},
            )

    def drop_parts(self, file_id: FileId) -> None:
        for table in ("file_parts", "file_pages"):
            self._db.run(
                f"DELETE FROM {table} WHERE file_id = :file_id AND {_OWN_FILE}",
                {"file_id": file_id, "org_id": self._org_id},
            )

    def parts(self, file_id: FileId, *, from_line: int = 1, after_seq: int = -1, limit: int = 1) -> Sequence[FilePart]:
        """Parts in order, from the one in which `from_line` begins, and behind `after_seq`."""
        rows = self._db.rows(
            "SELECT seq, first_line, first_char, text FROM file_parts WHERE file_id = :file_id AND seq > :after"
            " AND seq >= COALESCE((SELECT MAX(b.seq) FROM file_parts b WHERE b.file_id = :file_id"
            " AND b.first_line <= :line AND b.first_char = 0), 0)"
            f" AND {_OWN_FILE} ORDER BY seq LIMIT :limit",
            {"file_id": file_id, "after": after_seq, "line": from_line, "limit": limit, "org_id": self._org_id},
        )
        return [FilePart(seq=row[0], first_line=row[1], first_char=row[2], text=restore(row[3])) for row in rows]

    def page_starts(self, file_id: FileId) -> Sequence[int]:
        """The first line of each page, from 1; empty where there are no pages."""
        rows = self._db.rows(
            f"SELECT starts FROM file_pages WHERE file_id = :file_id AND {_OWN_FILE}",
            {"file_id": file_id, "org_id": self._org_id},
        )
        return load(rows[0][0]) if rows else []

    def _lease_params(self, file: File) -> dict[str, Any]:
        return {"id": file.id, "org_id": self._org_id, "owner": file.lease_owner, "tries": file.tries}

    def _read(self, where: str, params: dict[str, Any]) -> Sequence[File]:
        sql = f"SELECT {FILE_COLUMNS} FROM files WHERE org_id = :org_id AND status <> 'deleted' AND {where}"
        return [file_of(row) for row in self._db.rows(sql, params | {"org_id": self._org_id})]


def _result_columns(file: File) -> dict[str, Any]:
    """What processing finds out, and the id."""
    return {
        "id": file.id,
        "kind": file.kind,
        "status": file.status,
        "problem": storable(file.problem),
        "title": storable(file.title),
        "warnings": dump(file.warnings),
        "done": file.done,
        "total": file.total,
        "page_count": file.page_count,
        "line_count": file.line_count,
        "char_count": file.char_count,
        "chunk_count": file.chunk_count,
        "updated_at": iso(file.updated_at),
    }


def file_of(row: Row) -> File:
    """A row of `FILE_COLUMNS` as a file."""
    return File(
        id=row[0],
        org_id=row[1],
        folder_id=row[2],
        number=row[3],
        name=restore(row[4]),
        original_name=restore(row[5]),
        media_type=restore(row[6]),
        size_bytes=row[7],
        digest=row[8],
        kind=row[9],
        status=row[10],
        problem=restore(row[11]),
        title=restore(row[12]),
        warnings=tuple(load(row[13])),
        done=row[14],
        total=row[15],
        page_count=row[16],
        line_count=row[17],
        char_count=row[18],
        chunk_count=row[19],
        tries=row[20],
        lease_owner=row[21],
        lease_until=from_iso(row[22]),
        created_at=from_iso(row[23]),
        updated_at=from_iso(row[24]),
    )
