"""`tx.of(AgentRows)`: the rows of an agent's log, copied to another agent under the same numbers.

Numbers stay, so whatever names a message, prefix or summary by its number goes on to name the same. Ids are derived
from those of the original and the new agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.ids import (
    AgentId,
    BlockId,
    ConversationId,
    RunId,
    derived_id,
    derived_run_id,
    id_in_other_run,
    run_of,
)
from perdure.core.messages import is_embedded
from perdure.features.snapshots.values import Moment
from perdure.storage.database import full_text as word_index
from perdure.storage.database.row_format import insert_into, storable
from perdure.storage.tables.blocks import VERSION_CHECKSUMS
from perdure.storage.tables.message_rows import MESSAGE_CHECKSUMS, REVISION_CHECKSUMS
from perdure.storage.tables.messages import message_words_of, read_messages
from perdure.storage.tables.table import OWN_AGENT, Table, next_number, own_agent, register
from perdure.storage.tables.vectors import queue_texts

Row = dict[str, Any]
ROWS_AT_ONCE = 200
"""Rows of one transaction."""


@dataclass(frozen=True, slots=True)
class LogTable:
    """A table of the log: its key beside the agent, its other columns, and SQL for the rows up to a moment."""

    name: str
    key: str
    columns: str
    upto: str = "TRUE"


TABLES = (
    LogTable(
        "conversations",
        "seq",
        "id, summary, settings, seen, prefix_seq, view_tokens, archived_at, created_at, updated_at, last_message_at,"
        " stubs, overcount, pending_run_seq, pending_from, first_seq, hidden, removed_at",
    ),
    LogTable(
        "message_revisions",
        "seq, revision",
        "parts, settings_revision, author_kind, author_id, created_at, checksum, name",
        "seq <= :upto",
    ),
    LogTable(
        "messages",
        "seq",
        "id, conversation_seq, role, kind, parts, run_seq, run_id, step_id, name, otid, sender_id, tokens, revision,"
        " removed, created_at, occurred_at, checksum",
        "seq <= :upto",
    ),
    LogTable(
        "prefixes",
        "seq",
        "conversation_seq, reason, system, tools, seen, from_message_seq, settings_revision, tokens, created_at,"
        " summary, nodes, pinned, client_tools, marker, hides_notice, parts, changes, opening",
        "seq <= :last_prefix",
    ),
    LogTable(
        "summary_nodes",
        "conversation_seq, seq",
        "level, from_message_seq, upto_message_seq, children, message_count, since, until, text, tokens, made_by,"
        " model, rejected, usage, created_at, method, revised_at",
        "upto_message_seq <= :upto",
    ),
    LogTable(
        "runs",
        "seq",
        "id, org_id, conversation_seq, conversation_id, status, stop_reason, failure, background, max_steps,"
        " first_message_seq, lease_number, cancel_requested, usage, step_count, created_at, started_at, ended_at,"
        " resumes, begins_at, turn_from, answer, input_waits, client_tools, hook_context, hidden, options",
        "seq <= :last_run AND first_message_seq <= :upto AND (status NOT IN ('queued', 'running') OR seq = :last_run)",
    ),
    LogTable(
        "steps",
        "run_seq, step_index",
        "id, status, model, recipe, lease_number, usage, stop_reason, failure, created_at, ended_at, feedback, tags",
        "(run_seq < :last_run OR run_seq = :last_run AND step_index <= :last_step) AND status <> 'pending'",
    ),
    LogTable("client_tools", "digest", "tools"),
    LogTable("message_sources", "conversation_seq, seq, place", "label, name, via", "seq <= :upto"),
    LogTable("captures", "conversation_seq", "upto_seq, captured_at", "upto_seq <= :upto"),
    LogTable(
        "resets",
        "conversation_seq, number",
        "upto_seq, message_count, author_kind, author_id, created_at",
        "upto_seq <= :upto",
    ),
    LogTable("view_gaps", "conversation_seq, from_seq, since_revision", "upto_seq, until_revision"),
    LogTable(
        "agent_revisions",
        "revision",
        "agent_type, model, follows_default, timezone, system, settings, tool_ids",
        "revision < :revision",
    ),
)
"""What a clone has of the log of its original, in the order in which it is copied."""
LOG_TABLES: Mapping[str, LogTable] = {table.name: table for table in TABLES}


@dataclass(frozen=True, slots=True)
class NewIds:
    """The ids of copied rows. `blocks`: block -> its copy."""

    target: AgentId
    blocks: Mapping[str, str]

    def conversation(self, id_: str) -> str:
        """The id of a copied conversation."""
        return derived_id("conversation", self.target, id_)

    def run(self, id_: str) -> RunId:
        """The id of a copied run."""
        return derived_run_id(self.target, id_)

    def of_run(self, kind: str, id_: str, run_id: str | None) -> str:
        """The id of a copied message or step; of one whose id leads to its run, an id that leads to the copied run."""
        if run_id is not None and run_of(id_) == run_id:
            return id_in_other_run(id_, self.run(run_id))
        return derived_id(kind, self.target, id_)

    def renamed(self, text: str) -> str:
        """A stored text that names blocks, with the names of their copies."""
        for old, new in self.blocks.items():
            text = text.replace(old, new)
        return text


class AgentRows(Table):
    """Rows of agents' logs, as the columns store them."""

    def read(
        self, table: LogTable, agent_id: AgentId, *, after: Sequence[Any] | None, upto: Mapping[str, int]
    ) -> list[Row]:
        """Some rows of an agent up to a moment, in the order of their key, behind the one with the key `after`."""
        key = table.key.split(", ")
        behind = ""
        if after is not None:
            behind = f" AND ({table.key}) > ({', '.join(f':after_{place}' for place in range(len(key)))})"
        values = {f"after_{place}": value for place, value in enumerate(after or ())}
        columns = f"{table.key}, {table.columns}"
        rows = self._rows(
            f"SELECT {columns} FROM {table.name} WHERE agent_id = :agent_id AND {table.upto}{behind} AND {OWN_AGENT}"
            f" ORDER BY {table.key} LIMIT :limit",
            agent_id=agent_id,
            limit=ROWS_AT_ONCE,
            **upto,
            **values,
        )
        return [dict(zip(columns.split(", "), row, strict=True)) for row in rows]

    def add(
        self,
        table: LogTable,
        agent_id: AgentId,
        rows: Sequence[Row],
        ids: NewIds,
        *,
        conversation_id: ConversationId | None = None,
    ) -> None:
        """Add rows of another agent to this one, which has none with their keys.

        Args:
            conversation_id: the agent's conversation that takes them; None: the copies of the other agent's.
        Raises: NotFound.
        """
        own = own_agent(self._db, self._org_id, agent_id)
        added = [{**row, "agent_id": own} for row in rows]
        if "org_id" in table.columns.split(", "):
            added = [{**row, "org_id": self._org_id} for row in added]
        if (change := _CHANGES.get(table.name)) is not None:
            for row in added:
                change(row, ids)
                if conversation_id is not None and "conversation_id" in row:
                    row["conversation_id"] = conversation_id
        for checksums in (MESSAGE_CHECKSUMS, REVISION_CHECKSUMS):
            if checksums.table == table.name:
                for row in added:
                    row["checksum"] = checksums.of(row)
        self._db.run_many(insert_into(table.name, f"agent_id, {table.key}, {table.columns}"), added)
        in_directory = {"conversations": added, "runs": added, "messages": added}.get(table.name, ())
        register(
            self._db,
            self._org_id,
            agent_id,
            [(row["id"], row["seq"]) for row in in_directory if run_of(row["id"]) != row.get("run_id", "")],
        )
        if table.name == "messages" and added:
            self._index(agent_id, added[0]["seq"], added[-1]["seq"])

    def _index(self, agent_id: AgentId, first: int, last: int) -> None:
        """Let searches find these new messages."""
        ((number, embedded),) = self._rows(
            "SELECT number, embedded FROM agents WHERE id = :id AND org_id = :org_id", id=agent_id
        )
        words = [*message_words_of(self._db, agent_id, first, last)]
        word_index.index_words(self._db, "message_words", number, words)
        self._run("UPDATE agents SET words_seq = :next WHERE id = :id", next=last + 1, id=agent_id)
        if embedded:
            found = read_messages(self._db, self._org_id, agent_id, range(first, last + 1)).values()
            queue_texts(self._db, number, [one.seq for one in found if is_embedded(one)])

    def add_block(self, block_id: BlockId, new_id: BlockId, *, version: int, value: str) -> None:
        """Add a copy of a block as it was at a version, under the same number of the version, with the earlier ones.

        Args:
            value: that of the copy.
        """
        columns = (
            "label, limit_chars, description, read_only, metadata, tags, is_template, hidden, created_at, updated_at,"
            " created_by, updated_by"
        )
        self._run(
            f"INSERT INTO blocks (id, org_id, number, value, version, {columns})"
            f" SELECT :new_id, org_id, :number, :value, :version, {columns} FROM blocks"
            " WHERE id = :id AND org_id = :org_id",
            id=block_id,
            new_id=new_id,
            number=next_number(self._db),
            value=storable(value),
            version=version,
        )
        names = f"{', '.join(VERSION_CHECKSUMS.columns)}"
        last = -1
        while True:
            found = self._rows(
                f"SELECT {names} FROM block_versions WHERE block_id = :id AND version > :last AND version <= :version"
                " AND EXISTS (SELECT 1 FROM blocks WHERE id = :id AND org_id = :org_id) ORDER BY version LIMIT :limit",
                id=block_id,
                last=last,
                version=version,
                limit=ROWS_AT_ONCE,
            )
            rows = [dict(zip(VERSION_CHECKSUMS.columns, row, strict=True)) | {"block_id": new_id} for row in found]
            if not rows:
                return
            last = rows[-1]["version"]
            if last == version:
                rows[-1]["value"] = storable(value)
            added = [row | {"checksum": VERSION_CHECKSUMS.of(row)} for row in rows]
            self._db.run_many(insert_into("block_versions", f"{names}, checksum"), added)

    def put_version(self, block_id: BlockId, version: int) -> None:
        """Give a new block this number as that of its only version."""
        columns = ", ".join(VERSION_CHECKSUMS.columns)
        own = "EXISTS (SELECT 1 FROM blocks WHERE id = :id AND org_id = :org_id)"
        sql = f"SELECT {columns} FROM block_versions WHERE block_id = :id AND {own}"
        for values in self._rows(sql, id=block_id):
            row = dict(zip(VERSION_CHECKSUMS.columns, values, strict=True)) | {"version": version}
            self._run(
                "UPDATE block_versions SET version = :version, checksum = :checksum WHERE block_id = :id",
                id=block_id,
                version=version,
                checksum=VERSION_CHECKSUMS.of(row),
            )
            self._run("UPDATE blocks SET version = :version WHERE id = :id", id=block_id, version=version)

    def finish(self, agent_id: AgentId, moment: Moment) -> None:
        """Set the counters of an agent that has the log of another one up to a moment, and end what is not in it."""
        own, upto = own_agent(self._db, self._org_id, agent_id), moment.upto_seq
        self._run(
            "UPDATE agents SET message_seq = :upto + 1, words_seq = :upto + 1,"
            " message_count = (SELECT COUNT(*) FROM messages m WHERE m.agent_id = :id AND m.kind = 'message'"
            " AND m.removed = 0),"
            + "".join(
                f" {column} = (SELECT COALESCE(MAX(t.seq) + 1, 0) FROM {table} t WHERE t.agent_id = :id),"
                for column, table in (
                    ("conversation_seq", "conversations"),
                    ("run_seq", "runs"),
                    ("prefix_seq", "prefixes"),
                )
            )
            + " settings_revision = :revision WHERE id = :id",
            id=own,
            upto=upto,
            revision=moment.settings_revision,
        )
        of_agent = {"agent_id": own, "upto": upto}
        self._run(
            "UPDATE conversations SET pending_run_seq = NULL, pending_from = NULL WHERE agent_id = :agent_id"
            " AND (pending_from > :upto OR NOT EXISTS (SELECT 1 FROM runs r WHERE r.agent_id = :agent_id"
            " AND r.seq = conversations.pending_run_seq))",
            **of_agent,
        )
        self._run(
            "UPDATE conversations SET prefix_seq = NULL, seen = '{}', stubs = '{}' WHERE agent_id = :agent_id"
            " AND NOT EXISTS (SELECT 1 FROM prefixes p WHERE p.agent_id = :agent_id"
            " AND p.seq = conversations.prefix_seq)",
            **of_agent,
        )
        self._run("DELETE FROM view_gaps WHERE agent_id = :agent_id AND from_seq > :upto", **of_agent)


def _change_conversation(row: Row, ids: NewIds) -> None:
    """Make a row of a conversation that of its copy."""
    row |= {"id": ids.conversation(row["id"]), "seen": ids.renamed(row["seen"])}


def _change_message(row: Row, ids: NewIds) -> None:
    """Make a row of a message that of its copy."""
    run_id, step_id = row["run_id"], row["step_id"]
    row["id"] = ids.of_run("message", row["id"], run_id)
    if run_id is not None:
        row["run_id"] = ids.run(run_id)
    if step_id is not None:
        row["step_id"] = ids.of_run("step", step_id, run_of(step_id))


def _change_prefix(row: Row, ids: NewIds) -> None:
    """Make a row of a prefix that of its copy."""
    row |= {"seen": ids.renamed(row["seen"]), "parts": ids.renamed(row["parts"])}


def _change_run(row: Row, ids: NewIds) -> None:
    """Make a row of a run that of its copy, which has ended."""
    row |= {"id": ids.run(row["id"]), "conversation_id": ids.conversation(row["conversation_id"])}
    if row["status"] in ("queued", "running"):
        row |= {"status": "completed", "stop_reason": "end_turn", "ended_at": row["started_at"] or row["created_at"]}


def _change_step(row: Row, ids: NewIds) -> None:
    """Make a row of a step that of its copy."""
    row["id"] = ids.of_run("step", row["id"], run_of(row["id"]))


_CHANGES: Mapping[str, Callable[[Row, NewIds], None]] = {
    "conversations": _change_conversation,
    "messages": _change_message,
    "prefixes": _change_prefix,
    "runs": _change_run,
    "steps": _change_step,
}
"""Table -> how a row of the original becomes one of the copy."""
