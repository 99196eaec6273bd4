"""Secrets of organisations and agents, encrypted by a key that is not in the database. `value` is base64."""

from __future__ import annotations

from perdure.storage.database.base import Database


def apply(db: Database) -> None:
    db.run(
        "CREATE TABLE secrets (org_id TEXT NOT NULL, owner_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,"
        " created_at TEXT NOT NULL, updated_at TEXT NOT NULL,"
        f" PRIMARY KEY (org_id, owner_id, name)) {db.clustered}",
        {},
    )
