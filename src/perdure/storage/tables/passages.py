"""`tx.passages`: the passages of one transaction.

A passage's text, tags and full-text row are written together; the counts and tag uses on the archive follow in the same
transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Unpack

from perdure.core.errors import NotFound
from perdure.core.ids import ArchiveId, PassageId
from perdure.core.passages import PASSAGE_STATES, Passage, PassageFilter, PassageState, PassageTexts
from perdure.core.sources import MemoryWrite
from perdure.core.text.words import Clause, Matches, Postings, Query, index_words
from perdure.storage.database import full_text as word_index
from perdure.storage.database import row_format
from perdure.storage.database.base import Database, WordRows
from perdure.storage.database.conditions import Conditions, NumberWindow
from perdure.storage.database.full_text import CLAUSE_ROWS, matches, tag_label, tag_labels
from perdure.storage.tables.sources import add_writes
from perdure.storage.tables.table import (
    OWN_ARCHIVE,
    Table,
    deleted_place,
    find_all,
    first,
    keep_places,
    locate,
    register,
)
from perdure.storage.tables.vectors import forget_texts, queue_texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PASSAGE = row_format.RowFormat(
    Passage, columns="id, archive_id, seq, text, tags, metadata, source, created_at, occurred_at, state, state_origin"
)
PASSAGE_CHECKSUMS = row_format.ChecksumColumns(
    "passages",
    ("archive_id", "seq"),
    ("archive_id", "seq", "id", "text", "tags", "metadata", "source", "created_at", "occurred_at"),
)


class Passages(Table):
    def add(self, passages: Sequence[Passage]) -> Sequence[Passage]:
        """Add passages of one archive, and return them with their numbers; they are searchable at once. Raises:
        NotFound: no such archive; AlreadyExists: an id is taken."""
        if not passages:
            return ()
        archive_id = passages[0].archive_id
        if any(passage.archive_id != archive_id for passage in passages):
            raise ValueError("passages of several archives are added one archive at a time")
        archives = self._rows(
            "UPDATE archives SET passage_seq = passage_seq + :rows, passage_count = passage_count + :rows,"
            " version = version + 1, updated_at = :at WHERE id = :id AND org_id = :org_id"
            " RETURNING passage_seq - :rows, number, embedding",
            rows=len(passages),
            id=archive_id,
            at=row_format.iso(passages[-1].created_at),
        )
        first_seq, number, embedding = first(archives, "archive", archive_id)
        added = [
            replace(passage, seq=first_seq + index, tags=tuple(dict.fromkeys(passage.tags)))
            for index, passage in enumerate(passages)
        ]
        register(self._db, self._org_id, archive_id, [(passage.id, passage.seq) for passage in added])
        self._db.run_many(row_format.insert_into("passages", f"{_PASSAGE.columns}, checksum"), list(map(_row, added)))
        self._tag(archive_id, added)
        word_index.index_words(self._db, "passage_words", number, [_words(passage) for passage in added])
        add_writes(self._db, [_write_of(passage) for passage in added if passage.sources])
        if embedding is not None:
            queue_texts(self._db, number, [passage.seq for passage in added])
        return added

    def get(self, passage_id: PassageId) -> Passage:
        """The passage with this id. Raises: NotFound."""
        archive_id, seq = locate(self._db, self._org_id, "passage", passage_id)
        return first(self.list_by_seqs(ArchiveId(archive_id), [seq]), "passage", passage_id)

    def place(self, passage_id: PassageId) -> tuple[ArchiveId, int]:
        """Return the archive of a passage and its number there, also of a deleted one. Raises: NotFound."""
        found: list[Any] = [*self.find_places([passage_id]).values()]
        found += [] if found else deleted_place(self._db, self._org_id, passage_id, ("archive_id", "seq"))
        return tuple(first(found, "passage", passage_id))

    def find_places(self, ids: Sequence[PassageId]) -> dict[PassageId, tuple[ArchiveId, int]]:
        """Id -> (archive, number there); an id that no passage has is left out."""
        rows = find_all(self._db, self._org_id, ids)
        return {PassageId(id_): (ArchiveId(owner), seq) for id_, owner, seq in rows}

    def put(self, passage: Passage) -> Passage:
        """Update text, tags, metadata, source and `occurred_at` of a passage, and return it as stored, with its number
        and state. Searches find the new text at once. Raises: NotFound."""
        before = self.get(passage.id)
        after = replace(
            passage,
            archive_id=before.archive_id,
            seq=before.seq,
            tags=tuple(dict.fromkeys(passage.tags)),
            state=before.state,
            state_origin=before.state_origin,
        )
        columns = row_format.assignments("text, tags, metadata, source, occurred_at, checksum")
        self._run(
            f"UPDATE passages SET {columns} WHERE archive_id = :archive_id AND seq = :seq",
            **_row(replace(after, created_at=before.created_at)),
        )
        number, is_embedded = self._update_counts(before.archive_id, 0)
        if after.tags != before.tags:
            self._untag(before.archive_id, [before])
            self._tag(before.archive_id, [after])
        if (words := _words(after)) != (old_words := _words(before)):
            word_index.unindex_words(self._db, "passage_words", number, [old_words])
            word_index.index_words(self._db, "passage_words", number, [words])
        if is_embedded and after.text != before.text:
            forget_texts(self._db, number, [after.seq])
            queue_texts(self._db, number, [after.seq])
        return after

    def put_states(self, passages: Sequence[Passage]) -> None:
        """Update state and `state_origin` of passages of one archive; all else stays. Raises: NotFound."""
        if not passages:
            return
        archive_id = passages[0].archive_id
        self._check_own(archive_id)
        self._db.run_many(
            f"UPDATE passages SET {row_format.assignments('state, state_origin')} WHERE archive_id = :archive_id"
            " AND seq = :seq",
            [_PASSAGE.params(passage) for passage in passages],
        )
        self._update_counts(archive_id, 0)  # searches keep what they read of an archive in memory

    def delete(self, archive_id: ArchiveId, seqs: Sequence[int]) -> int:
        """Delete passages; return how many existed. Raises: NotFound: no such archive."""
        self._check_own(archive_id)
        deleted = self.list_by_seqs(archive_id, list(dict.fromkeys(seqs)))
        if not deleted:
            return 0
        number, is_embedded = self._update_counts(archive_id, -len(deleted))
        word_index.unindex_words(self._db, "passage_words", number, [_words(passage) for passage in deleted])
        self._untag(archive_id, deleted)
        listed = ", ".join(str(passage.seq) for passage in deleted)
        self._run(f"DELETE FROM passages WHERE archive_id = :archive_id AND seq IN ({listed})", archive_id=archive_id)
        self._db.run_many("DELETE FROM ids WHERE id = :id", [{"id": passage.id} for passage in deleted])
        keep_places(self._db, self._org_id, {p.id: {"archive_id": archive_id, "seq": p.seq} for p in deleted})
        if is_embedded:
            forget_texts(self._db, number, [passage.seq for passage in deleted])
        return len(deleted)

    def _check_own(self, archive_id: ArchiveId) -> None:
        """Check that the organisation has this archive. Raises: NotFound."""
        if not self._rows(f"SELECT 1 WHERE {OWN_ARCHIVE}", archive_id=archive_id):
            raise NotFound("archive", archive_id)

    def _update_counts(self, archive_id: ArchiveId, rows: int) -> tuple[int, bool]:
        """Add `rows` to the archive's count, 1 to its version; return (number, whether its passages are embedded)."""
        number, embedding = self._rows(
            "UPDATE archives SET passage_count = passage_count + :rows, version = version + 1 WHERE id = :id"
            " RETURNING number, embedding",
            id=archive_id,
            rows=rows,
        )[0]
        return number, embedding is not None

    def _tag(self, archive_id: ArchiveId, passages: Sequence[Passage]) -> None:
        """Add the tags of passages, and count their uses."""
        tags, uses = _tag_rows(archive_id, passages)
        self._db.run_many(row_format.insert_into("passage_tags", "archive_id, tag, seq"), tags)
        self._db.run_many(
            f"{row_format.insert_into('archive_tags', 'archive_id, tag, uses')}"
            " ON CONFLICT (archive_id, tag) DO UPDATE SET uses = archive_tags.uses + :uses",
            uses,
        )

    def _untag(self, archive_id: ArchiveId, passages: Sequence[Passage]) -> None:
        """Remove the tags of passages, and uncount their uses."""
        tags, uses = _tag_rows(archive_id, passages)
        if not tags:
            return
        self._db.run_many("DELETE FROM passage_tags WHERE archive_id = :archive_id AND tag = :tag AND seq = :seq", tags)
        self._db.run_many(
            "UPDATE archive_tags SET uses = uses - :uses WHERE archive_id = :archive_id AND tag = :tag", uses
        )
        self._run("DELETE FROM archive_tags WHERE archive_id = :archive_id AND uses <= 0", archive_id=archive_id)

    def page(
        self,
        archive_id: ArchiveId,
        *,
        where: PassageFilter | None = None,
        text: str | None = None,
        among: Sequence[int] | None = None,
        **window: Unpack[NumberWindow],
    ) -> Sequence[Passage]:
        """Passages with numbers between `above` and `below`, both excluded, in order of their numbers; with `text`,
        those that contain it in any case; with `among`, those with these numbers."""
        conditions = _conditions(where or PassageFilter())
        if among is not None:
            condition, params = self._db.in_numbers("p.seq", "among", among)
            conditions.clauses.append(condition)
            conditions.params.update(params)
        conditions.contain("p.text", text)
        order = conditions.window("p.seq", window)
        sql = f"p.archive_id = :archive_id AND {conditions} {order}"
        return self._read(sql, archive_id=archive_id, **conditions.params)

    def seqs_with(
        self,
        archive_id: ArchiveId,
        words: Sequence[Clause],
        *,
        above: int | None,
        below: int | None,
        newest_first: bool,
        limit: int,
    ) -> Sequence[int]:
        """The numbers, in order, of the first passages between `above` and `below`, both excluded, that hold all of
        these words. Raises: NotFound: no such archive."""
        archives = self._rows("SELECT number FROM archives WHERE id = :id AND org_id = :org_id", id=archive_id)
        number = first(archives, "archive", archive_id)[0]
        text = self._db.full_text(WordRows("passage_words", number, below=below), words)
        conditions = Conditions(text.where, **text.params)
        conditions.add(f"{text.key} > ?", above)
        order = "DESC" if newest_first else "ASC"
        sql = f"SELECT {text.key} FROM {text.source} WHERE {conditions} ORDER BY {text.order} {order} LIMIT :limit"
        return [row[0] for row in self._rows(sql, **conditions.params, limit=limit)]

    def find_edge(self, archive_id: ArchiveId, rows: int, **window: Unpack[NumberWindow]) -> int | None:
        """The number of the passage after the first `rows` in a window; None: there are no more."""
        conditions = Conditions("p.archive_id = :archive_id", OWN_ARCHIVE, archive_id=archive_id)
        order = conditions.window("p.seq", {**window, "limit": 1})
        sql = f"SELECT p.seq FROM passages p WHERE {conditions} {order} OFFSET {rows}"
        return next((row[0] for row in self._rows(sql, **conditions.params)), None)

    def match(
        self,
        archive_id: ArchiveId,
        query: Query,
        *,
        where: PassageFilter,
        limit: int,
        postings: Postings | None = None,
        rows: int | None = None,
        only: NDArray[Any] | None = None,
    ) -> Matches:
        """The best `limit` candidates of a full-text search.

        Args:
            postings: a cache of what was read of this archive with this filter; it is extended.
            rows: how many passages match the filter, if known.
            only: the sorted numbers of the passages that may be found; None: all.
        """
        numbers = self._rows("SELECT number FROM archives WHERE id = :id AND org_id = :org_id", id=archive_id)
        if not numbers or not query.clauses:
            return Matches()
        # The index has the tags; times are checked in the passage's row.
        conditions = _conditions(replace(where, tags=()))
        has_few = bool(where.tags) and not conditions.clauses and rows is not None and rows <= CLAUSE_ROWS
        conditions.params["archive_id"] = archive_id
        labels = [tag_label(tag) for tag in dict.fromkeys(where.tags)]
        return matches(
            self._db,
            WordRows("passage_words", numbers[0][0], labels, all_labels=where.tag_match == "all"),
            query,
            limit=limit,
            join="JOIN passages p ON p.archive_id = :archive_id AND p.seq = {key}",
            where=conditions,
            postings=postings,
            few=has_few,
            only=only,
        )

    def texts(self, archive_id: ArchiveId, seqs: Sequence[int]) -> PassageTexts:
        """Return the data that ranking needs of these passages, in order; missing ones are left out."""
        condition, params = self._db.in_numbers("seq", "seqs", seqs)
        rows = self._rows(
            f"SELECT {_PASSAGE.columns}, uses FROM passages WHERE {OWN_ARCHIVE} AND archive_id = :archive_id"
            f" AND {condition}",
            archive_id=archive_id,
            **params,
        )
        by_seq = {row[2]: row for row in rows}
        ordered = [by_seq[seq] for seq in seqs if seq in by_seq]
        if not ordered:
            return PassageTexts()
        # As lists of columns: a search ranks a thousand passages, and builds few of them.
        _, _, numbers, texts, _, _, sources, _, times, _, _, uses = zip(*ordered, strict=True)
        loaded: list[dict[str, Any]] = [{} if source == "{}" else row_format.load(source) for source in sources]
        return PassageTexts(
            numbers,
            list(map(row_format.restore, texts)),
            [time.timestamp() for time in map(datetime.fromisoformat, times)],
            [one.get("file_id") or one.get("conversation_id") for one in loaded],
            ordered,
            uses,
            _PASSAGE.read,
        )

    def count(self, archive_id: ArchiveId, seqs: Sequence[int], column: Literal["uses", "recalls"]) -> None:
        """Count a use of passages that a search returned to an agent, which ranking reads; or a recall of those that
        automatic recall showed, or an answer cited."""
        condition, params = self._db.in_numbers("seq", "seqs", seqs)
        where = f"archive_id = :archive_id AND {condition} AND {OWN_ARCHIVE}"
        self._run(f"UPDATE passages SET {column} = {column} + 1 WHERE {where}", archive_id=archive_id, **params)

    def use_counts(self, archive_id: ArchiveId, seqs: Sequence[int]) -> Mapping[int, int]:
        """Number -> uses and recalls together, of these passages; one without any is left out."""
        condition, params = self._db.in_numbers("seq", "seqs", seqs)
        counts: Counter[int] = Counter()
        for column in ("uses", "recalls"):
            rows = self._rows(
                f"SELECT seq, {column} FROM passages WHERE archive_id = :archive_id AND {OWN_ARCHIVE}"
                f" AND {column} > 0 AND {condition}",
                archive_id=archive_id,
                **params,
            )
            counts.update({row[0]: row[1] for row in rows})
        return counts

    def states(self, archive_id: ArchiveId) -> frozenset[PassageState]:
        """The states that passages of the archive are in; `active` is always among them."""
        where = f"archive_id = :archive_id AND {OWN_ARCHIVE} AND state <> 'active' AND state = :state"
        sql = f"SELECT 1 FROM passages WHERE {where} LIMIT 1"
        others = [
            one for one in PASSAGE_STATES if one != "active" and self._rows(sql, archive_id=archive_id, state=one)
        ]
        return frozenset(["active", *others])

    def list_merged(self, archive_id: ArchiveId, into: PassageId) -> Sequence[Passage]:
        """The passages that were archived because they nearly repeat passage `into`, in order of their numbers."""
        # The first condition is that of the partial index.
        archived = "p.state <> 'active' AND p.state = 'archived' AND p.state_origin LIKE :into"
        where = f"p.archive_id = :archive_id AND {archived} ORDER BY p.seq"
        found = self._read(where, archive_id=archive_id, into=f"%{into}%")
        return [passage for passage in found if passage.state_origin.get("into") == into]

    def seqs(self, archive_id: ArchiveId, *, where: PassageFilter) -> Sequence[int]:
        """The numbers of all passages that match the filter, in order."""
        if len(where.tags) == 1 and replace(where, tags=()).matches_all:
            tagged = f"t.archive_id = :archive_id AND t.tag = :tag AND {OWN_ARCHIVE}"
            sql = f"SELECT t.seq FROM passage_tags t WHERE {tagged} ORDER BY t.seq"
            rows = self._rows(sql, archive_id=archive_id, tag=row_format.storable(where.tags[0]))
            return [row[0] for row in rows]
        return self._select_seqs(archive_id, where, "p.seq")

    def latest(self, archive_id: ArchiveId, *, where: PassageFilter, limit: int) -> Sequence[int]:
        """The numbers of the matching passages with the latest `occurred_at`, latest first."""
        return self._select_seqs(archive_id, where, "p.occurred_at DESC, p.seq DESC LIMIT :limit", limit=limit)

    def list_by_seqs(self, archive_id: ArchiveId, seqs: Sequence[int]) -> Sequence[Passage]:
        """The passages with these numbers that exist, in the order of `seqs`."""
        condition, params = self._db.in_numbers("p.seq", "seqs", seqs)
        passages = self._read(f"p.archive_id = :archive_id AND {condition}", archive_id=archive_id, **params)
        by_seq = {passage.seq: passage for passage in passages}
        return [by_seq[seq] for seq in seqs if seq in by_seq]

    def _select_seqs(self, archive_id: ArchiveId, where: PassageFilter, order: str, **params: int) -> Sequence[int]:
        """The numbers of the passages that match a filter. `order`: SQL behind ORDER BY, whose values are `params`."""
        conditions = _conditions(where)
        of_archive = f"p.archive_id = :archive_id AND {OWN_ARCHIVE}"
        sql = f"SELECT p.seq FROM passages p WHERE {of_archive} AND {conditions} ORDER BY {order}"
        return [row[0] for row in self._rows(sql, archive_id=archive_id, **params, **conditions.params)]

    def _read(self, where: str, **params: Any) -> Sequence[Passage]:
        """The passages `p` of `archive_id` for which `where` is true; a transaction that writes locks the archive."""
        self._db.lock("archives", params["archive_id"])
        sql = f"SELECT {_PASSAGE.columns_of('p')} FROM passages p WHERE {OWN_ARCHIVE} AND {where}"
        return self._all(_PASSAGE, sql, **params)


def _write_of(passage: Passage) -> MemoryWrite:
    """The write that stored a passage, with its sources."""
    source = passage.source
    return MemoryWrite(
        kind="passage",
        owner_id=passage.archive_id,
        ref=passage.id,
        sources=passage.sources,
        agent_id=source.get("agent_id"),
        run_id=source.get("run_id"),
        message_id=source.get("message_id"),
        created_at=passage.created_at,
    )


def _row(passage: Passage) -> dict[str, Any]:
    """Column -> what it stores of a passage, its checksum too."""
    row = _PASSAGE.params(passage)
    return row | {"checksum": PASSAGE_CHECKSUMS.of(row)}


def _tag_rows(archive_id: ArchiveId, passages: Sequence[Passage]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rows of `passage_tags`: a passage and a tag; rows of `archive_tags`: a tag and how many passages have it)."""
    tags = [(row_format.storable(tag), passage.seq) for passage in passages for tag in passage.tags]
    uses = Counter(tag for tag, _ in tags)
    return (
        [{"archive_id": archive_id, "tag": tag, "seq": seq} for tag, seq in tags],
        [{"archive_id": archive_id, "tag": tag, "uses": count} for tag, count in uses.items()],
    )


def passage_words_of(
    db: Database, archive_id: ArchiveId, first: int = 0, last: int = 1 << 32
) -> Iterator[tuple[int, str, str]]:
    """Rebuild the full-text rows (number, labels, words) of the passages of an archive from `first` to `last`."""
    rows = db.rows(
        "SELECT seq, tags, text FROM passages WHERE archive_id = :id AND seq BETWEEN :first AND :last",
        {"id": archive_id, "first": first, "last": last},
    )
    yield from (
        (seq, tag_labels(row_format.load(tags)), index_words(row_format.restore(text))) for seq, tags, text in rows
    )


def _words(passage: Passage) -> tuple[int, str, str]:
    """The full-text row of a passage: (number, labels of its tags, words)."""
    return passage.seq, tag_labels(passage.tags), index_words(passage.text)


def _conditions(where: PassageFilter) -> Conditions:
    """The conditions of a filter, on the table `passages p`."""
    conditions = Conditions()
    tags = [row_format.storable(tag) for tag in dict.fromkeys(where.tags)]
    if tags:
        conditions.add(
            "(SELECT COUNT(*) FROM passage_tags t WHERE t.archive_id = p.archive_id AND t.seq = p.seq"
            f" AND t.tag IN ({', '.join('?' * len(tags))})) >= ?",
            *tags,
            len(tags) if where.tag_match == "all" else 1,
        )
    if set(where.states) not in (set(), set(PASSAGE_STATES)):
        _add_states(conditions, where.states)
    conditions.add("p.occurred_at >= ?", where.since and row_format.iso(where.since))
    conditions.add("p.occurred_at <= ?", where.until and row_format.iso(where.until))
    return conditions


def _add_states(conditions: Conditions, states: Collection[PassageState]) -> None:
    """Require one of these states, by the partial index of the passages that are not active, which are few."""
    active = "active" in states
    listed = [state for state in PASSAGE_STATES if state != "active" and (state in states) is not active]
    conditions.add(
        f"p.seq {'NOT ' if active else ''}IN (SELECT s.seq FROM passages s WHERE s.archive_id = :archive_id"
        f" AND s.state <> 'active' AND s.state IN ({', '.join('?' * len(listed))}))",
        *listed,
    )
