"""What nobody sees: deleted things, whose rows are removed in bounded transactions, and copies that are not whole yet.

The row of a deleted agent, block, tool, folder or archive moves to an organisation without members until its other rows
are removed. So every verb that checks the organisation skips it, and a process that continues after a crash finds it.
Blocks and archives that are still being copied to an agent stand in another such organisation, and go with the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from perdure.core.errors import StoreDamaged
from perdure.core.features import RootUse, archive_columns, feature_roots, feature_tables
from perdure.core.ids import AgentId, OrgId
from perdure.storage.database import full_text as word_index
from perdure.storage.database.base import Database
from perdure.storage.database.row_format import Row
from perdure.storage.tables.messages import indexed_words_of
from perdure.storage.tables.passages import passage_words_of
from perdure.storage.tables.table import BY_ID, OwnId, Table, deleted_org, keep_places, own_agent
from perdure.storage.tables.vectors import Vectors

CHARS = 250_000
"""The characters of texts that one transaction removes."""

_SMALL_TABLES = (
    *("agent_blocks", "agent_archives", "agent_tools", "agent_identities"),
    *(table for root in feature_roots() for table in root.of_agents),
)
"""Tables with a limited number of rows per agent. They go at once, because others would see the agent through them."""

_LARGE_TABLES = {
    **{table.name: ", ".join(table.key) for table in feature_tables()},
    "message_revisions": "seq, revision",
    "events": "run_seq, seq",
    "call_starts": "run_seq, call_id, lease_number",
    "step_exchanges": "run_seq, step_index",
    "steps": "run_seq, step_index",
    "prefixes": "seq",
    "system_messages": "conversation_seq",
    "idempotency_keys": "conversation_seq, idempotency_key",
    "client_tools": "digest",
    "runs": "seq",
    "captures": "conversation_seq",
    "turns": "part",
    "summary_nodes": "conversation_seq, seq",
    "resets": "conversation_seq, number",
    "message_sources": "conversation_seq, seq, place",
    "correction_items": "number, seq",
    "corrections": "number",
    "erasures": "number",
    "resetting": "conversation_seq",
    "view_gaps": "conversation_seq, from_seq, since_revision",
    "agent_revisions": "revision",
    "conversation_blocks": "conversation_seq, label",
    "conversations": "seq",
    "agent_details": "agent_id",
}
"""Table -> its key beside the agent. Rows are removed in this order, after the messages, so that no row is left that
can only be reached through a removed one."""

_WITH_DIRECTORY_IDS = (
    *("runs", "steps", "conversations", "system_messages"),
    *(table for root in feature_roots() for table in root.with_ids),
)
_WIDE_TABLES = ("turns", "events", "step_exchanges", "prefixes", "system_messages")
"""Tables whose rows may each hold a whole request."""


def _links_of(root: RootUse) -> Mapping[str, tuple[str, str]]:
    """Table that links to a feature's things -> (column of their id there, rest of its key)."""
    of_agents = {table: (root.key, "agent_id") for table in root.of_agents if table not in root.parts}
    sources = {"memory_sources": ("owner_id", "ref, place")} if root.has_sources else {}
    return of_agents | sources | {table: (root.key, key) for table, key in root.parts.items()}


_LINKS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "blocks": {
        "agent_blocks": ("block_id", "agent_id"),
        "block_identities": ("block_id", "identity_id"),
        "conversation_blocks": ("block_id", "agent_id"),
        **{table: link for root in feature_roots() for table, link in root.links.get("blocks", {}).items()},
        "memory_sources": ("owner_id", "ref, place"),
    },
    **{root.name: _links_of(root) for root in feature_roots()},
    "identities": {"agent_identities": ("identity_id", "agent_id"), "block_identities": ("identity_id", "block_id")},
    "tools": {"agent_tools": ("tool_id", "agent_id")},
    "archives": {
        "agent_archives": ("archive_id", "agent_id"),
        "archive_tags": ("archive_id", "tag"),
        "memory_sources": ("owner_id", "ref, place"),
        "passage_tags": ("archive_id", "tag, seq"),
    },
}
"""A shared thing's table -> the tables that link to it -> the column of its id there, and the rest of the key."""

_UNIQUE_NAMES = {
    **{"tools": "name", "identities": "identifier_key"},
    **{root.name: root.unique for root in feature_roots() if root.unique},
}
"""Table -> the column whose values are unique in an organisation. A deleted thing has its id there."""

_IN_PROMPTS = ("tools", *(root.name for root in feature_roots() if root.is_in_prompts))
"""Things in prompts: an agent that loses one gets a new settings revision."""

ROWS_AT_ONCE = 200
"""Rows that the transaction of the delete itself removes."""
PAGE = 20
"""Versions of a block whose size is read at once: each may be as long as a block."""


def delete_shared(db: Database, org_id: OrgId, table: str, own: OwnId) -> None:
    """Delete a thing that agents may share, a row of `table` with the id `own`, and the archives that belong to it:
    hide it and remove its first rows, or all if they are few."""
    name = f", {_UNIQUE_NAMES[table]} = id" if table in _UNIQUE_NAMES else ""
    params = {"id": own, "deleted": deleted_org(org_id)}
    columns = ", ".join(("number", *archive_columns(table)))
    rows = db.rows(f"SELECT {columns} FROM {table} WHERE id = :id", params)
    if not rows:
        return  # another transaction has deleted it since this one looked for it
    number, *owned = rows[0]
    for root in feature_roots():
        if root.name == table and root.ends:
            db.run(root.ends, {"id": own})
    keep_places(db, org_id, {own: {"number": number}})
    db.run(f"UPDATE {table} SET org_id = :deleted{name} WHERE id = :id", params)
    if table == "archives":
        scopes = db.rows(
            "UPDATE vector_scopes SET org_id = :deleted"
            " WHERE number = (SELECT number FROM archives WHERE id = :id) RETURNING number",
            params,
        )
        db.changed_scopes.update(row[0] for row in scopes)
    _remove_rows(db, org_id, table, own, limit=ROWS_AT_ONCE, chars=CHARS)
    for archive_id in owned:
        delete_shared(db, org_id, "archives", OwnId(archive_id))


def unfinished_deletes(db: Database, org_id: OrgId) -> bool:
    """Whether a deleted thing still has rows."""
    tables = ("agents", *_LINKS)
    conditions = " OR ".join(f"EXISTS (SELECT 1 FROM {table} WHERE org_id = :deleted)" for table in tables)
    return bool(db.rows(f"SELECT 1 WHERE {conditions}", {"deleted": deleted_org(org_id)}))


def carry_out_delete(db: Database, org_id: OrgId, *, limit: int, chars: int) -> bool:
    """Remove some rows of one deleted object, its own row last; return False if none is left."""
    for table in _LINKS:
        found = db.rows(
            f"SELECT id FROM {table} WHERE org_id = :deleted LIMIT 1{db.for_update}", {"deleted": deleted_org(org_id)}
        )
        if found:
            _remove_rows(db, org_id, table, found[0][0], limit=limit, chars=chars)
            return True
    return _remove_rows_of_agent(db, org_id, limit=limit, chars=chars)


def _remove_rows(db: Database, org_id: OrgId, table: str, id_: str, *, limit: int, chars: int) -> None:
    """Remove up to `limit` rows and `chars` of texts of a deleted object, and when nothing is left its own row."""
    left = limit
    for linked, (column, key) in _LINKS[table].items():
        params = {"id": id_, "rows": left}
        rows_sql = f"SELECT {key} FROM {linked} WHERE {column} = :id ORDER BY {key} LIMIT :rows"
        if table in _IN_PROMPTS:
            db.run(f"UPDATE agents SET settings_revision = settings_revision + 1 WHERE id IN ({rows_sql})", params)
        if linked in _WITH_DIRECTORY_IDS:
            of_rows = f"SELECT id FROM {linked} WHERE {column} = :id ORDER BY {key} LIMIT :rows"
            db.run(f"DELETE FROM ids WHERE id IN ({of_rows})", params)
        left -= db.run_counted(f"DELETE FROM {linked} WHERE {column} = :id AND ({key}) IN ({rows_sql})", params)
        if left <= 0:
            return
    if table == "blocks" and not _remove_versions(db, id_, limit=left, chars=chars):
        return
    if table == "archives":
        number = db.rows("SELECT number FROM archives WHERE id = :id", {"id": id_})[0][0]
        if _remove_texts(db, "passages", id_, number, limit=left, chars=chars):
            return
        if not Vectors(db, OrgId(deleted_org(org_id))).close(number, limit=left):
            return
    db.run(f"DELETE FROM {table} WHERE id = :id", {"id": id_})


_TEXTS: Mapping[str, tuple[str, str, str, Callable[..., Iterable[tuple[int, str, str]]]]] = {
    "messages": ("agent_id", "parts", "message_words", indexed_words_of),
    "passages": ("archive_id", "text", "passage_words", passage_words_of),
}
"""A table of texts -> the columns of the owner and the text, the index of their words, and how these are read."""


def _remove_texts(db: Database, table: str, owner_id: str, number: int, *, limit: int, chars: int) -> bool:
    """Remove the first messages of an agent, or passages of an archive, from `table` and from the index (by the owner's
    `number`), up to `limit` and about `chars` characters; return whether there were any."""
    owner, text, index, words_of = _TEXTS[table]
    params: dict[str, Any] = {"id": owner_id, "rows": limit}
    texts = db.rows(f"SELECT seq, LENGTH({text}) FROM {table} WHERE {owner} = :id ORDER BY seq LIMIT :rows", params)
    if not texts:
        return False
    first, last = texts[0][0], first_rows_within(texts, chars)[-1][0]
    try:
        words = list(words_of(db, owner_id, first, last))
    except StoreDamaged:  # its index rows stay, unreachable: one damaged text must not block the rest
        words = []
    word_index.unindex_words(db, index, number, words)
    from_first_to_last = f"FROM {table} WHERE {owner} = :id AND seq BETWEEN :first AND :last"
    params = {"id": owner_id, "first": first, "last": last}
    db.run(f"DELETE FROM ids WHERE id IN (SELECT id {from_first_to_last})", params)
    db.run(f"DELETE {from_first_to_last}", params)
    return True


def _remove_versions(db: Database, block_id: str, *, limit: int, chars: int) -> bool:
    """Remove a block's oldest versions, up to `limit` and about `chars` characters; return whether none is left."""
    last = -1
    while limit > 0 and chars > 0:
        rows = db.rows(
            "SELECT version, LENGTH(value) + LENGTH(diff) FROM block_versions WHERE block_id = :id"
            " AND version > :last ORDER BY version LIMIT :rows",
            {"id": block_id, "last": last, "rows": min(PAGE, limit)},
        )
        page = first_rows_within(rows, chars)
        if page:
            last, limit, chars = page[-1][0], limit - len(page), chars - sum(row[-1] for row in page)
        if len(page) < len(rows) or not page:
            break
    db.run("DELETE FROM block_versions WHERE block_id = :id AND version <= :last", {"id": block_id, "last": last})
    return not db.rows("SELECT 1 FROM block_versions WHERE block_id = :id LIMIT 1", {"id": block_id})


def hide_agent(db: Database, org_id: OrgId, agent_id: AgentId, number: int) -> None:
    """Hide an agent that is deleted, with what only it has: the first step of its deletion."""
    deleted = deleted_org(org_id)
    params = {"agent_id": agent_id, "number": number, "org_id": org_id, "deleted": deleted}
    db.run("UPDATE agents SET org_id = :deleted WHERE id = :agent_id", params)
    for root in feature_roots():
        conditions = [f"t.{root.owner} = :agent_id"] if root.owner else []
        if root.ends_with_agents:
            links = root.of_agents[0]
            conditions.append(
                f"t.id IN (SELECT x.{root.key} FROM {links} x WHERE x.agent_id = :agent_id) AND NOT EXISTS"
                f" (SELECT 1 FROM {links} x WHERE x.{root.key} = t.id AND x.agent_id <> :agent_id)"
            )
        for condition in conditions:
            for (id_,) in db.rows(f"SELECT t.id FROM {root.name} t WHERE {BY_ID.format('t.')} AND {condition}", params):
                delete_shared(db, org_id, root.name, OwnId(id_))
    move_unfinished(db, org_id, agent_id, deleted)
    # No other agent has the blocks of its conversations, unless one was attached to it.
    db.run(
        "UPDATE blocks SET org_id = :deleted WHERE id IN (SELECT block_id FROM conversation_blocks y"
        " WHERE y.agent_id = :agent_id AND NOT EXISTS (SELECT 1 FROM agent_blocks x WHERE x.block_id = y.block_id))",
        params,
    )
    for table in _SMALL_TABLES:
        db.run(f"DELETE FROM {table} WHERE agent_id = :agent_id", params)
    for feature_table in feature_tables():
        if feature_table.at_once:
            db.run(f"DELETE FROM {feature_table.name} WHERE agent_id = :agent_id AND {feature_table.at_once}", params)
    # The organisation is the first column of the key; without it every secret would be read.
    db.run("DELETE FROM secrets WHERE org_id = :org_id AND owner_id = :agent_id", params)
    db.run("DELETE FROM used WHERE org_id = :org_id AND owner_id = :agent_id", params)
    if db.run_counted("UPDATE vector_scopes SET org_id = :deleted WHERE number = :number", params):
        db.changed_scopes.add(number)


def _remove_rows_of_agent(db: Database, org_id: OrgId, *, limit: int, chars: int) -> bool:
    """Remove some rows of a deleted agent, its own row last. False: no deleted agent is left."""
    params: dict[str, Any] = {"deleted": deleted_org(org_id)}
    found = db.rows(
        f"SELECT id, number FROM agents WHERE org_id = :deleted ORDER BY number LIMIT 1{db.for_update}", params
    )
    if not found:
        return False
    agent_id, number = AgentId(found[0][0]), found[0][1]
    params = {"agent_id": agent_id}
    if _remove_texts(db, "messages", agent_id, number, limit=limit, chars=chars):
        return True
    for table, key in _LARGE_TABLES.items():
        rows = max(1, limit // 10) if table in _WIDE_TABLES else limit
        rows_sql = f"FROM {table} WHERE agent_id = :agent_id ORDER BY {key} LIMIT :rows"
        if table in _WITH_DIRECTORY_IDS:
            db.run(f"DELETE FROM ids WHERE id IN (SELECT id {rows_sql})", params | {"rows": rows})
        batches = f"SELECT DISTINCT batch_id FROM (SELECT batch_id {rows_sql}) t WHERE batch_id IS NOT NULL"
        # Locked, so that of two processes that remove the last runs of a batch one sees what the other has removed.
        locked = f"SELECT id FROM batches WHERE id IN ({batches}) ORDER BY id{db.for_update}"
        of_batches = db.rows(locked, params | {"rows": rows}) if table == "runs" else []
        deleted = db.run_counted(
            f"DELETE FROM {table} WHERE agent_id = :agent_id AND ({key}) IN (SELECT {key} {rows_sql})",
            params | {"rows": rows},
        )
        _remove_callbacks(db, org_id, [row[0] for row in of_batches])
        if deleted:
            return True
    if not Vectors(db, OrgId(deleted_org(org_id))).close(number, limit=limit):
        return True
    db.run("DELETE FROM agents WHERE id = :agent_id", params)
    return True


def _remove_callbacks(db: Database, org_id: OrgId, batch_ids: Sequence[str]) -> None:
    """Remove the callbacks of batches that have no run any more: no client sees such a batch."""
    for batch_id in batch_ids:
        params = {"id": batch_id, "org_id": org_id}
        if not db.rows("SELECT 1 FROM runs WHERE batch_id = :id LIMIT 1", params):
            sql = "UPDATE batches SET callback = NULL, callback_due_at = NULL WHERE id = :id AND org_id = :org_id"
            db.run(sql, params)


def first_rows_within(rows: Sequence[Row], chars: int) -> Sequence[Row]:
    """The first rows that together have at most `chars` characters, at least one row; a row's last column is its size.
    Indexing words takes long, and other writers wait for it, so a transaction takes no more."""
    size = 0
    for index, row in enumerate(rows):
        size += row[-1] or 0
        if index and size > chars:
            return rows[:index]
    return rows


_COPIED = {"blocks": "block_id", "archives": "archive_id"}
"""What an agent gets while it is being copied: table -> the column of its id in the table of links to agents."""


def unfinished_org(org_id: OrgId) -> OrgId:
    """The id of the organisation that holds what is still being copied in another one."""
    return OrgId(f"{org_id}/unfinished")


def move_unfinished(db: Database, org_id: OrgId, agent_id: AgentId, to: OrgId | str) -> None:
    """Move the blocks and archives of an agent that are not whole yet to another organisation."""
    params = {"agent_id": agent_id, "unfinished": unfinished_org(org_id), "to": to}
    for table, column in _COPIED.items():
        linked = f"SELECT {column} FROM agent_{table} WHERE agent_id = :agent_id"
        found = db.rows(f"SELECT id, number FROM {table} WHERE org_id = :unfinished AND id IN ({linked})", params)
        if not found:
            continue
        db.run_many(f"UPDATE {table} SET org_id = :to WHERE id = :id", [{"id": row[0], "to": to} for row in found])
        if table == "archives":
            db.changed_scopes.update(row[1] for row in found)
            scopes = [{"number": row[1], "to": to} for row in found]
            db.run_many("UPDATE vector_scopes SET org_id = :to WHERE number = :number", scopes)


class UnfinishedCopies(Table):
    """The blocks and archives of agents that are not whole yet."""

    def link(self, table: str, agent_id: AgentId, ids: Sequence[str]) -> None:
        """Give an agent blocks or archives that are not whole yet. Raises: NotFound: the agent."""
        own, column = own_agent(self._db, self._org_id, agent_id, lock=True), _COPIED[table]
        unfinished = unfinished_org(self._org_id)
        self._db.run_many(
            f"INSERT INTO agent_{table} (agent_id, {column}, position) SELECT :agent_id, id, :position FROM {table}"
            " WHERE id = :id AND org_id = :unfinished",
            [
                {"agent_id": own, "id": id_, "position": place, "unfinished": unfinished}
                for place, id_ in enumerate(ids, 1)
            ],
        )

    def show_ids(self, ids: Sequence[str]) -> None:
        """Let ids that were given to rows of an unfinished archive be those of the organisation."""
        rows = [{"id": id_, "org_id": self._org_id, "unfinished": unfinished_org(self._org_id)} for id_ in ids]
        self._db.run_many("UPDATE ids SET org_id = :org_id WHERE id = :id AND org_id = :unfinished", rows)

    def finish(self, agent_id: AgentId) -> None:
        """Let everybody see the blocks and archives of an agent. Raises: NotFound: the agent."""
        own = own_agent(self._db, self._org_id, agent_id, lock=True)
        move_unfinished(self._db, self._org_id, AgentId(own), self._org_id)
