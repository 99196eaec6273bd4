"""What is deleted: nobody sees it from the first moment on; its rows go some at a time.

The row of a deleted agent, block, tool, folder or archive stands under an organisation that nobody is of, until all
else of it is gone. So every verb that asks for the organisation passes it over, and whoever carries this out after a
crash finds it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.errors import StoreDamaged
from perdure.core.ids import AgentId, OrgId
from perdure.storage.database.base import Database, OwnId, Row, deleted_org
from perdure.storage.full_text import index as word_index
from perdure.storage.tables.messages import indexed_words_of
from perdure.storage.tables.vectors import Vectors

__all__ = ["CHARS", "carry_out_delete", "delete_shared", "hide_agent", "unfinished_deletes", "within"]

CHARS = 250_000
"""Characters of texts that are removed in one transaction."""

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


_LINKS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "blocks": {"agent_blocks": ("block_id", "agent_id")},
    "tools": {"agent_tools": ("tool_id", "agent_id")},
    "folders": {"agent_folders": ("folder_id", "agent_id")},
    "archives": {"agent_archives": ("archive_id", "agent_id"), "archive_tags": ("archive_id", "tag")},
}
"""What many agents may have -> the tables with rows of it -> its column there, and the rest of their key."""

_UNIQUE_NAMES = ("tools", "folders")
_SHAPING = ("tools", "folders")
"""Those that are part of a prompt: an agent that loses one has another settings revision."""

ROWS_AT_ONCE = 200
"""Rows that go in the transaction of the delete itself."""
PAGE = 20
"""Versions of a block that are measured at once: each may be as long as a block."""


def delete_shared(db: Database, org_id: OrgId, table: str, own: OwnId) -> None:
    """The first step of deleting what agents share, and the last where it has few rows."""
    name = ", name = id" if table in _UNIQUE_NAMES else ""
    params = {"id": own, "deleted": deleted_org(org_id)}
    db.run(f"UPDATE {table} SET org_id = :deleted{name} WHERE id = :id", params)
    if table == "archives":
        scopes = db.rows(
            "UPDATE vector_scopes SET org_id = :deleted"
            " WHERE number = (SELECT number FROM archives WHERE id = :id) RETURNING number",
            params,
        )
        db.changed_scopes.update(row[0] for row in scopes)
    _remove_some(db, org_id, table, own, limit=ROWS_AT_ONCE, chars=CHARS)


def unfinished_deletes(db: Database, org_id: OrgId) -> bool:
    """Whether there is something deleted whose rows are not all gone."""
    tables = ("agents", *_LINKS)
    there = " OR ".join(f"EXISTS (SELECT 1 FROM {table} WHERE org_id = :deleted)" for table in tables)
    return bool(db.rows(f"SELECT 1 WHERE {there}", {"deleted": deleted_org(org_id)}))


def carry_out_delete(db: Database, org_id: OrgId, *, limit: int, chars: int) -> bool:
    """Remove some rows of something that is deleted, and at last its own; False if there is none."""
    for table in _LINKS:
        found = db.rows(
            f"SELECT id FROM {table} WHERE org_id = :deleted LIMIT 1{db.for_update}", {"deleted": deleted_org(org_id)}
        )
        if found:
            _remove_some(db, org_id, table, found[0][0], limit=limit, chars=chars)
            return True
    return _remove_some_of_agent(db, org_id, limit=limit, chars=chars)


def _remove_some(db: Database, org_id: OrgId, table: str, id_: str, *, limit: int, chars: int) -> None:
    """Remove up to `limit` rows of what is deleted, and its own if nothing else is left."""
    left = limit
    for linked, (column, key) in _LINKS[table].items():
        params = {"id": id_, "rows": left}
        some = f"SELECT {key} FROM {linked} WHERE {column} = :id ORDER BY {key} LIMIT :rows"
        if table in _SHAPING:
            db.run(f"UPDATE agents SET settings_revision = settings_revision + 1 WHERE id IN ({some})", params)
        left -= db.run(f"DELETE FROM {linked} WHERE {column} = :id AND {key} IN ({some})", params)
        if left <= 0:
            return
    if table == "blocks" and not _remove_versions(db, id_, limit=left, chars=chars):
        return
    if table == "archives":
        number = db.rows("SELECT number FROM archives WHERE id = :id", {"id": id_})[0][0]
        if not Vectors(db, OrgId(deleted_org(org_id))).close(number, limit=left):
            return
    db.run(f"DELETE FROM {table} WHERE id = :id", {"id": id_})


def _remove_versions(db: Database, block_id: str, *, limit: int, chars: int) -> bool:
    """Remove the oldest versions of a block, up to `limit` and of about `chars` characters; whether all are gone."""
    last = -1
    while limit > 0 and chars > 0:
        rows = db.rows(
            "SELECT version, LENGTH(value) + LENGTH(diff) FROM block_versions WHERE block_id = :id"
            " AND version > :last ORDER BY version LIMIT :rows",
            {"id": block_id, "last": last, "rows": min(PAGE, limit)},
        )
        page = within(rows, chars)
        if page:
            last, limit, chars = page[-1][0], limit - len(page), chars - sum(row[-1] for row in page)
        if len(page) < len(rows) or not page:
            break
    db.run("DELETE FROM block_versions WHERE block_id = :id AND version <= :last", {"id": block_id, "last": last})
    return not db.rows("SELECT 1 FROM block_versions WHERE block_id = :id LIMIT 1", {"id": block_id})


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
        db.changed_scopes.add(number)


def _remove_some_of_agent(db: Database, org_id: OrgId, *, limit: int, chars: int) -> bool:
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
