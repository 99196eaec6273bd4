"""Names, tags, labels and keys in the one form, so that they are found in whichever form they are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.core.features import find_features
from perdure.core.text.forms import name_form
from perdure.core.text.words import index_words
from perdure.storage.database import full_text as word_index
from perdure.storage.database.base import Database
from perdure.storage.database.full_text import tag_labels
from perdure.storage.database.row_format import dump, load, restore, storable, stored_key
from perdure.storage.tables.blocks import VERSION_CHECKSUMS
from perdure.storage.tables.passages import PASSAGE_CHECKSUMS

PLACES: Mapping[str, tuple[str, str]] = {
    "agent_details tags": ("agent_id", ""),
    "agents name": ("id", ""),
    "archives name": ("id", ""),
    "block_versions label": ("block_id, version", ""),
    "blocks label": ("id", ""),
    "blocks tags": ("id", ""),
    "conversation_blocks label": (
        "agent_id, conversation_seq, label",
        "o.agent_id = t.agent_id AND o.conversation_seq = t.conversation_seq",
    ),
    "identities project_id": ("id", "o.org_id = t.org_id AND o.identifier_key = t.identifier_key"),
    "identities identifier_key": (
        "id",
        "o.org_id = t.org_id AND COALESCE(o.project_id, '') = COALESCE(t.project_id, '')",
    ),
    "identities name": ("id", ""),
    "organisations name": ("id", "1 = 1"),
    "passages tags": ("archive_id, seq", ""),
    "steps tags": ("agent_id, run_seq, step_index", ""),
    "tools tags": ("id", ""),
    **{place: key for feature in find_features() for place, key in feature.one_form.items()},
}
"""Table and column -> the key of the table, and when two rows, `o` and `t`, may not have the same value."""
_CHECKSUMS = {checksums.table: checksums for checksums in (PASSAGE_CHECKSUMS, VERSION_CHECKSUMS)}


def apply(db: Database) -> None:
    """Store all keys in normal form."""
    for place, (key, twins) in PLACES.items():
        table, column = place.split()
        _store_in_one_form(db, table, column, key, twins)


def _store_in_one_form(db: Database, table: str, column: str, key: str, twins: str) -> None:
    """Store the values of a column in normal form; a name that is then taken gets a number. `twins`: SQL that is true
    for two rows `o` and `t` that must not have equal values; empty: any two may."""
    checks = _CHECKSUMS.get(table)
    columns, checksum = (", ".join(checks.columns), "checksum") if checks else (key, "NULL")
    # Most names are ASCII, and are not even read.
    is_affected = f"{column} ~ '[^\\x01-\\x7f]'" if db.for_update else f"{column} GLOB '*[^ -~]*'"
    is_free = f" AND NOT EXISTS (SELECT 1 FROM {table} o WHERE o.{column} = :new AND {twins})" if twins else ""
    where = " AND ".join(f"{name} = :{name}" for name in key.split(", "))
    sql = f"UPDATE {table} AS t SET {column} = :new{', checksum = :checksum' if checks else ''} WHERE {where}{is_free}"
    for old, stored, *values in db.rows(f"SELECT {column}, {checksum}, {columns} FROM {table} WHERE {is_affected}", {}):
        row = dict(zip(columns.split(", "), values, strict=True))
        is_tags = column == "tags"
        base = dump(list(dict.fromkeys(name_form(load(old))))) if is_tags else stored_key(restore(old))
        if base == old:
            continue
        new, number = base, 1
        if checks:  # a damaged row stays known as such
            row["checksum"] = checks.of({**row, column: new}) if stored == checks.of(row) else stored
        while not db.run_counted(sql, {**row, "new": new}):
            number += 1
            new = f"{base}_{number}"
        if table == "passages":
            _replace_tags(db, row, load(new))


def _replace_tags(db: Database, passage: Mapping[str, Any], tags: list[str]) -> None:
    """Index a passage (a row of its table) under these tags in place of its former ones."""
    archive_id, seq, before = passage["archive_id"], passage["seq"], load(passage["tags"])
    changes = (
        ("DELETE FROM passage_tags WHERE archive_id = :id AND tag = :tag AND seq = :seq", before),
        ("INSERT INTO passage_tags (archive_id, tag, seq) VALUES (:id, :tag, :seq)", tags),
        ("DELETE FROM archive_tags WHERE archive_id = :id AND tag = :tag", [*before, *tags]),
        (
            "INSERT INTO archive_tags (archive_id, tag, uses) SELECT archive_id, tag, COUNT(*) FROM passage_tags"
            " WHERE archive_id = :id AND tag = :tag GROUP BY archive_id, tag",
            dict.fromkeys((*before, *tags)),
        ),
    )
    for sql, of in changes:
        db.run_many(sql, [{"id": archive_id, "tag": storable(tag), "seq": seq} for tag in of])
    words = index_words(restore(passage["text"]))
    for (number,) in db.rows("SELECT number FROM archives WHERE id = :id", {"id": archive_id}):
        word_index.unindex_words(db, "passage_words", number, [(seq, tag_labels(before), words)])
        word_index.index_words(db, "passage_words", number, [(seq, tag_labels(tags), words)])
