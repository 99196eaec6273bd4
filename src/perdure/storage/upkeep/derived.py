"""`tx.upkeep`: work behind the scenes, some rows at a time: what is deleted is removed, and what is derived is compared
with the rows it was derived from.

On SQLite the full-text index keeps no texts, so a row of it is known by how many words it has; what it should be is
computed from the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.features import Point, feature_org_tables, feature_roots, find_features
from perdure.core.ids import AgentId, OrgId
from perdure.core.messages import is_embedded
from perdure.core.vectors import CheckResult, FaultKind, IndexFault, IndexOwner, OwnerKind
from perdure.storage.database import full_text as word_index
from perdure.storage.database.base import Database
from perdure.storage.database.row_format import ChecksumColumns, Row, load, storable
from perdure.storage.tables.agents import Agents
from perdure.storage.tables.blocks import VERSION_CHECKSUMS
from perdure.storage.tables.deleted import CHARS, carry_out_delete, delete_shared, unfinished_deletes
from perdure.storage.tables.message_rows import IN_VIEW, MESSAGE_CHECKSUMS, REVISION_CHECKSUMS, read_rows, reset_pending
from perdure.storage.tables.passages import PASSAGE_CHECKSUMS
from perdure.storage.tables.table import OwnId, Table
from perdure.storage.tables.vectors import forget_texts, queue_texts
from perdure.storage.upkeep.rebuild import LAST, ROWS, TABLES, rebuild_words, rebuilding, words_of

_SHARED = (*(root.name for root in feature_roots()), "archives", "blocks", "tools", "identities")

_PARTS: Mapping[str, tuple[str, str]] = {
    table.name: (table.of[0], f"SELECT id FROM {table.of[1]} WHERE org_id = :org_id")
    for table in feature_org_tables()
    if table.of
}
"""Table -> its column that names a row of the organisation, and these rows."""

_REST = (
    *("providers", "secrets", "sandbox_variables", "sandbox_configs", "token_factors"),
    *("model_traits", "batches", "runs", "vector_scopes", "ids", "deleted_places"),
    *(table.name for table in feature_org_tables() if not (table.of or table.is_own)),
)
"""What is left after everything that has parts."""


SHOWN_MAX = 10


COMPARE: Point[[Database, OrgId, tuple[str, int], int, bool], CheckResult[tuple[str, int]]] = Point("compare")
"""Compare what a feature derives with the rows that it is derived from. Takes (database, organisation, row to begin
behind, how many rows at most, whether to repair)."""


class Upkeep(Table):
    def owners(self, *, after: int = -1, limit: int = 500) -> Sequence[IndexOwner]:
        """Agents and archives with numbers above `after`, in order."""
        rows = self._rows(
            "SELECT number, 'agent', id, message_seq FROM agents WHERE number > :after AND org_id = :org_id"
            " UNION ALL SELECT number, 'archive', id, passage_seq FROM archives WHERE number > :after"
            " AND org_id = :org_id ORDER BY 1 LIMIT :limit",
            after=after,
            limit=limit,
        )
        return [IndexOwner(*row) for row in rows]

    def check(
        self, owner: IndexOwner, *, from_seq: int = 0, limit: int = 1_000, repair: bool = False
    ) -> CheckResult[int]:
        """Compare the next `limit` texts of an owner with their checksums and with what is derived from them; after the
        last ones also its counts. `repair`: derive again what differs, and add missing checksums."""
        table = "agents" if owner.kind == "agent" else "archives"
        own = f"SELECT 1 FROM {table} WHERE id = :id AND number = :number AND org_id = :org_id"
        if not self._rows(own, id=owner.id, number=owner.number):
            return CheckResult((), None, 0)
        rows = self._rows(ROWS[owner.kind], id=owner.id, first=from_seq, limit=limit)
        more = len(rows) == limit
        part = _OwnerCheck(self._db, owner, from_seq, rows[-1][0] if more else LAST, repair)
        next_seq = rows[-1][0] + 1 if more else None
        without_checksum = part.texts()
        if part.faults:  # whether what is derived from a damaged text is wrong can't be told
            return CheckResult(part.faults, next_seq, without_checksum)
        part.words()
        if owner.kind == "archive":
            part.tags()
        part.vectors()
        if not more:
            part.counts()
        return CheckResult(part.faults, next_seq, without_checksum)

    def check_blocks(
        self, *, after: tuple[str, int] = ("", -1), limit: int = 1_000, repair: bool = False
    ) -> CheckResult[tuple[str, int]]:
        """Compare the next `limit` versions of blocks, behind (block, version), with their checksums, and each block
        with its newest version; `repair` gives a checksum to rows that have none."""
        params = {"org_id": self._org_id, "id": after[0], "version": after[1], "limit": limit}
        rows = self._db.rows(
            "SELECT v.block_id, v.version, v.version = b.version AND (v.value <> b.value OR v.label <> b.label)"
            " FROM block_versions v JOIN blocks b ON b.id = v.block_id WHERE b.org_id = :org_id"
            " AND (v.block_id, v.version) > (:id, :version) ORDER BY v.block_id, v.version LIMIT :limit",
            params,
        )
        if not rows:
            return CheckResult((), None, 0)
        last = (rows[-1][0], rows[-1][1])
        damaged, without_checksum = _check_rows(
            self._db,
            VERSION_CHECKSUMS,
            "(block_id, version) > (:id, :version) AND (block_id, version) <= (:last_id, :last_version)"
            " AND block_id IN (SELECT id FROM blocks WHERE org_id = :org_id)",
            params | {"last_id": last[0], "last_version": last[1]},
            repair=repair,
        )
        wrong = {(row[0], row[1]) for row in damaged}
        faults = _damaged("versions of this block", sorted(wrong))
        other = "value that is not its newest version's"
        faults += [
            IndexFault("damage", block_id, other, 1, False)
            for block_id, version, differs in rows
            if differs and (block_id, version) not in wrong
        ]
        return CheckResult(faults, last if len(rows) == limit else None, without_checksum)

    def check_entities(
        self, *, after: tuple[str, int] = ("", -1), limit: int = 1_000, repair: bool = False
    ) -> CheckResult[tuple[str, int]]:
        """Check the next `limit` entities after (graph, entity), their facts and name index; `repair` rebuilds both."""
        for result in COMPARE(self._db, self._org_id, after, limit, repair):
            return result
        return CheckResult((), None, 0)

    def carry_out_deletes(self, *, limit: int = 500, chars: int = CHARS) -> bool:
        """Remove up to `limit` rows of what is deleted, or texts of about `chars` characters. False: nothing is left.
        Only the settings revisions of agents that lose a tool or folder show it."""
        return carry_out_delete(self._db, self._org_id, limit=limit, chars=chars)

    def remove_some(self, *, limit: int = 500) -> bool:
        """Remove some of all that the organisation has, which is to end. False: nothing is left."""
        db, org_id = self._db, self._org_id
        if carry_out_delete(db, org_id, limit=limit, chars=CHARS):
            return True
        if agent_id := self._first_id("agents"):
            Agents(db, org_id).delete(AgentId(agent_id))
            return True
        for table in _SHARED:
            if id_ := self._first_id(table):
                delete_shared(db, org_id, table, OwnId(id_))
                return True
        for table, (column, rows) in _PARTS.items():
            first = f"SELECT {column} FROM {table} WHERE {column} IN ({rows}) LIMIT 1"
            if self._run_counted(f"DELETE FROM {table} WHERE {column} IN ({first})"):
                return True
        return any(self._run_counted(f"DELETE FROM {table} WHERE org_id = :org_id") for table in _REST)

    def _first_id(self, table: str) -> str:
        """The id of the first row of the organisation; empty: there is none."""
        return self._value(f"SELECT id FROM {table} WHERE org_id = :org_id ORDER BY number LIMIT 1") or ""

    def unfinished_deletes(self) -> bool:
        """Whether rows of deleted things are left."""
        return unfinished_deletes(self._db, self._org_id)

    def merge_words(self, *, begin: bool = False) -> bool:
        """Merge full-text indexes to drop removed words, from the first if `begin`; return whether more is left."""
        more = [self._db.merge_words(table, begin=begin) for table in TABLES.values()]
        return any(more)

    def drop_vector_cache(self, *, limit: int = 1_000) -> bool:
        """Remove some of the vectors of recent texts, of all organisations. False: none is left."""
        slots = "SELECT slot FROM embedding_cache LIMIT :limit"
        return self._run_counted(f"DELETE FROM embedding_cache WHERE slot IN ({slots})", limit=limit) > 0

    def integrity(self) -> Sequence[str]:
        """The faults that the database's own check finds in its file. It reads the whole file."""
        return self._db.integrity()

    def rebuild_words(self, kind: OwnerKind, *, limit: int = 500) -> tuple[int, int] | None:
        """Build a new full-text index of all messages, or all passages: the next `limit` texts of it. Searches use the
        old one until all is done. Returns (number of the owner, number of its text) to go on from, higher than any
        while the old index is removed; None: all is done."""
        return rebuild_words(self._db, kind, limit=limit)

    def rebuilding(self) -> Sequence[OwnerKind]:
        """The kinds of owners whose index is being rebuilt."""
        return rebuilding(self._db)


def _damaged(what: str, rows: Sequence[tuple[str, int]]) -> list[IndexFault]:
    """One fault per owner of damaged rows (owner, number): how many, and their first numbers. `what` names the rows."""
    numbers: dict[str, list[int]] = {}
    for owner_id, number in rows:
        numbers.setdefault(owner_id, []).append(number)
    return [
        IndexFault(
            "damage",
            owner_id,
            f"{what} that are not as they were written: number {', '.join(map(str, found[:SHOWN_MAX]))}"
            + (", ..." if len(found) > SHOWN_MAX else ""),
            len(found),
            False,
        )
        for owner_id, found in numbers.items()
    ]


class _OwnerCheck:
    """The check of an owner's texts between two numbers, both included."""

    def __init__(self, db: Database, owner: IndexOwner, first: int, last: int, repair: bool) -> None:
        self._db, self._owner, self._first, self._last, self._repair = db, owner, first, last, repair
        self._params = {"id": owner.id, "agent_id": owner.id, "number": owner.number, "first": first, "last": last}
        self.faults: list[IndexFault] = []

    def texts(self) -> int:
        """Report damaged rows; return how many rows have no checksum."""
        without_checksum = 0
        kinds = [(MESSAGE_CHECKSUMS, "messages"), (REVISION_CHECKSUMS, "revisions of messages")]
        column = "agent_id"
        if self._owner.kind == "archive":
            kinds, column = [(PASSAGE_CHECKSUMS, "passages")], "archive_id"
        for checksums, name in kinds:
            where = f"{column} = :id AND seq BETWEEN :first AND :last"
            damaged, count = _check_rows(self._db, checksums, where, self._params, repair=self._repair)
            self.faults += _damaged(name, [(self._owner.id, row[1]) for row in damaged])
            without_checksum += count
        return without_checksum

    def words(self) -> None:
        """Report, or repair, texts that the full-text index lacks or has other words of."""
        table, number = TABLES[self._owner.kind], self._owner.number
        words = words_of(self._db, self._owner.kind, self._owner.id, self._first, self._last)
        expected = {row[0]: row for row in words}
        marks = self._db.index_marks(table, number, self._first, self._last)
        missing = [row for seq, row in expected.items() if seq not in marks]
        stale = [
            seq
            for seq, mark in marks.items()
            if seq not in expected or mark != self._db.index_mark(number, *expected[seq][1:])
        ]
        if self._repair:  # not in the index that is being rebuilt, which is built from the texts
            self._db.index_words(table, number, missing)
        self._report("words", "not found by their words", len(missing))
        if stale and self._repair and self._db.removes_by_number:
            word_index.unindex_words(self._db, table, number, [(seq, "", "") for seq in stale])
            word_index.index_words(self._db, table, number, [expected[seq] for seq in stale if seq in expected])
        self._report("stale words", "found by words they don't have", len(stale), repaired=self._db.removes_by_number)

    def tags(self) -> None:
        """Report, or repair, passages that are not found by one of their tags."""
        rows = self._db.rows(
            "SELECT seq, tags FROM passages WHERE archive_id = :id AND seq BETWEEN :first AND :last AND tags <> '[]'",
            self._params,
        )
        expected = {(storable(tag), seq) for seq, tags in rows for tag in load(tags)}
        stored: set[tuple[str, int]] = set()
        for tag in {tag for tag, _ in expected}:
            found = self._db.rows(
                "SELECT seq FROM passage_tags WHERE archive_id = :id AND tag = :tag AND seq BETWEEN :first AND :last",
                self._params | {"tag": tag},
            )
            stored |= {(tag, row[0]) for row in found}
        if missing := sorted(expected - stored):
            if self._repair:
                self._db.run_many(
                    "INSERT INTO passage_tags (archive_id, tag, seq) VALUES (:id, :tag, :seq)",
                    [{"id": self._owner.id, "tag": tag, "seq": seq} for tag, seq in missing],
                )
            self._report("tags", "not found by their tags", len(missing))

    def vectors(self) -> None:
        """Report, or repair, texts without a vector that don't wait for one, and vectors without a text or damaged."""
        scopes = self._db.rows(
            "SELECT generation, dimensions, fill_from FROM vector_scopes WHERE number = :number", self._params
        )
        queued = {
            row[0]
            for row in self._db.rows(
                "SELECT seq FROM embedding_queue WHERE number = :number AND seq BETWEEN :first AND :last", self._params
            )
        }
        keys = {"low": (self._owner.number << 32) + self._first, "high": (self._owner.number << 32) + self._last}
        generation, dimensions, fill_from = scopes[0] if scopes else (None, None, None)
        rows = self._db.rows(
            "SELECT key, generation, LENGTH(vector), LENGTH(words) FROM vectors WHERE key BETWEEN :low AND :high"
            " AND vector IS NOT NULL",
            keys,
        )
        texts: set[int] = set()
        if scopes:
            texts = set(_embedded_texts_of(self._db, self._owner.kind, self._owner.id, self._first, self._last))
        vectors = {row[0] & LAST: row for row in rows}
        orphans = sorted((vectors.keys() | queued) - texts)
        current = {seq for seq, row in vectors.items() if row[1] == generation}
        size, word_size = 2 * (dimensions or 0), -(-(dimensions or 1) // 8)
        wrong = [seq for seq in current if vectors[seq][2] != size or (vectors[seq][3] or 0) % word_size]
        texts -= self._resetting_texts()
        missing = [] if fill_from is not None else sorted(texts - current - queued)
        if self._repair:
            forget_texts(self._db, self._owner.number, [*orphans, *wrong])
            if not scopes:
                self._db.run("DELETE FROM vectors WHERE key BETWEEN :low AND :high", keys)
            queue_texts(self._db, self._owner.number, sorted({*missing, *wrong} & texts))
        self._report("vectors", "with a vector or a place in the queue, but no text", len(orphans))
        self._report("vectors", "with a damaged vector", len(wrong))
        self._report("queue", "without a vector, and not waiting for one", len(missing))

    def _resetting_texts(self) -> set[int]:
        """The numbers of texts that an unfinished reset took out of view: they may have a vector, and need none."""
        if self._owner.kind != "agent":
            return set()
        rows = self._db.rows(
            "SELECT seq FROM messages WHERE agent_id = :agent_id AND seq BETWEEN :first AND :last AND removed = 0"
            f" AND {reset_pending('messages')}",
            self._params,
        )
        return {row[0] for row in rows}

    def counts(self) -> None:
        """Compare the counts of the whole owner."""
        if self._owner.kind == "agent":
            sql = f"SELECT COUNT(*) FROM messages WHERE agent_id = :agent_id AND kind = 'message' AND {IN_VIEW}"
            self._count("messages counted", "agents", "message_count", "id = :id", sql)
        else:
            sql = "SELECT COUNT(*) FROM passages WHERE archive_id = :id"
            self._count("passages counted", "archives", "passage_count", "id = :id", sql)
            self._stale_tags()
            self._tag_counts()
            for feature in find_features():
                for what, count in feature.counts.items():
                    self._count(what, *count)
        sql = (
            "SELECT COUNT(*) FROM vectors v JOIN vector_scopes s ON s.number = :number AND s.generation = v.generation"
            " WHERE v.number = :number AND v.vector IS NOT NULL"
        )
        self._count("vectors counted", "vector_scopes", "row_count", "number = :number", sql)

    def _count(self, what: str, table: str, column: str, where: str, sql: str) -> None:
        """Report, or repair, a stored count that is not the result of `sql`: the column of the row `where` is true for.
        `what` names it, such as `messages counted`."""
        stored = self._db.rows(f"SELECT {column} FROM {table} WHERE {where}", self._params)
        true = self._db.rows(sql, self._params)[0][0]
        if stored and stored[0][0] != true:
            if self._repair:
                self._db.run(f"UPDATE {table} SET {column} = :true WHERE {where}", self._params | {"true": true})
            self._report("counts", f"{what}, not {true:,}", stored[0][0], always=True)

    def _stale_tags(self) -> None:
        """Report, or repair, passages of the whole archive that are found by tags which they don't have."""
        rows = self._db.rows(
            "SELECT t.tag, t.seq, COALESCE(p.tags, '[]') FROM passage_tags t LEFT JOIN passages p"
            " ON p.archive_id = t.archive_id AND p.seq = t.seq WHERE t.archive_id = :id"
            " AND (p.tags IS NULL OR REPLACE(p.tags, '\"' || t.tag || '\"', '') = p.tags)",
            self._params,
        )  # a tag that is written otherwise in JSON is compared here
        stale = [(tag, seq) for tag, seq, tags in rows if tag not in map(storable, load(tags))]
        if self._repair:
            self._db.run_many(
                "DELETE FROM passage_tags WHERE archive_id = :id AND tag = :tag AND seq = :seq",
                [{"id": self._owner.id, "tag": tag, "seq": seq} for tag, seq in stale],
            )
        self._report("tags", "found by tags they don't have", len(stale))

    def _tag_counts(self) -> None:
        """Report, or repair, an archive's counts of tags that are not those of its passages."""
        stored, true = (
            {row[0]: row[1] for row in self._db.rows(sql, self._params)}
            for sql in (
                "SELECT tag, uses FROM archive_tags WHERE archive_id = :id",
                "SELECT tag, COUNT(*) FROM passage_tags WHERE archive_id = :id GROUP BY tag",
            )
        )
        wrong = sorted(tag for tag in stored.keys() | true.keys() if stored.get(tag) != true.get(tag))
        if wrong and self._repair:
            tags: list[dict[str, Any]] = [{"id": self._owner.id, "tag": tag, "uses": true.get(tag)} for tag in wrong]
            self._db.run_many("DELETE FROM archive_tags WHERE archive_id = :id AND tag = :tag", tags)
            self._db.run_many(
                "INSERT INTO archive_tags (archive_id, tag, uses) VALUES (:id, :tag, :uses)",
                [one for one in tags if one["uses"] is not None],
            )
        self._report("counts", "tags with a wrong number of uses", len(wrong))

    def _report(self, kind: FaultKind, text: str, count: int, *, repaired: bool = True, always: bool = False) -> None:
        """Add a fault that `count` things have, unless that is 0 and not `always` reported. It counts as repaired if
        this check repairs and such a fault can be (`repaired`)."""
        if count or always:
            self.faults.append(IndexFault(kind, self._owner.id, text, count, self._repair and repaired))


def _check_rows(
    db: Database, checksums: ChecksumColumns, where: str, params: Mapping[str, Any], *, repair: bool
) -> tuple[list[Row], int]:
    """(keys of damaged rows, how many rows have no checksum), where SQL `where` is true; `repair` adds these."""
    columns, table = ", ".join(checksums.columns), checksums.table
    damaged: list[Row] = []
    missing: list[dict[str, Any]] = []
    for *values, stored in db.rows(f"SELECT {columns}, checksum FROM {table} WHERE {where}", params):
        row = dict(zip(checksums.columns, values, strict=True))
        key = {column: row[column] for column in checksums.key}
        if stored is None:
            missing.append({**key, "checksum": checksums.of(row)})
        elif stored != checksums.of(row):
            damaged.append([*key.values()])
    if repair and missing:
        keys = " AND ".join(f"{column} = :{column}" for column in checksums.key)
        db.run_many(f"UPDATE {table} SET checksum = :checksum WHERE {keys}", missing)
    return damaged, len(missing)


def _embedded_texts_of(db: Database, kind: str, owner_id: str, first: int, last: int) -> list[int]:
    """The numbers of an owner's texts from `first` to `last` that should have a vector."""
    params = {"agent_id": owner_id, "first": first, "last": last}
    if kind == "archive":
        sql = "SELECT seq FROM passages WHERE archive_id = :agent_id AND seq BETWEEN :first AND :last"
        return [row[0] for row in db.rows(sql, params)]
    where = "agent_id = :agent_id AND seq BETWEEN :first AND :last AND removed = 0 AND kind = 'message'"
    return [message.seq for message in read_rows(db, where, params) if is_embedded(message)]
