"""Names, tags, labels and keys in the one form, so that they are found in whichever form they are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.core.text.forms import name_form
from perdure.core.text.words import index_words
from perdure.storage.database.base import Database
from perdure.storage.database.row_format import dump, load, restore, storable, stored_key
from perdure.storage.full_text import index as word_index
from perdure.storage.tables.passages import PASSAGE_CHECKSUMS, tag_labels

NAMES = {
    "agents name": "1 = 0",
    "archives name": "1 = 0",
    "blocks label": "1 = 0",
    "conversation_blocks label": "o.agent_id = t.agent_id AND o.conversation_seq = t.conversation_seq",
    "folders name": "o.org_id = t.org_id",
    "graphs name": "1 = 0",
    "groups project_id": "1 = 0",
    "identities project_id": "o.org_id = t.org_id AND o.identifier_key = t.identifier_key",
    "identities identifier_key": "o.org_id = t.org_id AND COALESCE(o.project_id, '') = COALESCE(t.project_id, '')",
    "identities name": "1 = 0",
    "organisations name": "1 = 1",
    "schedules name": "1 = 0",
    "users name": "o.org_id = t.org_id",
}
"""Table and column of a name -> when two rows, `o` and `t`, may not have the same one."""

LISTS = {
    "agent_details tags": "agent_id",
    "blocks tags": "id",
    "episodes scope": "graph_id, seq",
    "facts scope": "graph_id, seq",
    "steps tags": "agent_id, run_seq, step_index",
    "tools tags": "id",
}
"""Table and column of tags or keys, as JSON -> the key of the table."""


def apply(db: Database) -> None:
    for place, twins in NAMES.items():
        _rename(db, *place.split(), twins)
    for place, key in LISTS.items():
        _rewrite(db, *place.split(), key.split(", "))
    for archive_id, number in db.rows("SELECT id, number FROM archives ORDER BY number", {}):
        _tag_anew(db, archive_id, number)


def _is_affected(db: Database, column: str) -> str:
    """The condition of a column with other characters than ASCII, of which most names have none."""
    return f"{column} ~ '[^\\x01-\\x7f]'" if db.for_update else f"{column} GLOB '*[^ -~]*'"


def _rename(db: Database, table: str, column: str, twins: str) -> None:
    """Store the names of a column anew; one that is taken then gets a number."""
    sql = (
        f"UPDATE {table} AS t SET {column} = :new WHERE {column} = :old"
        f" AND NOT EXISTS (SELECT 1 FROM {table} o WHERE o.{column} = :new AND {twins})"
    )
    left = f"SELECT 1 FROM {table} WHERE {column} = :old LIMIT 1"
    for (old,) in db.rows(f"SELECT DISTINCT {column} FROM {table} WHERE {_is_affected(db, column)}", {}):
        new, number = stored_key(restore(old)), 1
        while new != old and db.rows(left, {"old": old}):
            db.run(sql, {"old": old, "new": new if number == 1 else f"{new}_{number}"})
            number += 1


def _rewrite(db: Database, table: str, column: str, key: Sequence[str]) -> None:
    """Store the tags or keys of a column anew, each once."""
    where = " AND ".join(f"{name} = :{name}" for name in key)
    columns = ", ".join((column, *key))
    for old, *values in db.rows(f"SELECT {columns} FROM {table} WHERE {_is_affected(db, column)}", {}):
        if (new := dump(_once(load(old)))) != old:
            row = {**dict(zip(key, values, strict=True)), "new": new}
            db.run(f"UPDATE {table} SET {column} = :new WHERE {where}", row)


def _once(value: Any) -> Any:
    """Tags in the form of names, each once; of an object its keys and values."""
    return list(dict.fromkeys(name_form(value))) if isinstance(value, list) else name_form(value)


def _tag_anew(db: Database, archive_id: str, number: int) -> None:
    """Store the tags of an archive's passages anew, and have the passages found by them."""
    columns, checksum = ", ".join(PASSAGE_CHECKSUMS.columns), PASSAGE_CHECKSUMS.of
    sql = f"SELECT checksum, {columns} FROM passages WHERE archive_id = :id AND {_is_affected(db, 'tags')}"
    is_changed = False
    for stored, *values in db.rows(sql, {"id": archive_id}):
        row = dict(zip(PASSAGE_CHECKSUMS.columns, values, strict=True))
        old = load(row["tags"])
        if (new := _once(old)) == old:
            continue
        is_changed, after = True, {**row, "tags": dump(new)}
        after["checksum"] = checksum(after) if stored == checksum(row) else stored  # a damaged row stays known as such
        own = "archive_id = :archive_id AND seq = :seq"
        db.run(f"UPDATE passages SET tags = :tags, checksum = :checksum WHERE {own}", after)
        for tag in old:
            db.run(f"DELETE FROM passage_tags WHERE {own} AND tag = :tag", {**row, "tag": storable(tag)})
        for tag in new:
            db.run(
                "INSERT INTO passage_tags (archive_id, tag, seq) VALUES (:archive_id, :tag, :seq)",
                {**row, "tag": storable(tag)},
            )
        words = index_words(restore(row["text"]))
        word_index.unindex_words(db, "passage_words", number, [(row["seq"], tag_labels(old), words)])
        word_index.index_words(db, "passage_words", number, [(row["seq"], tag_labels(new), words)])
    if is_changed:
        db.run("DELETE FROM archive_tags WHERE archive_id = :id", {"id": archive_id})
        db.run(
            "INSERT INTO archive_tags (archive_id, tag, uses) SELECT archive_id, tag, COUNT(*) FROM passage_tags"
            " WHERE archive_id = :id GROUP BY archive_id, tag",
            {"id": archive_id},
        )
