"""Tags in the full-text index, so that a search for words among the passages of a tag meets no others.

Looked up afterwards, a tag that one passage in a hundred has let a search read a hundred times as many rows.
"""

from __future__ import annotations

from perdure.core.text.words import index_words
from perdure.storage.database.base import Database
from perdure.storage.database.full_text import tag_labels
from perdure.storage.database.row_format import load, restore

ROWS = 500


def apply(db: Database) -> None:
    for archive_id, number in db.rows("SELECT id, number FROM archives ORDER BY number", {}):
        after = -1
        while rows := db.rows(
            "SELECT seq, text, tags FROM passages WHERE archive_id = :archive_id AND seq > :after ORDER BY seq"
            " LIMIT :limit",
            {"archive_id": archive_id, "after": after, "limit": ROWS},
        ):
            after = rows[-1][0]
            tagged = [(row[0], load(row[2]), index_words(restore(row[1]))) for row in rows if row[2] != "[]"]
            db.unindex_words("passage_words", number, [(seq, "", words) for seq, _, words in tagged])
            db.index_words("passage_words", number, [(seq, tag_labels(tags), words) for seq, tags, words in tagged])
