"""Agents that are deleted: nobody sees them from the first moment on; their rows go some at a time.

A deleted agent's row stands under an organisation that nobody is of, until all else of it is gone. So every verb that
asks for the organisation passes it over, and whoever carries this out after a crash finds it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.core.errors import StoreDamaged
from perdure.core.ids import AgentId, OrgId
from perdure.storage.database.base import Database, Row, deleted_org
from perdure.storage.full_text import index as word_index
from perdure.storage.tables.messages import indexed_words_of
from perdure.storage.tables.vectors import Vectors

__all__ = ["carry_out_delete", "hide_agent", "within"]

_FEW = ("agent_blocks", "agent_archives", "agent_folders", "agent_tools")
"""Whose rows are limited for each agent; others would see it by them."""

_MANY = {
    "message_revisions": "seq, revision",
    "events": "run_seq, seq",
    "call_starts": "run_seq, call_id, lease_number",
    "step_exchanges": "run_seq, step_index",
    "steps": "run_seq, step_index",
    "prefixes": "seq",
    "idempotency_keys": "conversation_seq, idempotency_key",
    "client_tools": "digest",
    "runs": "seq",
    "captures": "conversation_seq",
    "summary_nodes": "conversation_seq, seq",
    "resets": "conversation_seq, number",
    "resetting": "conversation_seq",
    "conversations": "seq",
    "agent_files": "file_id",
    "agent_details": "agent_id",
}
"""Table -> its key beside the agent. In this order, behind the messages: nothing is left that could only be reached
through what is already gone."""

_WITH_IDS = ("runs", "steps", "conversations")
_WIDE = ("events", "step_exchanges", "prefixes")
"""Whose rows may each hold a whole request."""


def hide_agent(db: Database, org_id: OrgId, agent_id: AgentId, number: int) -> None:
    """The first step: from now on nobody sees it."""
    params = {"agent_id": agent_id, "number": number, "org_id": org_id, "deleted": deleted_org(org_id)}
    db.run("UPDATE agents SET org_id = :deleted WHERE id = :agent_id", params)
    for table in _FEW:
        db.run(f"DELETE FROM {table} WHERE agent_id = :agent_id", params)
    db.run("DELETE FROM agent_files WHERE agent_id = :agent_id AND is_open = 1", params)
    # The organisation is the first column of its key, without which every secret would be looked at.
    db.run("DELETE FROM secrets WHERE org_id = :org_id AND owner_id = :agent_id", params)
    if db.run("UPDATE vector_scopes SET org_id = :deleted WHERE number = :number", params):
        db.touched.add(number)


def carry_out_delete(db: Database, org_id: OrgId, *, limit: int, chars: int) -> bool:
    """Remove some rows of a deleted agent, and at last its own; False if there is none."""
    params: dict[str, Any] = {"deleted": deleted_org(org_id)}
    found = db.rows(
        f"SELECT id, number FROM agents WHERE org_id = :deleted ORDER BY number LIMIT 1{db.for_update}", params
    )
    if not found:
        return False
    agent_id, number = AgentId(found[0][0]), found[0][1]
    params = {"agent_id": agent_id}
    messages = db.rows(
        "SELECT seq, LENGTH(parts) FROM messages WHERE agent_id = :agent_id ORDER BY seq LIMIT :limit",
        params | {"limit": limit},
    )
    if messages:
        first, last = messages[0][0], within(messages, chars)[-1][0]
        params |= {"first": first, "last": last}
        these = "FROM messages WHERE agent_id = :agent_id AND seq BETWEEN :first AND :last"
        try:
            words = list(indexed_words_of(db, agent_id, first, last))
        except StoreDamaged:  # what stays in the index belongs to nobody; one damaged text must not keep all others
            words = []
        word_index.unindex_words(db, "message_words", number, words)
        db.run(f"DELETE FROM ids WHERE id IN (SELECT id {these})", params)
        db.run(f"DELETE {these}", params)
        return True
    for table, key in _MANY.items():
        rows = limit // 10 if table in _WIDE else limit
        some = f"FROM {table} WHERE agent_id = :agent_id ORDER BY {key} LIMIT :rows"
        if table in _WITH_IDS:
            db.run(f"DELETE FROM ids WHERE id IN (SELECT id {some})", params | {"rows": rows})
        deleted = db.run(
            f"DELETE FROM {table} WHERE agent_id = :agent_id AND ({key}) IN (SELECT {key} {some})",
            params | {"rows": rows},
        )
        if deleted:
            return True
    if not Vectors(db, OrgId(deleted_org(org_id))).close(number, limit=limit):
        return True
    db.run("DELETE FROM agents WHERE id = :agent_id", params)
    return True


def within(rows: Sequence[Row], chars: int) -> Sequence[Row]:
    """As many of the first rows as have no more than `chars` characters, which stand last in a row; at least one: the
    words of texts are counted where everybody else waits."""
    size = 0
    for index, row in enumerate(rows):
        size += row[-1] or 0
        if index and size > chars:
            return rows[:index]
    return rows
