"""Conversations that are left out of lists, and those that were deleted: their rows stay."""

from __future__ import annotations

from perdure.storage.database.base import Database


def apply(db: Database) -> None:
    db.run("ALTER TABLE conversations ADD COLUMN hidden SMALLINT NOT NULL DEFAULT 0", {})
    db.run("ALTER TABLE conversations ADD COLUMN removed_at TEXT", {})
