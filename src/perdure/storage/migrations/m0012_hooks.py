"""What hooks have added to a run and its next request shows, as a JSON list of texts. Runs that are there have none."""

from __future__ import annotations

from perdure.storage.database.base import Database


def apply(db: Database) -> None:
    db.run("ALTER TABLE runs ADD COLUMN hook_context TEXT", {})
