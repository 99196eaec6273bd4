"""`tx.sources`: what messages brought into a conversation from outside, and the sources of writes of memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.features import feature_roots, find_features
from perdure.core.ids import PREFIXES, AgentId, MessageId, OrgId
from perdure.core.messages import Draft
from perdure.core.sources import MemoryWrite, MessageSource, Source, WriteSource
from perdure.storage.database.base import Database
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import Row, dump, from_iso, insert_into, iso, load, restore, storable
from perdure.storage.tables.message_rows import reset_pending
from perdure.storage.tables.table import OWN_AGENT, Table, own_agent, parts

_WRITE = "owner_id, ref, place, kind, label, name, message_ids, agent_id, run_id, message_id, created_at, reverted_by"

_OF_FEATURES = {table: root.key for root in feature_roots() if root.has_sources for table in root.of_agents}
_KEYS = {"agent_blocks": "block_id", "conversation_blocks": "block_id", "agent_archives": "archive_id", **_OF_FEATURES}
OWNERS = " UNION ".join(
    f"SELECT o.id FROM {links} x JOIN {key.removesuffix('_id')}s o ON o.id = x.{key}"
    " WHERE x.agent_id = {agent}{own}"
    for links, key in _KEYS.items()
)
"""SQL of the ids of what an agent has that keeps sources of its writes, such as blocks; `{agent}` is the agent's id."""

_MORE_OWNERS = [(kind, *sql) for feature in find_features() for kind, sql in feature.text_owners.items()]
_UNION = " UNION SELECT '{}', x.id FROM ({}) x WHERE {}"

_ENTERED = (
    "SELECT s.seq, m.id, s.label, s.name, s.via FROM {first} CROSS JOIN {then} WHERE s.agent_id = :agent_id"
    " AND m.agent_id = :agent_id AND m.conversation_seq = s.conversation_seq AND m.seq = s.seq AND m.removed = 0"
    " AND (NOT EXISTS (SELECT 1 FROM resetting WHERE agent_id = :agent_id)"
    f" OR NOT {reset_pending('m')}) AND {OWN_AGENT}"
)
# In the order of the index, or all would be sorted.
_NEWEST = (
    f"{_ENTERED.format(first='message_sources s', then='messages m')} AND s.conversation_seq = :conversation_seq"
    " AND s.seq >= :from_seq AND s.seq < :before_seq ORDER BY s.seq DESC, s.place DESC LIMIT :limit"
)
_OF_MESSAGES = _ENTERED.format(first="messages m", then="message_sources s")
"""What messages of an agent that were neither removed nor reset brought. SQLite keeps to the order of a cross join, and
would else read all sources of the agent."""


def add_message_sources(
    db: Database, agent_id: str, conversation_seq: int, rows: Iterable[tuple[int, int, Source]], *, via: str = ""
) -> None:
    """Add sources that messages brought: (number of the message, place among its sources, source) of each. The caller
    has checked the agent. `via`: empty, or `recall` if a search brought them."""
    db.run_many(
        insert_into("message_sources", "agent_id, conversation_seq, seq, place, label, name, via")
        + " ON CONFLICT (agent_id, conversation_seq, seq, place) DO NOTHING",
        [
            {
                "agent_id": agent_id,
                "conversation_seq": conversation_seq,
                "seq": seq,
                "place": place,
                "label": source.label,
                "name": storable(source.name),
                "via": via,
            }
            for seq, place, source in rows
        ],
    )


def add_draft_sources(
    db: Database, agent_id: str, conversation_seq: int, first_seq: int, drafts: Sequence[Draft]
) -> None:
    """Add the sources of new messages, the first of which has the number `first_seq`."""
    if any(draft.sources or draft.sender_id for draft in drafts):  # nothing else brings any
        rows = [(seq, *one) for seq, draft in enumerate(drafts, first_seq) for one in enumerate(draft.outside_sources)]
        add_message_sources(db, agent_id, conversation_seq, rows)


def add_writes(db: Database, writes: Sequence[MemoryWrite]) -> None:
    """Add the sources of writes, whose owners the caller has checked; a write that is there keeps its own."""
    db.run_many(
        f"{insert_into('memory_sources', _WRITE)} ON CONFLICT (owner_id, ref, place) DO NOTHING",
        [
            {
                "owner_id": write.owner_id,
                "ref": write.ref,
                "place": place,
                "kind": write.kind,
                "label": one.source.label,
                "name": storable(one.source.name),
                "message_ids": dump(list(one.message_ids)),
                "agent_id": write.agent_id,
                "run_id": write.run_id,
                "message_id": write.message_id,
                "created_at": iso(write.created_at),
                "reverted_by": write.reverted_by,
            }
            for write in writes
            for place, one in enumerate(write.sources)
        ],
    )


class Sources(Table):
    def add_to_message(
        self, agent_id: AgentId, conversation_seq: int, seq: int, sources: Sequence[Source], *, recalled: bool = False
    ) -> None:
        """Add sources that a message brought, or that were `recalled` for its request. Raises: NotFound."""
        own = own_agent(self._db, self._org_id, agent_id)
        key = {"agent_id": own, "conversation_seq": conversation_seq, "seq": seq}
        # What was recalled stands behind what the message itself brought.
        first = max(1_000, self._next("message_sources", "place", **key)) if recalled else 0
        rows = [(seq, first + place, source) for place, source in enumerate(sources)]
        add_message_sources(self._db, own, conversation_seq, rows, via="recall" if recalled else "")

    def list_by_conversation(
        self, agent_id: AgentId, conversation_seq: int, *, from_seq: int = 0, before_seq: int, limit: int = 1_000
    ) -> Sequence[MessageSource]:
        """The newest `limit` sources that messages in [from_seq, before_seq) brought into a conversation, oldest first,
        without those of messages that were removed or reset."""
        place = {"conversation_seq": conversation_seq, "from_seq": from_seq, "before_seq": before_seq}
        return self._messages(_NEWEST, agent_id, limit=limit, **place)[::-1]

    def list_first(
        self, agent_id: AgentId, conversation_seq: int, *, from_seq: int, before_seq: int, most: int, limit: int = 1_000
    ) -> Mapping[Source, int] | None:
        """Source -> the number of the message in [from_seq, before_seq) that first brought it into a conversation;
        None: there are more than `most` of them, or they were brought more than `limit` times."""
        sql = (
            f"SELECT label, name, MIN(seq), COUNT(*) FROM ({_NEWEST}) entered"
            " GROUP BY label, name ORDER BY MAX(seq) DESC, label, name LIMIT :most"
        )
        place = {"conversation_seq": conversation_seq, "from_seq": from_seq, "before_seq": before_seq}
        rows = self._rows(sql, agent_id=agent_id, limit=limit + 1, most=most + 1, **place)
        if len(rows) > most or sum(row[3] for row in rows) > limit:
            return None
        return {Source(row[0], restore(row[1])): int(row[2]) for row in rows}

    def list_by_messages(self, agent_id: AgentId, seqs: Sequence[int]) -> Mapping[int, Sequence[MessageSource]]:
        """Return number of a message -> the sources that it brought itself; messages without any are left out."""
        by_seq: dict[int, list[MessageSource]] = {}
        for part in parts(sorted(set(seqs))):
            listed = ", ".join(str(int(seq)) for seq in part)
            where = f"s.via = '' AND m.seq IN ({listed}) ORDER BY s.seq, s.place"
            for source in self._messages(f"{_OF_MESSAGES} AND {where}", agent_id):
                by_seq.setdefault(source.seq, []).append(source)
        return by_seq

    def _messages(self, sql: str, agent_id: AgentId, **params: Any) -> Sequence[MessageSource]:
        """The sources that a statement made of `_ENTERED` returns."""
        rows = self._rows(sql, agent_id=agent_id, **params)
        return [MessageSource(row[0], MessageId(row[1]), Source(row[2], restore(row[3])), row[4]) for row in rows]

    def add(self, writes: Sequence[MemoryWrite]) -> None:
        """Add the sources of writes that have none yet. Raises: NotFound: a block, archive or graph."""
        for owner_id in dict.fromkeys(write.owner_id for write in writes):
            check_memory(self._db, self._org_id, owner_id)
        add_writes(self._db, writes)

    def list_by_refs(self, owner_id: str, refs: Sequence[str]) -> Sequence[MemoryWrite]:
        """The writes of a block, archive or graph with these refs, in no order. Raises: NotFound."""
        check_memory(self._db, self._org_id, owner_id)
        found: list[MemoryWrite] = []
        for part in parts(list(dict.fromkeys(refs))):
            where = Conditions("owner_id = :owner_id")
            where.among("ref", part)
            found += read_writes(self._db, self._org_id, str(where), owner_id=storable(owner_id), **where.params)
        return found

    def settings_of_sharers(self, agent_id: AgentId, name: str, *, but: AgentId) -> Sequence[Mapping[str, Any]]:
        """Settings of others, not `but`, that share a block or archive with an agent and have the setting `name`."""
        shared = " UNION ".join(
            f"SELECT y.agent_id FROM {links} x JOIN {links} y ON y.{column} = x.{column} WHERE x.agent_id = :agent_id"
            for links, column in (("agent_blocks", "block_id"), ("agent_archives", "archive_id"))
        )
        sql = (
            "SELECT d.settings FROM agents a JOIN agent_details d ON d.agent_id = a.id WHERE a.org_id = :org_id"
            f" AND a.id IN ({shared}) AND a.id NOT IN (:agent_id, :but) AND d.settings LIKE :name AND {OWN_AGENT}"
        )
        return [load(row[0]) for row in self._rows(sql, agent_id=agent_id, but=but, name=f'%"{name}"%')]

    def delete(self, owner_id: str, refs: Sequence[str]) -> None:
        """Remove the sources of writes (`refs`) of a block, archive or graph. Raises: NotFound."""
        change_writes(self._db, self._org_id, owner_id, refs, "DELETE FROM memory_sources")


def check_memory(db: Database, org_id: OrgId, owner_id: str) -> None:
    """Check that this is the id of a block, archive or graph of the organisation. Raises: NotFound."""
    kinds = (key.removesuffix("_id") for key in _KEYS.values())
    kind = next((kind for kind in kinds if owner_id.startswith(f"{PREFIXES[kind]}-")), "")
    own = f"SELECT 1 FROM {kind}s WHERE id = :owner_id AND org_id = :org_id"
    if not kind or not db.rows(own, {"owner_id": storable(owner_id), "org_id": org_id}):
        raise NotFound("memory", owner_id)


def change_writes(
    db: Database, org_id: OrgId, owner_id: str, refs: Sequence[str], statement: str, **params: str
) -> None:
    """Run a statement without WHERE on the sources of writes (`refs`) of memory `owner_id`. Raises: NotFound."""
    check_memory(db, org_id, owner_id)
    of_write = f"{statement} WHERE owner_id = :owner_id AND ref = :ref"
    db.run_many(of_write, [{"owner_id": owner_id, "ref": ref, **params} for ref in refs])


def read_writes(db: Database, org_id: OrgId, where: str, **params: Any) -> Sequence[MemoryWrite]:
    """The writes of memory that fulfil a condition, SQL with these values in it, with all of their sources."""
    sql = f"SELECT {_WRITE} FROM memory_sources WHERE {where} ORDER BY owner_id, ref, place"
    rows = db.rows(sql, {**params, "org_id": org_id})
    return [_write(list(group)) for _, group in groupby(rows, key=lambda row: (row[0], row[1]))]


def _write(rows: Sequence[Row]) -> MemoryWrite:
    """The write whose sources these rows are, one or more."""
    owner_id, ref, _, kind, _, _, _, agent_id, run_id, message_id, created_at, reverted_by = rows[0]
    return MemoryWrite(
        kind=kind,
        owner_id=owner_id,
        ref=ref,
        sources=tuple(
            WriteSource(Source(row[4], restore(row[5])), tuple(map(MessageId, load(row[6])))) for row in rows
        ),
        agent_id=agent_id,
        run_id=run_id,
        message_id=message_id,
        created_at=from_iso(created_at),
        reverted_by=reverted_by,
    )


class Owners(Table):
    """Finds the things that hold an agent's texts, and the agents that have a thing."""

    def list(self, agent_id: AgentId) -> Sequence[tuple[str, str]]:
        """Return (table, id) of all that holds texts of an agent: its blocks, archives, files, graph, and blocks that
        it edited before and that no agent has now."""
        rows = self._rows(
            f"SELECT 'blocks', b.id FROM blocks b WHERE {OWN_AGENT} AND b.org_id = :org_id AND (b.id IN"
            " (SELECT block_id FROM agent_blocks WHERE agent_id = :agent_id) OR b.id IN"
            " (SELECT block_id FROM conversation_blocks WHERE agent_id = :agent_id) OR (b.id IN"
            " (SELECT block_id FROM block_versions WHERE agent_id = :agent_id)"
            " AND NOT EXISTS (SELECT 1 FROM agent_blocks x WHERE x.block_id = b.id)))"
            " UNION SELECT 'archives', r.id FROM agent_archives a JOIN archives r ON r.id = a.archive_id"
            f" WHERE {OWN_AGENT} AND a.agent_id = :agent_id AND r.org_id = :org_id"
            f"{''.join(_UNION.format(kind, of_agent, OWN_AGENT) for kind, of_agent, _ in _MORE_OWNERS)} ORDER BY 1, 2",
            agent_id=agent_id,
        )
        return [(row[0], row[1]) for row in rows]

    def list_agents(self, table: str, owner_id: str) -> Sequence[AgentId]:
        """The ids of agents that have a block, archive, or thing of a feature: the row of `table` with this id."""
        sql = {
            "blocks": "SELECT agent_id FROM agent_blocks WHERE block_id = :id UNION SELECT agent_id FROM"
            " conversation_blocks WHERE block_id = :id",
            "archives": "SELECT agent_id FROM agent_archives WHERE archive_id = :id",
        }
        more = [agents for kind, _, agents in _MORE_OWNERS if kind == table]
        found = " UNION ".join([sql[table], *more] if table in sql else more)
        own = f"EXISTS (SELECT 1 FROM {table} WHERE id = :id AND org_id = :org_id)"
        rows = self._rows(
            f"SELECT id FROM agents WHERE org_id = :org_id AND {own} AND id IN ({found}) ORDER BY number",
            id=storable(owner_id),
        )
        return [AgentId(row[0]) for row in rows]
