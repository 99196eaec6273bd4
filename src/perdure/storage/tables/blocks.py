"""`tx.blocks`: the blocks of one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.blocks import Author, Block, BlockFilter, BlockVersion
from perdure.core.errors import AlreadyExists, NotFound, VersionConflict
from perdure.core.ids import AgentId, BlockId, OrgId
from perdure.core.limits import DEFAULT_LIMITS, Limits
from perdure.core.text.line_diff import diff_of
from perdure.core.text.words import restore, storable
from perdure.storage.database.base import (
    OWN_AGENT,
    Database,
    OwnId,
    Row,
    dump,
    from_iso,
    iso,
    load,
    next_number,
    own_agent,
)
from perdure.storage.tables.agents import contains, has_tags, pattern_of
from perdure.storage.upkeep.checksums import VERSIONS
from perdure.storage.upkeep.deleted import delete_shared

_COLUMNS = (
    "id, org_id, label, value, limit_chars, description, read_only, metadata, tags, is_template, hidden, version,"
    " created_at, updated_at, created_by, updated_by"
)
_COLUMNS_OF_B = ", ".join(f"b.{column}" for column in _COLUMNS.split(", "))
_VERSION_COLUMNS = (
    "block_id, version, label, value, diff, author_kind, author_id, agent_id, run_id, message_id, created_at"
)


class Blocks:
    def __init__(self, db: Database, org_id: OrgId, limits: Limits = DEFAULT_LIMITS) -> None:
        self._db, self._org_id, self._limits = db, org_id, limits

    def add(self, block: Block, *, author: Author) -> Block:
        """The block at version 0, with its version row. Raises: AlreadyExists."""
        if self._db.rows("SELECT 1 FROM blocks WHERE id = :id", {"id": block.id}):
            raise AlreadyExists("block", block.id)
        block = replace(block, version=0, org_id=self._org_id)
        self._db.run(
            f"INSERT INTO blocks (number, {_COLUMNS}) VALUES (:number, :id, :org_id, :label, :value, :limit_chars,"
            " :description, :read_only, :metadata, :tags, :is_template, :hidden, :version, :created_at, :updated_at,"
            " :created_by, :updated_by)",
            _params(block) | {"number": next_number(self._db)},
        )
        self._add_version(block, diff=diff_of("", block.value), author=author, at=block.created_at)
        return block

    # A transaction that may write locks the block it reads by itself, so that an edit of what was read is one step.
    def get(self, block_id: BlockId) -> Block:
        """Raises: NotFound."""
        rows = self._db.rows(
            f"SELECT {_COLUMNS} FROM blocks WHERE id = :id AND org_id = :org_id{self._db.for_update}",
            {"id": storable(block_id), "org_id": self._org_id},
        )
        if not rows:
            raise NotFound("block", block_id)
        return _block(rows[0])

    _PUT = """
        UPDATE blocks SET label = :label, value = :value, limit_chars = :limit_chars, description = :description,
            read_only = :read_only, metadata = :metadata, tags = :tags, is_template = :is_template, hidden = :hidden,
            version = version + 1, updated_at = :updated_at, updated_by = :updated_by
        WHERE id = :id AND version = :expected
    """  # no row changed: somebody else wrote first

    def put(self, block: Block, *, expected: int, author: Author, at: datetime) -> Block:
        """The block at version `expected + 1`, with its version row. Raises: VersionConflict, NotFound."""
        # Reading first costs one look-up and makes the diff exact: it is against what this very update replaces.
        before = self.get(block.id)
        if block.label != before.label:
            self._check_labels(block)
        after = replace(block, version=expected + 1, updated_at=at, updated_by=author.id)
        if not self._update(OwnId(before.id), after, expected=expected):
            raise VersionConflict(f"block {before.label!r}", expected=expected, found=self.get(block.id).version)
        self._add_version(after, diff=diff_of(before.value, after.value), author=author, at=at)
        return after

    def _update(self, own: OwnId, block: Block, *, expected: int) -> bool:
        return bool(self._db.run(self._PUT, _params(block) | {"id": own, "expected": expected}))

    def delete(self, block_id: BlockId) -> None:
        """Raises: NotFound."""
        delete_shared(self._db, self._org_id, "blocks", OwnId(self.get(block_id).id))

    def list(self, *, label: str | None = None, limit: int = 50, after: BlockId | None = None) -> Sequence[Block]:
        """Oldest first."""
        where, params = "org_id = :org_id", {"org_id": self._org_id, "limit": limit}
        if label is not None:
            where, params = where + " AND label = :label", params | {"label": storable(label)}
        if after is not None:
            where += " AND number > (SELECT number FROM blocks WHERE id = :after AND org_id = :org_id)"
            params = params | {"after": after}
        rows = self._db.rows(f"SELECT {_COLUMNS} FROM blocks WHERE {where} ORDER BY number LIMIT :limit", params)
        return [_block(row) for row in rows]

    def page(
        self,
        *,
        where: BlockFilter,
        ascending: bool = True,
        limit: int = 50,
        after: BlockId | None = None,
        before: BlockId | None = None,
    ) -> Sequence[Block]:
        """A page in order of creation: the first ones behind `after`, or with `before` alone the last ones in front of
        it. Raises: NotFound: there is no such block to begin at."""
        conditions, params = _conditions(where)
        # With `before` alone the page is read backwards.
        reverse = before is not None and after is None
        for cursor, name, behind in ((after, "after", True), (before, "before", False)):
            if cursor is not None:
                place = self._db.rows(
                    "SELECT number FROM blocks WHERE id = :id AND org_id = :org_id",
                    {"id": storable(cursor), "org_id": self._org_id},
                )
                if not place:
                    raise NotFound("block", cursor, hint=f"`{name}` must be one of the list")
                conditions += f" AND b.number {'>' if ascending is behind else '<'} :{name}_number"
                params[f"{name}_number"] = place[0][0]
        way = "ASC" if ascending is not reverse else "DESC"
        rows = self._db.rows(
            f"SELECT {_COLUMNS_OF_B} FROM blocks b WHERE b.org_id = :org_id{conditions}"
            f" ORDER BY b.number {way} LIMIT :limit",
            params | {"org_id": self._org_id, "limit": limit},
        )
        blocks = [_block(row) for row in rows]
        return blocks[::-1] if reverse else blocks

    def count(self, where: BlockFilter) -> int:
        conditions, params = _conditions(where)
        rows = self._db.rows(
            f"SELECT COUNT(*) FROM blocks b WHERE b.org_id = :org_id{conditions}", params | {"org_id": self._org_id}
        )
        return int(rows[0][0])

    def attach(self, agent_id: AgentId, *block_ids: BlockId) -> None:
        """Attaching twice is no error. Raises: NotFound, TooMany; AlreadyExists: the agent has another block of that
        label."""
        # The agent is locked, so that of two blocks of one label that are attached at once the second sees the first.
        own = own_agent(self._db, self._org_id, agent_id, lock=True)
        # What it has is read once, so that many blocks at once take no longer each than one.
        had = self._db.rows(
            "SELECT b.label, b.id, x.position FROM agent_blocks x JOIN blocks b ON b.id = x.block_id"
            " WHERE x.agent_id = :agent_id AND b.org_id = :org_id",
            {"agent_id": own, "org_id": self._org_id},
        )
        known = {restore(row[0]): row[1] for row in had}
        last = max((row[2] for row in had), default=0)
        added: list[OwnId] = []
        for block_id in block_ids:
            block = self.get(block_id)
            if known.setdefault(block.label, block_id) != block_id:
                raise AlreadyExists("block with label", block.label)
            if len(known) > len(had) + len(added):
                self._limits.check("blocks_per_agent", len(known))
                added.append(OwnId(block.id))
        self._db.run_many(
            "INSERT INTO agent_blocks (agent_id, block_id, position) VALUES (:agent_id, :block_id, :position)",
            [{"agent_id": own, "block_id": one, "position": last + place} for place, one in enumerate(added, 1)],
        )

    def detach(self, agent_id: AgentId, block_id: BlockId) -> None:
        """Raises: NotFound: it is not attached."""
        if not self._db.run(
            f"DELETE FROM agent_blocks WHERE agent_id = :agent_id AND block_id = :block_id AND {OWN_AGENT}"
            " AND EXISTS (SELECT 1 FROM blocks b WHERE b.id = :block_id AND b.org_id = :org_id)",
            {"agent_id": agent_id, "block_id": block_id, "org_id": self._org_id},
        ):
            raise NotFound("block of this agent", block_id)

    def of_agent(self, agent_id: AgentId) -> Sequence[Block]:
        """In the order they were attached."""
        rows = self._db.rows(
            f"SELECT {_COLUMNS_OF_B} FROM agent_blocks x JOIN blocks b ON b.id = x.block_id"
            " WHERE x.agent_id = :agent_id AND b.org_id = :org_id ORDER BY x.position",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        return [_block(row) for row in rows]

    def size(self, agent_id: AgentId) -> int:
        """How many characters the values of the agent's blocks have."""
        rows = self._db.rows(
            "SELECT SUM(LENGTH(b.value)) FROM agent_blocks x JOIN blocks b ON b.id = x.block_id"
            " WHERE x.agent_id = :agent_id AND b.org_id = :org_id",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        return int(rows[0][0] or 0)

    def find(self, agent_id: AgentId, label: str) -> Block | None:
        rows = self._db.rows(
            f"SELECT {_COLUMNS_OF_B} FROM agent_blocks x JOIN blocks b ON b.id = x.block_id"
            f" WHERE x.agent_id = :agent_id AND b.org_id = :org_id AND b.label = :label{self._db.for_update}",
            {"agent_id": agent_id, "org_id": self._org_id, "label": storable(label)},
        )
        return _block(rows[0]) if rows else None

    def agents_of(self, block_id: BlockId) -> Sequence[AgentId]:
        rows = self._db.rows(
            "SELECT a.id FROM agent_blocks x JOIN agents a ON a.id = x.agent_id JOIN blocks b ON b.id = x.block_id"
            " WHERE x.block_id = :block_id AND a.org_id = :org_id AND b.org_id = :org_id ORDER BY a.number",
            {"block_id": block_id, "org_id": self._org_id},
        )
        return [row[0] for row in rows]

    def versions(self, block_id: BlockId, *, limit: int = 100, before: int | None = None) -> Sequence[BlockVersion]:
        """Newest first."""
        older = "" if before is None else "AND version < :before"
        rows = self._db.rows(
            f"SELECT {_VERSION_COLUMNS} FROM block_versions WHERE block_id = :id {older}"
            " ORDER BY version DESC LIMIT :limit",
            {"id": self.get(block_id).id, "limit": limit} | ({} if before is None else {"before": before}),
        )
        return [_version(row) for row in rows]

    def version(self, block_id: BlockId, version: int) -> BlockVersion:
        """Raises: NotFound."""
        rows = self._db.rows(
            f"SELECT {_VERSION_COLUMNS} FROM block_versions WHERE block_id = :id AND version = :version",
            {"id": self.get(block_id).id, "version": version},
        )
        if not rows:
            raise NotFound("block version", str(version))
        return _version(rows[0])

    def _check_labels(self, block: Block) -> None:
        """An agent can't have two blocks of one label, also not by renaming a shared one."""
        if self._db.for_update:  # as in `attach`
            self._db.rows(
                "SELECT a.id FROM agent_blocks x JOIN agents a ON a.id = x.agent_id WHERE x.block_id = :id"
                f" ORDER BY a.number{self._db.for_update}",
                {"id": block.id},
            )
        taken = self._db.rows(
            "SELECT 1 FROM agent_blocks mine JOIN agent_blocks theirs ON theirs.agent_id = mine.agent_id"
            " JOIN blocks b ON b.id = theirs.block_id"
            " WHERE mine.block_id = :id AND b.id <> :id AND b.label = :label AND b.org_id = :org_id LIMIT 1",
            {"id": block.id, "label": storable(block.label), "org_id": self._org_id},
        )
        if taken:
            raise AlreadyExists("block with label", block.label)

    def _add_version(self, block: Block, *, diff: str, author: Author, at: datetime) -> None:
        row = {
            "block_id": block.id,
            "version": block.version,
            "label": storable(block.label),
            "value": storable(block.value),
            "diff": storable(diff),
            "author_kind": author.kind,
            "author_id": storable(author.id),
            "agent_id": author.agent_id,
            "run_id": author.run_id,
            "message_id": author.message_id,
            "created_at": iso(at),
        }
        self._db.run(
            f"INSERT INTO block_versions ({_VERSION_COLUMNS}, checksum) VALUES (:block_id, :version, :label, :value,"
            " :diff, :author_kind, :author_id, :agent_id, :run_id, :message_id, :created_at, :checksum)",
            row | {"checksum": VERSIONS.of(row)},
        )


def _conditions(where: BlockFilter) -> tuple[str, dict[str, Any]]:
    clauses: list[str] = []
    params: dict[str, Any] = {}
    if where.label is not None:
        clauses.append("b.label = :w_label")
        params["w_label"] = storable(where.label)
    for name, text in (
        ("label", where.label_text),
        ("value", where.value_text),
        ("description", where.description_text),
    ):
        if text:
            clauses.append(contains(f"b.{name}", f"w_{name}_text"))
            params[f"w_{name}_text"] = pattern_of(text)
    if where.tags:
        tagged, names = has_tags("b.tags", where.tags, every=where.all_tags)
        clauses.append(tagged)
        params |= names
    if where.templates_only:
        clauses.append("b.is_template = 1")
    if where.hidden is not None:
        clauses.append("b.hidden = :w_hidden")
        params["w_hidden"] = int(where.hidden)
    if where.holding is not None:
        clauses.append("REPLACE(b.metadata, :w_holding, '') <> b.metadata")
        params["w_holding"] = dump(dict([where.holding]))[1:-1]
    agents = "(SELECT COUNT(*) FROM agent_blocks x WHERE x.block_id = b.id)"
    if where.agents_min is not None:
        clauses.append(f"{agents} >= :w_agents_min")
        params["w_agents_min"] = where.agents_min
    if where.agents_max is not None:
        clauses.append(f"{agents} <= :w_agents_max")
        params["w_agents_max"] = where.agents_max
    if where.agents_in:
        clauses.append(f"{agents} IN ({', '.join(str(int(number)) for number in where.agents_in)})")
    return "".join(f" AND {clause}" for clause in clauses), params


def _params(block: Block) -> dict[str, Any]:
    return {
        "id": block.id,
        "org_id": block.org_id,
        "label": storable(block.label),
        "value": storable(block.value),
        "limit_chars": block.limit_chars,
        "description": None if block.description is None else storable(block.description),
        "read_only": int(block.read_only),
        "metadata": dump(block.metadata),
        "tags": dump(block.tags),
        "is_template": int(block.is_template),
        "hidden": int(block.hidden),
        "version": block.version,
        "created_at": iso(block.created_at),
        "updated_at": iso(block.updated_at),
        "created_by": None if block.created_by is None else storable(block.created_by),
        "updated_by": None if block.updated_by is None else storable(block.updated_by),
    }


def _block(row: Row) -> Block:
    return Block(
        id=row[0],
        org_id=row[1],
        label=restore(row[2]),
        value=restore(row[3]),
        limit_chars=row[4],
        description=None if row[5] is None else restore(row[5]),
        read_only=bool(row[6]),
        metadata=load(row[7]),
        tags=tuple(load(row[8])),
        is_template=bool(row[9]),
        hidden=bool(row[10]),
        version=row[11],
        created_at=from_iso(row[12]),
        updated_at=from_iso(row[13]),
        created_by=None if row[14] is None else restore(row[14]),
        updated_by=None if row[15] is None else restore(row[15]),
    )


def _version(row: Row) -> BlockVersion:
    return BlockVersion(
        block_id=row[0],
        version=row[1],
        label=restore(row[2]),
        value=restore(row[3]),
        diff=restore(row[4]),
        author=Author(kind=row[5], id=restore(row[6]), agent_id=row[7], run_id=row[8], message_id=row[9]),
        created_at=from_iso(row[10]),
    )
