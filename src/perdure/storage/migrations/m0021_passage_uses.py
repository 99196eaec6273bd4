"""How often passages were shown can be read without reading the passages."""

from __future__ import annotations

from perdure.storage.database.base import Database


def apply(db: Database) -> None:
    """An index of those that were shown at all."""
    db.run("CREATE INDEX passages_used ON passages (archive_id, seq, uses) WHERE uses > 0", {})
