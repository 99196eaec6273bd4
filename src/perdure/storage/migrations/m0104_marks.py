"""The full-text indexes anew, where texts have marks that words are now compared without: points, stress, accents of
Greek, the dot of a Turkish capital."""

from __future__ import annotations

from perdure.core.vectors import OwnerKind
from perdure.storage.database.base import Database
from perdure.storage.upkeep.rebuild import rebuild_words, rebuilding

# Signs alone, such as ´ in don´t, are a space and a mark; of some letters the small form is a letter and a mark.
LETTERS = (
    "\u00a8\u00af\u00b4\u00b8\u01f0\u02d8-\u02dd\u1e96-\u1e99\u2017\u203e\u2adc\ufe49-\ufe4c\uffe3"
    "\u0130\u0300-\u03ff\u0591-\u05c7\u0610-\u06ed\u1f00-\u1fff\ufb1d-\ufdff\ufe70-\ufefc"
)
TEXTS: dict[str, OwnerKind] = {
    "messages.parts": "agent",
    "message_revisions.parts": "agent",
    "passages.text": "archive",
}


def apply(db: Database) -> None:
    """Rebuild the index of messages, and that of passages, unless no text has such a letter."""
    kinds = set[OwnerKind]()
    for column, kind in TEXTS.items():
        where = f"{column} ~ '[{LETTERS}]'" if db.for_update else f"{column} GLOB '*[{LETTERS}]*'"
        kinds |= {kind for _ in db.rows(f"SELECT 1 FROM {column.partition('.')[0]} WHERE {where} LIMIT 1", {})}
    for one in (*rebuilding(db), *kinds):  # what is under way has former words: it is finished, and made again
        while rebuild_words(db, one, limit=500):
            pass
