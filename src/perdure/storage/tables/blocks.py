"""`tx.blocks`: the blocks of one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.blocks import Author, Block, BlockFilter, BlockVersion, check_author, check_limit
from perdure.core.conversations import ConversationKey
from perdure.core.errors import AlreadyExists, ToolError, VersionConflict
from perdure.core.ids import AgentId, BlockId, OrgId
from perdure.core.sources import MemoryWrite, Source, WriteSource
from perdure.core.text.credentials import without_credentials, without_new_credentials
from perdure.core.text.forms import name_form
from perdure.core.text.line_diff import unified_diff
from perdure.storage.database import row_format
from perdure.storage.database.base import Database
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables import table
from perdure.storage.tables.deleted import delete_shared
from perdure.storage.tables.identities import add_identity_conditions
from perdure.storage.tables.sources import add_writes

_BLOCK = row_format.RowFormat(Block)
HOLDERS_SHOWN = 5  # agents that an error names


def _build_version(**columns: Any) -> BlockVersion:
    kind, id_ = columns.pop("author_kind"), columns.pop("author_id")
    origin = {name: columns.pop(name) for name in ("agent_id", "run_id", "message_id")}
    return BlockVersion(**columns, author=Author(kind=kind, id=id_, **origin))


_VERSION: row_format.RowFormat[BlockVersion] = row_format.RowFormat(
    BlockVersion,
    {row_format.TEXT: "author_id"},
    columns="block_id, version, label, value, diff, author_kind, author_id, agent_id, run_id, message_id, created_at",
    attributes={
        "author_kind": "author.kind",
        "author_id": "author.id",
        "agent_id": "author.agent_id",
        "run_id": "author.run_id",
        "message_id": "author.message_id",
    },
    build=_build_version,
)

_INSERT_VERSION = row_format.insert_into("block_versions", f"{_VERSION.columns}, checksum")
# The row of another version stays as it is: somebody else wrote first.
_UPDATE = "UPDATE blocks SET {}, version = version + 1 WHERE id = :id AND version = :expected".format(
    row_format.assignments(
        "label, value, limit_chars, description, read_only, metadata, tags, is_template, hidden, updated_at, updated_by"
    )
)
VERSION_CHECKSUMS = row_format.ChecksumColumns(
    "block_versions",
    ("block_id", "version"),
    (
        *("block_id", "version", "label", "value", "diff", "author_kind", "author_id", "agent_id", "run_id"),
        *("message_id", "created_at"),
    ),
)

_OWN_X = table.OWN_AGENT_OF.format("x")
_PLACES = (
    f"SELECT agent_id, block_id, position, CAST(NULL AS TEXT) FROM agent_blocks x WHERE {{keys}} AND {_OWN_X}"
    " UNION ALL SELECT agent_id, block_id, position, label FROM conversation_blocks x"
    f" WHERE {{keys}} AND conversation_seq = :conversation_seq AND {_OWN_X}"
)


def shown_blocks(
    db: Database,
    org_id: OrgId,
    columns: str,
    agent_ids: Sequence[AgentId],
    conversation_seq: int,
    label: str | None = None,
) -> Mapping[AgentId, list[row_format.Row]]:
    """Return agent -> rows of the blocks that a conversation of it shows, in the order of attachment: its own, or the
    conversation's in place of them. `columns`: SQL of the selected columns of `blocks b`. `label`: only the block with
    this label, in stored form."""
    # Blocks and agents are two families of rows (`storage.distribution`), so this takes two statements.
    places = table.rows_of_each(db, _PLACES, "agent_id", agent_ids, org_id=org_id, conversation_seq=conversation_seq)
    all_places = [place for agent_places in places.values() for place in agent_places]
    found: dict[str, row_format.Row] = {}
    for block_ids in table.parts(list({place[0]: None for place in all_places if place[0] is not None})):
        where = Conditions(table.BY_ID.format("b."), org_id=org_id)
        where.among("b.id", block_ids)
        where.add("b.label = ?", None if any(place[2] is not None for place in all_places) else label)
        sql = f"SELECT b.id, b.label, b.number, {columns} FROM blocks b WHERE {where}"
        found |= {row[0]: row for row in db.rows(sql, where.params)}
    return {agent_id: _in_order(agent_places, found, label) for agent_id, agent_places in places.items()}


def _in_order(
    places: Sequence[Sequence[Any]], found: Mapping[str, row_format.Row], label: str | None
) -> list[row_format.Row]:
    """Return the rows of `found` (block id -> (id, label, number, ...)) that a conversation shows, in order, without
    these three columns; with `label` only that one. `places`: (block id, position, label of the agent's block that it
    replaces; None: it is the agent's)."""
    own = {place[0] for place in places if place[2] is not None}
    hidden = {place[2] for place in places if place[2] is not None} | {found[id_][1] for id_ in own if id_ in found}
    position = {place[0]: place[1] for place in places if place[2] is None}
    position |= {place[0]: place[1] for place in places if place[2] is not None}
    rows = [found[id_] for id_ in position if id_ in found]
    shown = [row for row in rows if (row[0] in own or row[1] not in hidden) and label in (None, row[1])]
    return [row[3:] for row in sorted(shown, key=lambda row: (position[row[0]], row[2]))]


def _as_written(block: Block, before: str, author: Author) -> Block:
    """A block as its author may write it, whose value was `before`: where an agent writes a credential, a note stands
    in its place. Raises: ToolError: the label is one; BlockLimitExceeded: the note makes the block too long."""
    if author.kind != "agent":
        return block
    if without_credentials(block.label) != block.label:
        raise ToolError("the label of the block looks like a credential: choose a name that says what it is about")
    value = without_new_credentials(before, block.value)
    description = block.description and without_credentials(block.description)
    return check_limit(replace(block, value=value, description=description))


class Blocks(table.PagedTable[BlockFilter, Block]):
    _kind, _source, _format = "block", "blocks b", _BLOCK

    def add(self, block: Block, *, author: Author) -> Block:
        """Add a block at version 0, with its version row; return it. Raises: AlreadyExists."""
        if self._rows("SELECT 1 FROM blocks WHERE id = :id", id=block.id):
            raise AlreadyExists("block", block.id)
        block = replace(_as_written(block, "", author), version=0, org_id=self._org_id)
        sql = row_format.insert_into("blocks", f"number, {_BLOCK.columns}")
        self._run(sql, number=table.next_number(self._db), **_BLOCK.params(block))
        self._add_version(block, diff=unified_diff("", block.value), author=author, at=block.created_at)
        return block

    def _where(self, where: BlockFilter) -> Conditions:
        """The conditions of a filter, on the table `blocks b`."""
        conditions = Conditions("b.org_id = :org_id")
        conditions.equal("b.label", where.label)
        conditions.contain("b.label", where.label_text)
        conditions.contain("b.value", where.value_text)
        conditions.contain("b.description", where.description_text)
        conditions.have_tags("b.tags", where.tags, every=where.all_tags)
        if where.templates_only:
            conditions.add("b.is_template = 1")
        conditions.equal("b.hidden", where.hidden)
        conditions.hold("b.metadata", where.holding)
        add_identity_conditions(conditions, "block", where)
        agents = "(SELECT COUNT(*) FROM agent_blocks x WHERE x.block_id = b.id)"
        conditions.add(f"{agents} >= ?", where.agents_min)
        conditions.add(f"{agents} <= ?", where.agents_max)
        conditions.among(agents, where.agents_in or None)
        owner = where.agent_id and table.own_agent(self._db, self._org_id, where.agent_id)
        conditions.add("b.id IN (SELECT block_id FROM agent_blocks WHERE agent_id = ?)", owner)
        return conditions

    def put(self, block: Block, *, expected: int, author: Author, at: datetime) -> Block:
        """Update a block whose version is `expected` to the next one; return it. Raises: VersionConflict, NotFound;
        BlockProtected: only a person changes it."""
        # Reading first costs one look-up and makes the diff exact: it is against what this very update replaces.
        before = self.get(block.id)
        if before.metadata:  # which may protect it
            check_author(before, author)
        if block.label != before.label:
            self._check_labels(block)
        block = _as_written(block, before.value, author)
        after = replace(block, version=expected + 1, updated_at=at, updated_by=author.id)
        if not self._run_counted(
            _UPDATE, **_BLOCK.params(after) | {"id": table.OwnId(before.id), "expected": expected}
        ):
            raise VersionConflict(f"block {before.label!r}", expected=expected, found=self.get(block.id).version)
        self._add_version(after, diff=unified_diff(before.value, after.value), author=author, at=at)
        return after

    def delete(self, block_id: BlockId) -> None:
        """Delete a block with its versions, and take it from all agents. Raises: NotFound."""
        delete_shared(self._db, self._org_id, "blocks", table.OwnId(self.get(block_id).id))

    def list_tags(self) -> Sequence[str]:
        """All tags that blocks have, each once, in the order of code points."""
        rows = self._rows("SELECT DISTINCT tags FROM blocks WHERE org_id = :org_id AND tags <> '[]'")
        return sorted({tag for row in rows for tag in row_format.load(row[0])})

    def attach(self, agent_id: AgentId, *block_ids: BlockId) -> None:
        """Give an agent blocks, also repeatedly. Raises: NotFound, TooMany; AlreadyExists: another has the label."""
        # The agent is locked, so that of two blocks of one label that are attached at once the second sees the first.
        own = table.own_agent(self._db, self._org_id, agent_id, lock=True)
        # Its blocks are read once, so that the time of many attachments grows with their number only.
        attached = self._rows(
            "SELECT b.label, b.id, x.position FROM agent_blocks x JOIN blocks b ON b.id = x.block_id"
            " WHERE x.agent_id = :agent_id AND b.org_id = :org_id",
            agent_id=own,
        )
        by_label = {row_format.restore(row[0]): row[1] for row in attached}
        last = max((row[2] for row in attached), default=0)
        added: list[table.OwnId] = []
        for block in self._get_each(block_ids, lock=True):
            if by_label.setdefault(block.label, block.id) != block.id:
                name = row_format.restore(self._rows("SELECT name FROM agents WHERE id = :id", id=own)[0][0])
                helps = f"agent {name!r} ({agent_id}) has another block of this label; detach it, or rename one of them"
                raise AlreadyExists("block with label", block.label, helps=helps)
            if len(by_label) > len(attached) + len(added):
                self._limits.check("blocks_per_agent", len(by_label))
                added.append(table.OwnId(block.id))
        self._db.run_many(
            row_format.insert_into("agent_blocks", "agent_id, block_id, position"),
            [{"agent_id": own, "block_id": one, "position": last + place} for place, one in enumerate(added, 1)],
        )

    def detach(self, agent_id: AgentId, block_id: BlockId) -> None:
        """Take a block from an agent. Raises: NotFound: it is not attached."""
        own = f"{table.OWN_AGENT} AND EXISTS (SELECT 1 FROM blocks b WHERE b.id = :block_id AND b.org_id = :org_id)"
        sql = f"DELETE FROM agent_blocks WHERE agent_id = :agent_id AND block_id = :block_id AND {own}"
        self._change_one("block of this agent", block_id, sql, agent_id=agent_id, block_id=block_id)

    def isolate(self, agent_id: AgentId, conversation_seq: int, label: str, block_id: BlockId | None) -> None:
        """Give the conversation a block of its own that replaces the agent's block with this label; None: it shows
        none. Its former one is deleted, unless an agent has it. Raises: NotFound."""
        own = {
            "agent_id": table.own_agent(self._db, self._org_id, agent_id, lock=True),
            "label": row_format.stored_key(label),
        }
        before = self._only_isolated("label = :label", conversation_seq=conversation_seq, **own)
        self._run(
            row_format.insert_into("conversation_blocks", "agent_id, conversation_seq, label, block_id, position")
            + " ON CONFLICT (agent_id, conversation_seq, label) DO UPDATE SET block_id = excluded.block_id",
            conversation_seq=conversation_seq,
            block_id=None if block_id is None else self.get(block_id).id,
            position=self._rows(
                "SELECT COALESCE(MAX(CASE WHEN b.label = :label THEN x.position END), MAX(x.position) + 1, 1)"
                " FROM agent_blocks x JOIN blocks b ON b.id = x.block_id WHERE x.agent_id = :agent_id"
                " AND b.org_id = :org_id",
                **own,
            )[0][0],
            **own,
        )
        for replaced in before:
            if replaced != block_id:
                self.delete(replaced)

    def list_agents(self, block_ids: Sequence[str]) -> Mapping[str, Sequence[AgentId]]:
        """Return block -> the agents that have it, maybe in one conversation only, ordered by id."""
        own = "EXISTS (SELECT 1 FROM blocks b WHERE b.id = x.block_id AND b.org_id = :org_id)"
        having = f"SELECT block_id, agent_id FROM {{}} x WHERE {{{{keys}}}} AND {own} AND {_OWN_X}"
        sql = f"{having.format('agent_blocks')} UNION {having.format('conversation_blocks')} ORDER BY 2"
        return {id_: [row[0] for row in rows] for id_, rows in self._rows_of_each(sql, "block_id", block_ids).items()}

    def list_isolated(self, agent_id: AgentId, conversation_seq: int) -> Mapping[str, BlockId | None]:
        """Label of a block of the agent -> the block that the conversation has in its place (None: it shows none), in
        the order of the agent's blocks."""
        return self.list_isolated_of([(agent_id, conversation_seq)])[agent_id, conversation_seq]

    def list_isolated_of(
        self, keys: Sequence[ConversationKey]
    ) -> Mapping[ConversationKey, Mapping[str, BlockId | None]]:
        """Conversation -> what `list_isolated` returns for it."""
        sql = (
            "SELECT agent_id, conversation_seq, label, block_id FROM conversation_blocks x"
            f" WHERE {{keys}} AND {_OWN_X} ORDER BY position, label"
        )
        found = self._rows_of_each(sql, "agent_id = ? AND conversation_seq = ?", keys)
        return {key: {row_format.restore(row[0]): row[1] for row in rows} for key, rows in found.items()}

    def delete_isolated(self, agent_id: AgentId, conversation_seq: int) -> None:
        """Delete the blocks that only the conversation has; a block that an agent has too is kept."""
        own = {"agent_id": table.own_agent(self._db, self._org_id, agent_id), "conversation_seq": conversation_seq}
        blocks = self._only_isolated(**own)
        self._run(
            "DELETE FROM conversation_blocks WHERE agent_id = :agent_id AND conversation_seq = :conversation_seq", **own
        )
        for block_id in blocks:
            self.delete(block_id)

    def _only_isolated(self, *conditions: str, **params: Any) -> Sequence[BlockId]:
        """The ids of blocks that only one conversation has, and no agent. `params`: its `agent_id` and
        `conversation_seq`, and the values in the further conditions."""
        where = Conditions(
            "agent_id = :agent_id AND conversation_seq = :conversation_seq AND block_id IS NOT NULL",
            "NOT EXISTS (SELECT 1 FROM agent_blocks x WHERE x.block_id = conversation_blocks.block_id)",
            *conditions,
        )
        return [row[0] for row in self._rows(f"SELECT block_id FROM conversation_blocks WHERE {where}", **params)]

    def list_by_agent(self, agent_id: AgentId, conversation_seq: int = 0) -> Sequence[Block]:
        """The blocks that the agent has in this conversation, in the order they were attached."""
        return [_BLOCK.read(row) for row in self._shown(_BLOCK.columns_of("b"), agent_id, conversation_seq)]

    def list_by_ids(self, block_ids: Sequence[str]) -> Mapping[str, Block]:
        """Id -> block, in the order of the ids; an id that no block has is left out."""
        return self._list_by_ids(block_ids)

    def list_by_agents(self, agent_ids: Sequence[AgentId]) -> Mapping[AgentId, Sequence[Block]]:
        """Agent -> the blocks that it has in its first conversation, in the order they were attached."""
        return _BLOCK.read_each(shown_blocks(self._db, self._org_id, _BLOCK.columns_of("b"), agent_ids, 0))

    def list_versions(self, agent_id: AgentId, conversation_seq: int = 0) -> dict[str, int]:
        """Id -> version of the blocks that `list_by_agent` returns, in their order."""
        return {row[0]: row[1] for row in self._shown("b.id, b.version", agent_id, conversation_seq)}

    def size(self, agent_id: AgentId, conversation_seq: int = 0) -> int:
        """How many characters the values of the blocks that `list_by_agent` returns have together."""
        return sum(int(row[0]) for row in self._shown("LENGTH(b.value)", agent_id, conversation_seq))

    def find(self, agent_id: AgentId, label: str, conversation_seq: int = 0) -> Block | None:
        """The block with this label that the agent has in this conversation; None: it has none."""
        rows = self._shown("b.id", agent_id, conversation_seq, row_format.stored_key(label))
        block = self.get(rows[0][0]) if rows else None  # which locks it
        return block if block is not None and block.label == name_form(label) else None

    def versions(self, block_id: BlockId, *, limit: int = 100, before: int | None = None) -> Sequence[BlockVersion]:
        """The versions of a block with numbers below `before`, newest first. Raises: NotFound: no such block."""
        where = Conditions("block_id = :id")
        where.add("version < ?", before)
        sql = f"SELECT {_VERSION.columns} FROM block_versions WHERE {where} ORDER BY version DESC LIMIT :limit"
        return self._all(_VERSION, sql, id=self.get(block_id).id, limit=limit, **where.params)

    def version(self, block_id: BlockId, version: int) -> BlockVersion:
        """One version of a block, by its number. Raises: NotFound."""
        sql = f"SELECT {_VERSION.columns} FROM block_versions WHERE block_id = :id AND version = :version"
        rows = self._rows(sql, id=self.get(block_id).id, version=version)
        return _VERSION.read(table.first(rows, "block version", str(version)))

    def _shown(
        self, columns: str, agent_id: AgentId, conversation_seq: int, label: str | None = None
    ) -> Sequence[row_format.Row]:
        """The rows of `shown_blocks` for one agent."""
        return shown_blocks(self._db, self._org_id, columns, [agent_id], conversation_seq, label)[agent_id]

    def _check_labels(self, block: Block) -> None:
        """Check that no agent with this block has another block of its new label. Raises: AlreadyExists."""
        if self._db.for_update:  # as in `attach`
            self._rows(
                "SELECT a.id FROM agent_blocks x JOIN agents a ON a.id = x.agent_id WHERE x.block_id = :id"
                f" ORDER BY a.number{self._db.for_update}",
                id=block.id,
            )
        label = row_format.storable(block.label)
        holders = [
            *self._rows(
                "SELECT a.name, a.id FROM agent_blocks x JOIN agent_blocks y ON y.agent_id = x.agent_id"
                " JOIN blocks b ON b.id = y.block_id JOIN agents a ON a.id = x.agent_id"
                " WHERE x.block_id = :id AND b.id <> :id AND b.label = :label AND b.org_id = :org_id"
                f" ORDER BY a.number LIMIT {HOLDERS_SHOWN}",
                id=block.id,
                label=label,
            )
        ]
        isolated = (
            "SELECT a.name, a.id, x.conversation_seq FROM conversation_blocks x JOIN agents a ON a.id = x.agent_id"
            " WHERE x.block_id = :id"
        )
        holders += [row[:2] for row in self._rows(isolated, id=block.id) if self._shown("b.id", row[1], row[2], label)]
        if holders:
            names = ", ".join(dict.fromkeys(f"{row_format.restore(name)!r} ({id_})" for name, id_ in holders))
            helps = "has this block and another one with that label; detach or rename that one, or choose another label"
            raise AlreadyExists("block with label", block.label, helps=f"{names} {helps}")

    def _add_version(self, block: Block, *, diff: str, author: Author, at: datetime) -> None:
        """Store a block as a version of itself, and the sources that its author wrote it from."""
        version = BlockVersion(
            block_id=block.id,
            version=block.version,
            label=block.label,
            value=block.value,
            diff=diff,
            author=author,
            created_at=at,
        )
        row = _VERSION.params(version)
        self._run(_INSERT_VERSION, checksum=VERSION_CHECKSUMS.of(row), **row)
        if sources := author.sources or _own_source(author):
            write = MemoryWrite(
                kind="block",
                owner_id=block.id,
                ref=str(block.version),
                agent_id=author.agent_id,
                run_id=author.run_id,
                message_id=author.message_id,
                sources=sources,
                created_at=at,
            )
            add_writes(self._db, [write])


def _own_source(author: Author) -> tuple[WriteSource, ...]:
    """The agent that writes of its own accord, as a source."""
    if author.agent_id is None or author.run_id is None:
        return ()
    messages = () if author.message_id is None else (author.message_id,)
    return (WriteSource(Source("agent", author.agent_id), messages),)
