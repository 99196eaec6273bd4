"""`tx.nodes`: the summary nodes of conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, OrgId
from perdure.core.nodes import SummaryNode, node_handle
from perdure.core.runs import usage_to_json
from perdure.core.text.words import restore, storable
from perdure.storage.database.base import OWN_AGENT, Database, Row, dump, from_iso, iso, load
from perdure.storage.tables.run_rows import load_usage

_COLUMNS = (
    "agent_id, conversation_seq, seq, level, from_message_seq, upto_message_seq, children, message_count, since,"
    " until, text, tokens, made_by, model, rejected, usage, created_at"
)


class Nodes:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def add(self, node: SummaryNode) -> SummaryNode:
        """Add a node, and return it with its number in the conversation. Raises: NotFound: no such agent."""
        # A conversation has one run at a time, and only its run adds nodes, so the next number is safe to take.
        rows = self._db.rows(
            f"INSERT INTO summary_nodes ({_COLUMNS}) SELECT :agent_id, :conversation, (SELECT COALESCE(MAX(seq) + 1, 0)"
            " FROM summary_nodes WHERE agent_id = :agent_id AND conversation_seq = :conversation), :level, :from_seq,"
            " :upto_seq, :children, :message_count, :since, :until, :text, :tokens, :made_by, :model, :rejected,"
            f" :usage, :at WHERE {OWN_AGENT} RETURNING seq",
            {
                "org_id": self._org_id,
                "agent_id": node.agent_id,
                "conversation": node.conversation_seq,
                "level": node.level,
                "from_seq": node.from_message_seq,
                "upto_seq": node.upto_message_seq,
                "children": dump(node.children),
                "message_count": node.message_count,
                "since": iso(node.since),
                "until": iso(node.until),
                "text": storable(node.text),
                "tokens": node.tokens,
                "made_by": node.made_by,
                "model": None if node.model is None else storable(node.model),
                "rejected": None if node.rejected is None else storable(node.rejected),
                "usage": usage_to_json(node.usage),
                "at": iso(node.created_at),
            },
        )
        if not rows:
            raise NotFound("agent", node.agent_id)
        return replace(node, seq=int(rows[0][0]))

    def get(self, agent_id: AgentId, conversation_seq: int, seq: int) -> SummaryNode:
        """Raises: NotFound."""
        if found := self.by_seqs(agent_id, conversation_seq, [seq]):
            return found[0]
        raise NotFound("summary node", node_handle(seq))

    def by_seqs(self, agent_id: AgentId, conversation_seq: int, seqs: Sequence[int]) -> Sequence[SummaryNode]:
        """The nodes with these numbers that exist, in the order of `seqs`."""
        if not seqs:
            return []
        listed = ", ".join(str(int(seq)) for seq in seqs)
        found = {node.seq: node for node in self._read(f"seq IN ({listed})", agent_id, conversation_seq)}
        return [found[seq] for seq in seqs if seq in found]

    def list(
        self,
        agent_id: AgentId,
        conversation_seq: int,
        *,
        limit: int = 100,
        after_seq: int = -1,
        from_message_seq: int = 0,
    ) -> Sequence[SummaryNode]:
        """Nodes in order of their numbers, optionally only those of messages from one on."""
        return self._read(
            "seq > :after AND from_message_seq >= :first ORDER BY seq LIMIT :limit",
            agent_id,
            conversation_seq,
            {"after": after_seq, "first": from_message_seq, "limit": limit},
        )

    def _read(
        self, where: str, agent_id: AgentId, conversation_seq: int, params: dict[str, Any] | None = None
    ) -> Sequence[SummaryNode]:
        rows = self._db.rows(
            f"SELECT {_COLUMNS} FROM summary_nodes WHERE agent_id = :agent_id AND conversation_seq = :conversation"
            f" AND {OWN_AGENT} AND {where}",
            {"agent_id": agent_id, "conversation": conversation_seq, "org_id": self._org_id} | (params or {}),
        )
        return [_node(row) for row in rows]


def _node(row: Row) -> SummaryNode:
    return SummaryNode(
        agent_id=row[0],
        conversation_seq=row[1],
        seq=row[2],
        level=row[3],
        from_message_seq=row[4],
        upto_message_seq=row[5],
        children=tuple(load(row[6])),
        message_count=row[7],
        since=from_iso(row[8]),
        until=from_iso(row[9]),
        text=restore(row[10]),
        tokens=row[11],
        made_by=row[12],
        model=None if row[13] is None else restore(row[13]),
        rejected=None if row[14] is None else restore(row[14]),
        usage=load_usage(row[15]),
        created_at=from_iso(row[16]),
    )
