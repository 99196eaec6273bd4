"""How far each conversation was stored as passages, by automatic capture."""

from __future__ import annotations

from perdure.storage.database.base import Database


def apply(db: Database) -> None:
    db.run(
        "CREATE TABLE captures (agent_id TEXT NOT NULL, conversation_seq BIGINT NOT NULL, upto_seq BIGINT NOT NULL,"
        f" captured_at TEXT NOT NULL, PRIMARY KEY (agent_id, conversation_seq)) {db.clustered}",
        {},
    )
