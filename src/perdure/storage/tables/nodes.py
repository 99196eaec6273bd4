"""`tx.nodes`: the summary nodes of conversations."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.ids import AgentId
from perdure.core.nodes import SummaryNode
from perdure.storage.database.row_format import RowFormat, iso, storable
from perdure.storage.tables.runs import USAGE
from perdure.storage.tables.table import OWN_AGENT, Table, first

_NODE = RowFormat(SummaryNode, {USAGE: "usage"})
_KEY = "agent_id, conversation_seq, seq"


def _has_one(seqs: Sequence[int], first: int, last: int) -> bool:
    """Whether one of these numbers, sorted upwards, is in [first, last]."""
    place = bisect_left(seqs, first)
    return place < len(seqs) and seqs[place] <= last


class Nodes(Table):
    def add(self, node: SummaryNode, *, keeps_number: bool = False) -> SummaryNode:
        """Add a node; return it with its number, by default a new one; the agent is locked. Raises: NotFound."""
        next_seq = (
            "(SELECT COALESCE(MAX(seq) + 1, 0) FROM summary_nodes"
            " WHERE agent_id = :agent_id AND conversation_seq = :conversation_seq)"
        )
        columns = _NODE.columns.split(", ")
        values = ", ".join(next_seq if name == "seq" and not keeps_number else f":{name}" for name in columns)
        sql = f"INSERT INTO summary_nodes ({_NODE.columns}) SELECT {values} WHERE {OWN_AGENT} RETURNING seq"
        return replace(node, seq=int(first(self._rows(sql, **_NODE.params(node)), "agent", node.agent_id)[0]))

    def put_text(self, node: SummaryNode, text: str) -> None:
        """Replace the text of a node, because something was forgotten. Recorded requests keep the old one."""
        self._set("summary_nodes", _NODE.params(node, _KEY), text=storable(text))

    def put(self, node: SummaryNode) -> None:
        """Replace the text of a node, and what is known of how it was made."""
        columns = "text, tokens, made_by, method, model, rejected, usage, revised_at"
        self._set("summary_nodes", _NODE.params(node, _KEY), **_NODE.params(node, columns))

    def list_behind(self, agent_id: AgentId, conversation_seq: int, seqs: Sequence[int]) -> Sequence[SummaryNode]:
        """Return a conversation's nodes that cover these messages (sorted numbers), children before parents."""
        if not seqs:
            return []
        where = "from_message_seq <= :last AND upto_message_seq >= :first ORDER BY seq"
        nodes = self._read(where, agent_id, conversation_seq, first=seqs[0], last=seqs[-1])
        return [node for node in nodes if _has_one(seqs, node.from_message_seq, node.upto_message_seq)]

    def list_copies(self, node: SummaryNode) -> Sequence[SummaryNode]:
        """The copies of a node in conversations that were forked from its own."""
        same = _NODE.params(node, "agent_id, level, from_message_seq, upto_message_seq, created_at")
        where = f"{' AND '.join(f'{name} = :{name}' for name in same)} AND conversation_seq > :conversation"
        sql = f"SELECT {_NODE.columns} FROM summary_nodes WHERE {where} AND children = '[]' AND {OWN_AGENT}"
        order = "ORDER BY conversation_seq, seq"
        return self._all(_NODE, f"{sql} {order}", conversation=node.conversation_seq, **same)

    def list_by_seqs(self, agent_id: AgentId, conversation_seq: int, seqs: Sequence[int]) -> Sequence[SummaryNode]:
        """The nodes with these numbers that exist, in the order of `seqs`."""
        if not seqs:
            return []
        listed = ", ".join(str(int(seq)) for seq in seqs)
        nodes = {node.seq: node for node in self._read(f"seq IN ({listed})", agent_id, conversation_seq)}
        return [nodes[seq] for seq in seqs if seq in nodes]

    def list(
        self, agent_id: AgentId, conversation_seq: int, *, limit: int = 100, from_message_seq: int = 0
    ) -> Sequence[SummaryNode]:
        """Nodes of a conversation, in order, of messages from `from_message_seq` on."""
        return self._read(
            "from_message_seq >= :first ORDER BY seq LIMIT :limit",
            agent_id,
            conversation_seq,
            first=from_message_seq,
            limit=limit,
        )

    def list_newest(self, agent_id: AgentId, conversation_seq: int, *, limit: int = 64) -> Sequence[SummaryNode]:
        """Return the newest nodes, oldest first, without those that a restore of the agent has undone."""
        left = (
            "EXISTS (SELECT 1 FROM view_gaps g WHERE g.agent_id = :agent_id AND g.conversation_seq = :conversation"
            " AND g.until_revision IS NULL AND summary_nodes.seq BETWEEN g.from_node AND g.upto_node)"
        )
        return self._read(f"NOT {left} ORDER BY seq DESC LIMIT :limit", agent_id, conversation_seq, limit=limit)[::-1]

    def next_seq(self, agent_id: AgentId, conversation_seq: int, *, at: datetime | None = None) -> int:
        """The number of the conversation's next node; `at`: at this time."""
        sql = (
            "SELECT COALESCE(MAX(seq) + 1, 0) FROM summary_nodes WHERE agent_id = :agent_id"
            f" AND conversation_seq = :seq AND created_at <= :at AND {OWN_AGENT}"
        )
        return int(self._value(sql, agent_id=agent_id, seq=conversation_seq, at="9" if at is None else iso(at)))

    def is_outdated(self, node: SummaryNode) -> bool:
        """Whether one of the messages that a node stands for was changed or removed after the node was made."""
        sql = (
            "SELECT 1 FROM message_revisions WHERE agent_id = :agent_id AND seq BETWEEN :first AND :last"
            f" AND created_at >= :since AND {OWN_AGENT} LIMIT 1"
        )
        span = {"first": node.from_message_seq, "last": node.upto_message_seq}
        return bool(self._rows(sql, agent_id=node.agent_id, since=iso(node.created_at), **span))

    def _read(self, where: str, agent_id: AgentId, conversation_seq: int, **params: Any) -> Sequence[SummaryNode]:
        """The nodes of a conversation for which `where` is true: SQL, with any ORDER BY and LIMIT."""
        return self._all(
            _NODE,
            f"SELECT {_NODE.columns} FROM summary_nodes WHERE agent_id = :agent_id"
            f" AND conversation_seq = :conversation AND {OWN_AGENT} AND {where}",
            agent_id=agent_id,
            conversation=conversation_seq,
            **params,
        )
