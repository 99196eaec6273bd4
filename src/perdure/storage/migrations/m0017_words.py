"""Messages enter the full-text index some at a time: `words_seq` of an agent is the first that it does not have yet."""

from __future__ import annotations

from perdure.storage.database.base import Database


def apply(db: Database) -> None:
    db.run("ALTER TABLE agents ADD COLUMN words_seq BIGINT NOT NULL DEFAULT 0", {})
    db.run("UPDATE agents SET words_seq = message_seq", {})
