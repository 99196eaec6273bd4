"""Messages, their revisions, passages and versions of blocks have a checksum, by which damage shows."""

from __future__ import annotations

from perdure.storage.database.base import Database


def apply(db: Database) -> None:
    """Rows of before have none; `perdure verify --repair` gives them one, of what they hold then."""
    for table in ("messages", "message_revisions", "passages", "block_versions"):
        db.run(f"ALTER TABLE {table} ADD COLUMN checksum BIGINT", {})
