"""The full-text indexes of messages and passages, and the counter of things."""

from __future__ import annotations

from perdure.storage.database.base import Database


def apply(db: Database) -> None:
    """Create the full-text indexes, and the counter of numbers."""
    db.full_text_table("message_words")
    db.full_text_table("passage_words")
    db.run("INSERT INTO counters (name, value) VALUES ('number', 0)", {})
