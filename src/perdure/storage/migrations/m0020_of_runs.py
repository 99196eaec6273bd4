"""The events of one transaction share a row, and the directory of ids knows a run for what the run makes.

Nothing that is there changes; an older Perdure would misread what comes.
"""

from __future__ import annotations

from perdure.storage.database.base import Database


def apply(db: Database) -> None:
    """Nothing: the number tells an older Perdure to leave the file alone."""
