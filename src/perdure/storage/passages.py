"""`tx.archives` and `tx.passages`: the archival verbs of one transaction.

A passage's text, tags and full-text row are written together; the counts and tag uses on the archive follow in the same
transaction, so that the prompt can show them without counting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ArchiveId, OrgId, PassageId
from perdure.core.passages import Archive, Passage
from perdure.core.text import Query, index_words, restored, storable
from perdure.core.tx import Found, PassageFilter
from perdure.storage.agents import contains, pattern_of
from perdure.storage.database import (
    Database,
    Row,
    dump,
    from_iso,
    iso,
    load,
    locate,
    next_number,
    register,
    unregister,
)

__all__ = ["Archives", "Passages"]

_ARCHIVE = "id, org_id, number, name, description, metadata, passage_count, version, created_at, updated_at"
# A passage carries no organisation of its own: its archive does.
_OWN = "EXISTS (SELECT 1 FROM archives WHERE id = :archive_id AND org_id = :org_id)"
_PASSAGE = "id, archive_id, seq, text, tags, metadata, source, created_at, occurred_at"


class Archives:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def add(self, archive: Archive) -> Archive:
        archive = replace(archive, number=next_number(self._db))
        self._db.run(
            f"INSERT INTO archives ({_ARCHIVE}) VALUES (:id, :org_id, :number, :name, :description, :metadata, 0, 0,"
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
        return archive

    def get(self, archive_id: ArchiveId) -> Archive:
        rows = self._db.rows(
            f"SELECT {_ARCHIVE} FROM archives WHERE id = :id AND org_id = :org_id",
            {"id": storable(archive_id), "org_id": self._org_id},
        )
        if not rows:
            raise NotFound("archive", archive_id)
        return _archive(rows[0])

    def attach(self, agent_id: AgentId, archive_id: ArchiveId) -> None:
        self.get(archive_id)
        if self._db.run(
            "INSERT INTO agent_archives (agent_id, archive_id, position) SELECT a.id, :archive_id,"
            " (SELECT COALESCE(MAX(position), 0) + 1 FROM agent_archives WHERE agent_id = :agent_id)"
            " FROM agents a WHERE a.id = :agent_id AND a.org_id = :org_id"
            " ON CONFLICT (agent_id, archive_id) DO NOTHING",
            {"agent_id": agent_id, "archive_id": archive_id, "org_id": self._org_id},
        ):
            return
        own = {"agent_id": agent_id, "org_id": self._org_id}
        if not self._db.rows("SELECT 1 FROM agents WHERE id = :agent_id AND org_id = :org_id", own):
            raise NotFound("agent", agent_id)

    def of_agent(self, agent_id: AgentId) -> Sequence[Archive]:
        columns = ", ".join(f"a.{column}" for column in _ARCHIVE.split(", "))
        rows = self._db.rows(
            f"SELECT {columns} FROM agent_archives x JOIN archives a ON a.id = x.archive_id"
            " WHERE x.agent_id = :agent_id AND a.org_id = :org_id ORDER BY x.position",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        return [_archive(row) for row in rows]

    def tags(self, archive_id: ArchiveId, *, limit: int = 20) -> Sequence[tuple[str, int]]:
        rows = self._db.rows(
            f"SELECT tag, uses FROM archive_tags WHERE archive_id = :archive_id AND {_OWN}"
            " ORDER BY uses DESC, tag LIMIT :limit",
            {"archive_id": archive_id, "org_id": self._org_id, "limit": limit},
        )
        return [(restored(row[0]), row[1]) for row in rows]


class Passages:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def add(self, passage: Passage) -> Passage:
        advanced = self._db.rows(
            "UPDATE archives SET passage_seq = passage_seq + 1, passage_count = passage_count + 1,"
            " version = version + 1, updated_at = :at WHERE id = :id AND org_id = :org_id"
            " RETURNING passage_seq - 1, number",
            {"id": passage.archive_id, "org_id": self._org_id, "at": iso(passage.created_at)},
        )
        if not advanced:
            raise NotFound("archive", passage.archive_id)
        seq, number = advanced[0]
        passage = replace(passage, seq=seq, tags=tuple(dict.fromkeys(passage.tags)))
        self._db.run(
            f"INSERT INTO passages ({_PASSAGE}) VALUES (:id, :archive_id, :seq, :text, :tags, :metadata, :source,"
            " :created_at, :occurred_at)",
            {
                "id": passage.id,
                "archive_id": passage.archive_id,
                "seq": seq,
                "text": storable(passage.text),
                "tags": dump(passage.tags),
                "metadata": dump(passage.metadata),
                "source": dump(passage.source),
                "created_at": iso(passage.created_at),
                "occurred_at": iso(passage.occurred_at),
            },
        )
        register(self._db, self._org_id, passage.archive_id, [(passage.id, seq)])
        for tag in passage.tags:
            params = {"archive_id": passage.archive_id, "tag": storable(tag), "seq": seq}
            self._db.run("INSERT INTO passage_tags (archive_id, tag, seq) VALUES (:archive_id, :tag, :seq)", params)
            self._db.run(
                "INSERT INTO archive_tags (archive_id, tag, uses) VALUES (:archive_id, :tag, 1)"
                " ON CONFLICT (archive_id, tag) DO UPDATE SET uses = archive_tags.uses + 1",
                params,
            )
        self._db.index_words("passage_words", number, [(seq, "", index_words(passage.text))])
        return passage

    def get(self, passage_id: PassageId) -> Passage:
        archive_id, seq = locate(self._db, self._org_id, "passage", passage_id)
        return self.by_seqs(ArchiveId(archive_id), [seq])[0]

    def delete(self, passage_id: PassageId) -> None:
        passage = self.get(passage_id)
        params = {"archive_id": passage.archive_id, "seq": passage.seq}
        number = self._db.rows("SELECT number FROM archives WHERE id = :id", {"id": passage.archive_id})[0][0]
        self._db.unindex_words("passage_words", number, [(passage.seq, "", index_words(passage.text))])
        for tag in passage.tags:
            tagged = params | {"tag": storable(tag)}
            self._db.run(
                "DELETE FROM passage_tags WHERE archive_id = :archive_id AND tag = :tag AND seq = :seq", tagged
            )
            self._db.run(
                "UPDATE archive_tags SET uses = uses - 1 WHERE archive_id = :archive_id AND tag = :tag", tagged
            )
        self._db.run("DELETE FROM archive_tags WHERE archive_id = :archive_id AND uses <= 0", params)
        self._db.run("DELETE FROM passages WHERE archive_id = :archive_id AND seq = :seq", params)
        self._db.run(
            "UPDATE archives SET passage_count = passage_count - 1, version = version + 1 WHERE id = :archive_id",
            params,
        )
        unregister(self._db, passage_id)

    def list(
        self, archive_id: ArchiveId, *, where: PassageFilter | None = None, limit: int = 100, after_seq: int = -1
    ) -> Sequence[Passage]:
        conditions, params = _conditions(where or PassageFilter())
        return self._read(
            f"p.archive_id = :archive_id AND p.seq > :after{conditions} ORDER BY p.seq LIMIT :limit",
            {"archive_id": archive_id, "after": after_seq, "limit": limit} | params,
        )

    def page(
        self,
        archive_id: ArchiveId,
        *,
        text: str | None = None,
        above: int | None = None,
        below: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[Passage]:
        conditions = "p.archive_id = :archive_id"
        params: dict[str, Any] = {"archive_id": archive_id, "limit": limit}
        if above is not None:
            conditions, params = f"{conditions} AND p.seq > :above", params | {"above": above}
        if below is not None:
            conditions, params = f"{conditions} AND p.seq < :below", params | {"below": below}
        if text:
            conditions, params = f"{conditions} AND {contains('p.text', 'text')}", params | {"text": pattern_of(text)}
        return self._read(f"{conditions} ORDER BY p.seq {'DESC' if newest_first else 'ASC'} LIMIT :limit", params)

    def newest(self, archive_id: ArchiveId, *, where: PassageFilter, limit: int) -> Sequence[Passage]:
        conditions, params = _conditions(where)
        return self._read(
            f"p.archive_id = :archive_id{conditions} ORDER BY p.seq DESC LIMIT :limit",
            {"archive_id": archive_id, "limit": limit} | params,
        )

    def match(self, archive_id: ArchiveId, query: Query, *, where: PassageFilter, limit: int) -> Sequence[Found]:
        numbers = self._db.rows(
            "SELECT number FROM archives WHERE id = :id AND org_id = :org_id",
            {"id": archive_id, "org_id": self._org_id},
        )
        if not numbers or not query.clauses:
            return []
        text = self._db.full_text("passage_words", numbers[0][0], query, ())
        conditions, params = _conditions(where)
        rows = self._db.rows(
            f"SELECT p.seq, {text.score} AS score FROM {text.source}"
            f" JOIN passages p ON p.archive_id = :archive_id AND p.seq = {text.key}"
            f" WHERE {text.where}{conditions} ORDER BY score DESC, p.seq DESC LIMIT :limit",
            {"archive_id": archive_id, "limit": limit} | params | dict(text.params),
        )
        return [Found(row[0], row[1]) for row in rows]

    def by_seqs(self, archive_id: ArchiveId, seqs: Sequence[int]) -> Sequence[Passage]:
        if not seqs:
            return []
        listed = ", ".join(str(int(seq)) for seq in seqs)
        rows = self._read(f"p.archive_id = :archive_id AND p.seq IN ({listed})", {"archive_id": archive_id})
        found = {passage.seq: passage for passage in rows}
        return [found[seq] for seq in seqs if seq in found]

    def _read(self, where: str, params: dict[str, Any]) -> Sequence[Passage]:
        columns = ", ".join(f"p.{column}" for column in _PASSAGE.split(", "))
        sql = f"SELECT {columns} FROM passages p WHERE {_OWN} AND {where}"
        return [_passage(row) for row in self._db.rows(sql, params | {"org_id": self._org_id})]


def _conditions(where: PassageFilter) -> tuple[str, dict[str, Any]]:
    clauses: list[str] = []
    params: dict[str, Any] = {}
    tags = tuple(dict.fromkeys(where.tags))
    if tags:
        names = [f"w_tag{index}" for index in range(len(tags))]
        params.update(zip(names, map(storable, tags), strict=True))
        listed = ", ".join(f":{name}" for name in names)
        needed = len(tags) if where.tag_match == "all" else 1
        clauses.append(
            "(SELECT COUNT(*) FROM passage_tags t WHERE t.archive_id = p.archive_id AND t.seq = p.seq"
            f" AND t.tag IN ({listed})) >= {needed}"
        )
    if where.since is not None:
        clauses.append("p.occurred_at >= :w_since")
        params["w_since"] = iso(where.since)
    if where.until is not None:
        clauses.append("p.occurred_at <= :w_until")
        params["w_until"] = iso(where.until)
    return "".join(f" AND {clause}" for clause in clauses), params


def _archive(row: Row) -> Archive:
    return Archive(
        id=row[0],
        org_id=row[1],
        number=row[2],
        name=restored(row[3]),
        description=None if row[4] is None else restored(row[4]),
        metadata=load(row[5]),
        passage_count=row[6],
        version=row[7],
        created_at=from_iso(row[8]),
        updated_at=from_iso(row[9]),
    )


def _passage(row: Row) -> Passage:
    return Passage(
        id=row[0],
        archive_id=row[1],
        seq=row[2],
        text=restored(row[3]),
        tags=tuple(load(row[4])),
        metadata=load(row[5]),
        source=load(row[6]),
        created_at=from_iso(row[7]),
        occurred_at=from_iso(row[8]),
    )
