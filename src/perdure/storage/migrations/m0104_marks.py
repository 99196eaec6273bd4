"""The full-text indexes anew, where texts have marks that words are now compared without: points, stress, accents of
Greek, the dot of a Turkish capital."""

from __future__ import annotations

from perdure.core.vectors import OwnerKind
from perdure.storage.database.base import Database
from perdure.storage.upkeep.rebuild import rebuild_words, rebuilding

MARKED = "\u0130\u0300-\u03ff\u0591-\u05c7\u0610-\u06ed\u1f00-\u1fff\ufb1d-\ufdff\ufe70-\ufefc"
TEXTS: dict[str, OwnerKind] = {
    "messages.parts": "agent",
    "message_revisions.parts": "agent",
    "passages.text": "archive",
}


def apply(db: Database) -> None:
    """Rebuild the index of messages, and that of passages, unless no text has such a letter."""
    kinds = [*rebuilding(db)]  # what is under way has former words: it is finished, and made again
    for column, kind in TEXTS.items():
        where = f"{column} ~ '[{MARKED}]'" if db.for_update else f"{column} GLOB '*[{MARKED}]*'"
        kinds += [kind for _ in db.rows(f"SELECT 1 FROM {column.partition('.')[0]} WHERE {where} LIMIT 1", {})]
    for kind in kinds:
        while rebuild_words(db, kind, limit=500):
            pass
