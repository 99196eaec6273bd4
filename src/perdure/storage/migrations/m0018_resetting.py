"""Resets whose rows are still to be changed: up to `upto_seq` a conversation's messages are out of view, and those from
`next_seq` on don't say so themselves yet."""

from __future__ import annotations

from perdure.storage.database.base import Database


def apply(db: Database) -> None:
    db.run(
        "CREATE TABLE resetting (agent_id TEXT NOT NULL, conversation_seq BIGINT NOT NULL, upto_seq BIGINT NOT NULL,"
        f" next_seq BIGINT NOT NULL, PRIMARY KEY (agent_id, conversation_seq)) {db.clustered}",
        {},
    )
