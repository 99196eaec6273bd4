"""The marker that the engine's messages carry in a conversation is part of its prefix."""

from __future__ import annotations

from perdure.storage.database.base import Database


def apply(db: Database) -> None:
    """A prefix of before has none; it is written anew with the next request."""
    db.run("ALTER TABLE prefixes ADD COLUMN marker TEXT NOT NULL DEFAULT ''", {})
