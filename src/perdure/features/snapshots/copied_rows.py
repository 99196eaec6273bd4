"""`tx.of(AgentRows)`: the rows of an agent's log, copied to another agent under the same numbers.

Numbers stay, so whatever names a message, prefix or summary by its number goes on to name the same. Ids are derived
from those of the original and the new agent.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.core.ids import PREFIXES, AgentId, BlockId, derived_id, derived_run_id, id_in_other_run, run_of
from perdure.core.messages import is_embedded
from perdure.features.snapshots.values import BlockRef, SavePoint
from perdure.storage import migrations
from perdure.storage.database import full_text as word_index
from perdure.storage.database.row_format import insert_into, storable
from perdure.storage.tables.blocks import VERSION_CHECKSUMS
from perdure.storage.tables.deleted import unfinished_org
from perdure.storage.tables.message_rows import MESSAGE_CHECKSUMS, REVISION_CHECKSUMS
from perdure.storage.tables.messages import message_words_of, read_messages
from perdure.storage.tables.table import OWN_AGENT, Table, next_number, own_agent, register
from perdure.storage.tables.vectors import queue_texts

Row = dict[str, Any]
ROWS_AT_ONCE, VERSIONS_AT_ONCE = 200, 20
"""Rows of one transaction; versions of a block that are read at once: each may be as long as a block."""

_RUNS = "seq <= :last_run AND first_message_seq <= :upto AND (status NOT IN ('queued', 'running') OR seq = :last_run)"
TABLES: Mapping[str, tuple[str, str]] = {
    "conversations": ("seq", "TRUE"),
    "message_revisions": ("seq, revision", "seq <= :upto"),
    "messages": ("seq", "seq <= :upto"),
    "prefixes": ("seq", "seq <= :last_prefix"),
    "summary_nodes": (
        "conversation_seq, seq",
        "upto_message_seq <= :upto AND (conversation_seq <> :line OR seq < :next_node)",
    ),
    "runs": ("seq", _RUNS),
    "steps": (
        "run_seq, step_index",
        "(run_seq < :last_run OR run_seq = :last_run AND step_index <= :last_step) AND status <> 'pending'"
        f" AND run_seq IN (SELECT seq FROM runs WHERE agent_id = :agent_id AND {_RUNS})",
    ),
    "client_tools": ("digest", "TRUE"),
    "message_sources": ("conversation_seq, seq, place", "seq <= :upto"),
    "captures": ("conversation_seq", "upto_seq <= :upto"),
    "resets": ("conversation_seq, number", "upto_seq <= :upto"),
    "view_gaps": ("conversation_seq, from_seq, since_revision", "from_seq <= :upto"),
    "agent_revisions": ("revision", "revision < :revision"),
}
"""Table of the log -> its key beside the agent, and SQL for the rows up to a moment; in the order of copying."""
_IDS = ("id", "run_id", "step_id", "conversation_id")
"""The columns with ids that a copy has of its own."""
_OF_HERE = ("lease_owner", "lease_until", "waiting_input", "callback", "callback_due_at", "batch_id", "origin_id")
"""The columns of a run that are about its process and its caller."""
_KINDS = {prefix: kind for kind, prefix in PREFIXES.items()}
_SCHEMA = Path(migrations.__file__).with_name(migrations.SCHEMA_FILE)


@functools.cache
def columns_of(table: str) -> Mapping[str, Sequence[str]]:
    """The columns of a log table, each with its declaration, as the file says that makes new stores."""
    found = re.search(rf"CREATE TABLE {table} \((.*?)\)(?: {{clustered}})?;\n", _SCHEMA.read_text("utf-8"), re.DOTALL)
    assert found is not None, table
    lines = re.sub(r"DEFAULT '[^']*'|PRIMARY KEY \([^)]*\)|\n", " ", found[1]).split(",")
    return {words[0]: words[1:] for line in lines if (words := line.split())}


@dataclass(frozen=True, slots=True)
class NewIds:
    """The ids of copied rows. `blocks`: block -> its copy."""

    target: AgentId
    blocks: Mapping[str, str]

    def of(self, id_: str, run_id: str | None = None) -> str:
        """Return the id of the copy of a conversation, run, message or step; an id that contains its run's id (default:
        as read from it) gets the copied run's."""
        kind = _KINDS[id_.partition("-")[0]]
        if kind == "run":
            return derived_run_id(self.target, id_)
        of_run = run_of(id_)
        if kind != "conversation" and of_run is not None and of_run == (run_id or of_run):
            return id_in_other_run(id_, derived_run_id(self.target, of_run))
        return derived_id(kind, self.target, id_)

    def row(self, table: str, row: Row) -> Row:
        """The row of the copy. A run in it has ended."""
        new = {**row, "agent_id": self.target} | dict.fromkeys(row.keys() & {*_OF_HERE})
        for name in row.keys() & {*_IDS}:
            of = row["run_id"] or "none" if (table, name) == ("messages", "id") else None
            new[name] = row[name] and self.of(row[name], of)
        for name in row.keys() & {"seen"} | ({"parts"} if table == "prefixes" else set()):
            new[name] = self.renamed(row[name])
        if row.get("status") in ("queued", "running"):
            end = row["started_at"] or row["created_at"]
            new |= {"status": "completed", "stop_reason": "end_turn", "ended_at": end}
        return new

    def renamed(self, text: str) -> str:
        """Return a stored text with the ids of blocks replaced by those of their copies."""
        for old, new in self.blocks.items():
            text = text.replace(old, new)
        return text


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A copy of a block as it was at a version, with the earlier ones.

    Args:
        id: that of the copy.
        line: the number of the conversation that alone has it; None: the agent has it.
    """

    at: BlockRef
    id: BlockId
    value: str
    line: int | None


class AgentRows(Table):
    """Rows of agents' logs, as the columns store them."""

    def read(self, table: str, agent_id: AgentId, *, after: Sequence[Any] | None, upto: Mapping[str, int]) -> list[Row]:
        """The next rows of an agent up to a moment, in the order of their key, after the row with the key `after`."""
        key, within = TABLES[table]
        values = {f"after_{place}": value for place, value in enumerate(after or ())}
        behind = f" AND ({key}) > ({', '.join(f':{name}' for name in values)})" if values else ""
        columns = columns_of(table)
        rows = self._rows(
            f"SELECT {', '.join(columns)} FROM {table} WHERE agent_id = :agent_id AND {within}{behind}"
            f" AND {OWN_AGENT} ORDER BY {key} LIMIT :limit",
            agent_id=agent_id,
            limit=ROWS_AT_ONCE,
            **upto,
            **values,
        )
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def select(self, table: str, agent_id: AgentId, column: str, values: Collection[Any]) -> list[Row]:
        """The rows of an agent with one of these values in a column, in the order of the values and of their key."""
        columns, wanted = columns_of(table), sorted(values)
        sql = (
            f"SELECT {column}, {', '.join(columns)} FROM {table} WHERE {{keys}} AND agent_id = :agent_id"
            f" AND {OWN_AGENT} ORDER BY {TABLES[table][0]}"
        )
        found = self._rows_of_each(sql, column, wanted, agent_id=agent_id)
        return [dict(zip(columns, row, strict=True)) for value in wanted for row in found.get(value, ())]

    def add(self, table: str, rows: Sequence[Row], ids: NewIds, conversation_id: str | None = None) -> None:
        """Add copies of rows to an agent that has none with their keys. `conversation_id`: of the only conversation
        that the agent has; None: the ids are copied too. Raises: NotFound: the agent."""
        own = own_agent(self._db, self._org_id, ids.target)
        added = [ids.row(table, row) for row in rows]
        for row in added if table == "runs" else ():
            row |= {"org_id": self._org_id} | ({"conversation_id": conversation_id} if conversation_id else {})
        for checksums in (MESSAGE_CHECKSUMS, REVISION_CHECKSUMS):
            for row in added if checksums.table == table else ():
                row["checksum"] = checksums.of(row)
        self._db.run_many(insert_into(table, ", ".join(columns_of(table))), added)
        if table in ("conversations", "runs", "messages"):
            unlinked = [(row["id"], row["seq"]) for row in added if run_of(row["id"]) != row.get("run_id", "")]
            register(self._db, self._org_id, own, unlinked)
        if table == "messages" and added:
            self._index(ids.target, added[0]["seq"], added[-1]["seq"])

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

    def add_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Add copies of blocks without their versions; nobody sees them until they are finished."""
        columns = (
            "limit_chars, description, read_only, metadata, tags, is_template, hidden, created_at, updated_at,"
            " created_by, updated_by"
        )
        first = next_number(self._db, len(copies))
        self._db.run_many(
            f"INSERT INTO blocks (id, org_id, number, label, value, version, {columns})"
            f" SELECT :new_id, :unfinished, :number, :label, :value, :version, {columns} FROM blocks"
            " WHERE id = :id AND org_id = :org_id",
            [
                {
                    "id": copy.at.id,
                    "new_id": copy.id,
                    "number": number,
                    "label": copy.at.label,
                    "value": storable(copy.value),
                    "version": copy.at.version,
                    "org_id": self._org_id,
                    "unfinished": unfinished_org(self._org_id),
                }
                for number, copy in enumerate(copies, first)
            ],
        )

    def add_versions(self, copy: BlockCopy, after: int) -> Sequence[Row]:
        """Copy the versions after `after` of a block, by number; return some of them, none if the block is gone."""
        names, upto = ", ".join(VERSION_CHECKSUMS.columns), copy.at.version
        found = self._rows(
            f"SELECT {names} FROM block_versions WHERE block_id = :id AND version > :after AND version <= :version"
            " AND EXISTS (SELECT 1 FROM blocks WHERE id = :id AND org_id = :org_id) ORDER BY version LIMIT :limit",
            id=copy.at.id,
            after=after,
            version=upto,
            limit=VERSIONS_AT_ONCE,
        )
        rows = [dict(zip(VERSION_CHECKSUMS.columns, row, strict=True)) | {"block_id": copy.id} for row in found]
        for row in rows:
            row |= {"value": storable(copy.value)} if row["version"] == upto else {}
            row["checksum"] = VERSION_CHECKSUMS.of(row)
        self._db.run_many(insert_into("block_versions", f"{names}, checksum"), rows)
        return rows

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

    def finish(self, agent_id: AgentId, moment: SavePoint) -> None:
        """Set the counters of an agent that got another one's log up to a moment, and end what is unfinished in it."""
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
