"""`tx.passages`: the passages of one transaction.

A passage's text, tags and full-text row are written together; the counts and tag uses on the archive follow in the same
transaction.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import ArchiveId, OrgId, PassageId
from perdure.core.passages import Passage, PassageFilter, PassageTexts
from perdure.core.text.words import Matches, Postings, Query, index_words, restore, storable
from perdure.storage.database.base import Database, Row, dump, find_all, from_iso, iso, load, locate, register
from perdure.storage.full_text import index as word_index
from perdure.storage.full_text.candidates import CLAUSE_ROWS, matches
from perdure.storage.tables.agents import contains, pattern_of
from perdure.storage.tables.archives import OWN_ARCHIVE
from perdure.storage.tables.vector_queue import forget_texts, queue_texts
from perdure.storage.upkeep.checksums import PASSAGES

_COLUMNS = "id, archive_id, seq, text, tags, metadata, source, created_at, occurred_at"


class Passages:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def add(self, passages: Sequence[Passage]) -> Sequence[Passage]:
        """Add passages of one archive, and return them with their numbers; they are searchable at once.

        Raises: NotFound: no such archive; AlreadyExists: an id is taken.
        """
        if not passages:
            return ()
        archive_id = passages[0].archive_id
        if any(passage.archive_id != archive_id for passage in passages):
            raise ValueError("passages of several archives are added one archive at a time")
        advanced = self._db.update(
            "archives",
            "passage_seq = passage_seq + :rows, passage_count = passage_count + :rows, version = version + 1,"
            " updated_at = :at",
            "id = :id AND org_id = :org_id",
            {"rows": len(passages), "id": archive_id, "org_id": self._org_id, "at": iso(passages[-1].created_at)},
            returning="passage_seq - :rows, number, embedding",
        )
        if not advanced:
            raise NotFound("archive", archive_id)
        first, number, embedding = advanced[0]
        added = [
            replace(passage, seq=first + index, tags=tuple(dict.fromkeys(passage.tags)))
            for index, passage in enumerate(passages)
        ]
        register(self._db, self._org_id, archive_id, [(passage.id, passage.seq) for passage in added])
        self._db.run_many(
            f"INSERT INTO passages ({_COLUMNS}, checksum) VALUES (:id, :archive_id, :seq, :text, :tags, :metadata,"
            " :source, :created_at, :occurred_at, :checksum)",
            [_row(passage) for passage in added],
        )
        self._tag(archive_id, added)
        word_index.index_words(self._db, "passage_words", number, [_words(passage) for passage in added])
        if embedding is not None:
            queue_texts(self._db, number, [passage.seq for passage in added])
        return added

    def get(self, passage_id: PassageId) -> Passage:
        """Raises: NotFound."""
        archive_id, seq = locate(self._db, self._org_id, "passage", passage_id)
        return self.by_seqs(ArchiveId(archive_id), [seq])[0]

    def known(self, ids: Sequence[PassageId]) -> dict[PassageId, ArchiveId]:
        """Id -> archive, of those of these passages that exist."""
        found = find_all(self._db, self._org_id, ids)
        return {PassageId(id_): ArchiveId(owner) for id_, owner, _ in found}

    def put(self, passage: Passage) -> Passage:
        """Update text, tags, metadata, source and `occurred_at`; the number stays, and search finds the new text.

        Raises: NotFound.
        """
        before = self.get(passage.id)
        after = replace(passage, archive_id=before.archive_id, seq=before.seq, tags=tuple(dict.fromkeys(passage.tags)))
        self._db.run(
            "UPDATE passages SET text = :text, tags = :tags, metadata = :metadata, source = :source,"
            " occurred_at = :occurred_at, checksum = :checksum WHERE archive_id = :archive_id AND seq = :seq",
            _row(replace(after, created_at=before.created_at)),
        )
        number, embedded = self._update_counts(before.archive_id, 0)
        if after.tags != before.tags:
            self._untag(before.archive_id, [before])
            self._tag(before.archive_id, [after])
        if (words := _words(after)) != (had := _words(before)):
            word_index.unindex_words(self._db, "passage_words", number, [had])
            word_index.index_words(self._db, "passage_words", number, [words])
        if embedded and after.text != before.text:
            forget_texts(self._db, number, [after.seq])
            queue_texts(self._db, number, [after.seq])
        return after

    def delete(self, archive_id: ArchiveId, seqs: Sequence[int]) -> int:
        """Delete passages; return how many existed. Raises: NotFound: no such archive."""
        own = {"archive_id": archive_id, "org_id": self._org_id}
        if not self._db.rows(f"SELECT 1 WHERE {OWN_ARCHIVE}", own):
            raise NotFound("archive", archive_id)
        deleted = self.by_seqs(archive_id, list(dict.fromkeys(seqs)))
        if not deleted:
            return 0
        number, embedded = self._update_counts(archive_id, -len(deleted))
        word_index.unindex_words(self._db, "passage_words", number, [_words(passage) for passage in deleted])
        self._untag(archive_id, deleted)
        listed = ", ".join(str(passage.seq) for passage in deleted)
        self._db.run(
            f"DELETE FROM passages WHERE archive_id = :archive_id AND seq IN ({listed})", {"archive_id": archive_id}
        )
        self._db.run_many("DELETE FROM ids WHERE id = :id", [{"id": passage.id} for passage in deleted])
        if embedded:
            forget_texts(self._db, number, [passage.seq for passage in deleted])
        return len(deleted)

    def _update_counts(self, archive_id: ArchiveId, rows: int) -> tuple[int, bool]:
        """Update the archive's count and version; return its number, and whether it has vectors."""
        number, embedding = self._db.update(
            "archives",
            "passage_count = passage_count + :rows, version = version + 1",
            "id = :id",
            {"rows": rows, "id": archive_id},
            returning="number, embedding",
        )[0]
        return number, embedding is not None

    def _tag(self, archive_id: ArchiveId, passages: Sequence[Passage]) -> None:
        tagged = [(storable(tag), passage.seq) for passage in passages for tag in passage.tags]
        if not tagged:
            return
        self._db.run_many(
            "INSERT INTO passage_tags (archive_id, tag, seq) VALUES (:archive_id, :tag, :seq)",
            [{"archive_id": archive_id, "tag": tag, "seq": seq} for tag, seq in tagged],
        )
        self._db.run_many(
            "INSERT INTO archive_tags (archive_id, tag, uses) VALUES (:archive_id, :tag, :uses)"
            " ON CONFLICT (archive_id, tag) DO UPDATE SET uses = archive_tags.uses + :uses",
            [
                {"archive_id": archive_id, "tag": tag, "uses": uses}
                for tag, uses in Counter(tag for tag, _ in tagged).items()
            ],
        )

    def _untag(self, archive_id: ArchiveId, passages: Sequence[Passage]) -> None:
        tagged = [(storable(tag), passage.seq) for passage in passages for tag in passage.tags]
        if not tagged:
            return
        self._db.run_many(
            "DELETE FROM passage_tags WHERE archive_id = :archive_id AND tag = :tag AND seq = :seq",
            [{"archive_id": archive_id, "tag": tag, "seq": seq} for tag, seq in tagged],
        )
        self._db.run_many(
            "UPDATE archive_tags SET uses = uses - :uses WHERE archive_id = :archive_id AND tag = :tag",
            [
                {"archive_id": archive_id, "tag": tag, "uses": uses}
                for tag, uses in Counter(tag for tag, _ in tagged).items()
            ],
        )
        self._db.run(
            "DELETE FROM archive_tags WHERE archive_id = :archive_id AND uses <= 0", {"archive_id": archive_id}
        )

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
        where: PassageFilter | None = None,
        text: str | None = None,
        among: Sequence[int] | None = None,
        above: int | None = None,
        below: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[Passage]:
        """Passages with numbers between `above` and `below`, both excluded; with `text`, those that contain it in any
        case; with `among`, only those with these numbers."""
        filtered, params = _conditions(where or PassageFilter())
        conditions, params = (
            f"p.archive_id = :archive_id{filtered}",
            params | {"archive_id": archive_id, "limit": limit},
        )
        if among is not None:
            listed = ", ".join(str(int(seq)) for seq in among)
            conditions = f"{conditions} AND {f'p.seq IN ({listed})' if listed else '1 = 0'}"
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

    def match(
        self,
        archive_id: ArchiveId,
        query: Query,
        *,
        where: PassageFilter,
        limit: int,
        known: Postings | None = None,
        rows: int | None = None,
    ) -> Matches:
        """Candidates of a full-text search. `known` caches postings and is extended; `rows` is the number of passages
        that match the filter, if known."""
        numbers = self._db.rows(
            "SELECT number FROM archives WHERE id = :id AND org_id = :org_id",
            {"id": archive_id, "org_id": self._org_id},
        )
        if not numbers or not query.clauses:
            return Matches()
        # The index has the tags; times are checked in the passage's row.
        conditions, params = _conditions(replace(where, tags=()))
        return matches(
            self._db,
            "passage_words",
            numbers[0][0],
            query,
            limit=limit,
            labels=[tag_label(tag) for tag in dict.fromkeys(where.tags)],
            all_labels=where.tag_match == "all",
            join="JOIN passages p ON p.archive_id = :archive_id AND p.seq = {key}" if conditions else "",
            conditions=conditions,
            params={"archive_id": archive_id, **params} if conditions else None,
            known=known,
            few=bool(where.tags) and not conditions and rows is not None and rows <= CLAUSE_ROWS,
        )

    def texts(self, archive_id: ArchiveId, seqs: Sequence[int]) -> PassageTexts:
        """The passages that exist, in the order of `seqs`."""
        if not seqs:
            return PassageTexts()
        source, condition, params = self._db.select_numbers("passages", "seq", "seqs", seqs)
        rows = self._db.rows(
            f"SELECT {_COLUMNS}, uses FROM {source} WHERE {OWN_ARCHIVE} AND archive_id = :archive_id AND {condition}",
            {"archive_id": archive_id, "org_id": self._org_id, **params},
        )
        there = {row[2]: row for row in rows}
        found = [there[seq] for seq in seqs if seq in there]
        if not found:
            return PassageTexts()
        _, _, numbers, texts, _, _, sources, _, times, uses = zip(*found, strict=True)
        return PassageTexts(
            numbers,
            list(map(restore, texts)),
            [time.timestamp() for time in map(datetime.fromisoformat, times)],
            [None if source == "{}" else _origin(load(source)) for source in sources],
            found,
            uses,
            _passage,
        )

    def use(self, archive_id: ArchiveId, seqs: Sequence[int]) -> None:
        """Increment the uses of passages that a search returned to an agent."""
        if not seqs:
            return
        condition, params = self._db.in_numbers("seq", "seqs", seqs)
        self._db.run(
            f"UPDATE passages SET uses = uses + 1 WHERE archive_id = :archive_id AND {condition} AND {OWN_ARCHIVE}",
            {"archive_id": archive_id, "org_id": self._org_id, **params},
        )

    def seqs(self, archive_id: ArchiveId, *, where: PassageFilter) -> Sequence[int]:
        """The numbers of all passages that match the filter, in order."""
        params: dict[str, Any] = {"archive_id": archive_id, "org_id": self._org_id}
        if len(where.tags) == 1 and where.since is None and where.until is None:
            sql = "SELECT t.seq FROM passage_tags t WHERE t.archive_id = :archive_id AND t.tag = :tag"
            rows = self._db.rows(f"{sql} AND {OWN_ARCHIVE} ORDER BY t.seq", params | {"tag": storable(where.tags[0])})
        else:
            conditions, more = _conditions(where)
            rows = self._db.rows(
                f"SELECT p.seq FROM passages p WHERE p.archive_id = :archive_id AND {OWN_ARCHIVE}{conditions}"
                " ORDER BY p.seq",
                params | more,
            )
        return [row[0] for row in rows]

    def latest(self, archive_id: ArchiveId, *, where: PassageFilter, limit: int) -> Sequence[int]:
        """The numbers of the matching passages with the latest `occurred_at`, latest first."""
        conditions, params = _conditions(where)
        rows = self._db.rows(
            f"SELECT p.seq FROM passages p WHERE p.archive_id = :archive_id AND {OWN_ARCHIVE}{conditions}"
            " ORDER BY p.occurred_at DESC, p.seq DESC LIMIT :limit",
            {"archive_id": archive_id, "org_id": self._org_id, "limit": limit} | params,
        )
        return [row[0] for row in rows]

    def by_seqs(self, archive_id: ArchiveId, seqs: Sequence[int]) -> Sequence[Passage]:
        if not seqs:
            return []
        condition, params = self._db.in_numbers("p.seq", "seqs", seqs)
        rows = self._read(f"p.archive_id = :archive_id AND {condition}", {"archive_id": archive_id} | params)
        found = {passage.seq: passage for passage in rows}
        return [found[seq] for seq in seqs if seq in found]

    def _read(self, where: str, params: dict[str, Any]) -> Sequence[Passage]:
        columns = ", ".join(f"p.{column}" for column in _COLUMNS.split(", "))
        sql = f"SELECT {columns} FROM passages p WHERE {OWN_ARCHIVE} AND {where}"
        return [_passage(row) for row in self._db.rows(sql, params | {"org_id": self._org_id})]


def _row(passage: Passage) -> dict[str, Any]:
    row = {
        "id": passage.id,
        "archive_id": passage.archive_id,
        "seq": passage.seq,
        "text": storable(passage.text),
        "tags": dump(passage.tags),
        "metadata": dump(passage.metadata),
        "source": dump(passage.source),
        "created_at": iso(passage.created_at),
        "occurred_at": iso(passage.occurred_at),
    }
    row["checksum"] = PASSAGES.of(row)
    return row


def tag_label(tag: str) -> str:
    """What stands for a tag in the full-text index, where only letters and digits make a word."""
    return "t" + hashlib.sha1(tag.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()[:16]


def tag_labels(tags: Sequence[str]) -> str:
    return " ".join(map(tag_label, tags))


def _origin(source: Mapping[str, Any]) -> str | None:
    return source.get("file_id") or source.get("conversation_id")


def passage_words_of(
    db: Database, archive_id: ArchiveId, first: int = 0, last: int = 1 << 32
) -> Iterator[tuple[int, str, str]]:
    """What the full-text index holds of an archive, made again from the passages."""
    rows = db.rows(
        "SELECT seq, tags, text FROM passages WHERE archive_id = :id AND seq BETWEEN :first AND :last",
        {"id": archive_id, "first": first, "last": last},
    )
    yield from ((seq, tag_labels(load(tags)), index_words(restore(text))) for seq, tags, text in rows)


def _words(passage: Passage) -> tuple[int, str, str]:
    """The full-text row of a passage."""
    return passage.seq, tag_labels(passage.tags), index_words(passage.text)


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


@functools.lru_cache(maxsize=1_024)  # the passages of a search often have the same few
def _tags(text: str) -> tuple[str, ...]:
    return tuple(load(text))


def _passage(row: Row) -> Passage:
    return Passage(
        id=row[0],
        archive_id=row[1],
        seq=row[2],
        text=restore(row[3]),
        tags=_tags(row[4]),
        metadata=load(row[5]),
        source=load(row[6]),
        created_at=from_iso(row[7]),
        occurred_at=from_iso(row[8]),
    )
