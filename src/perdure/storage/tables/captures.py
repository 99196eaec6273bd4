"""`tx.captures`: up to which message each conversation was captured as passages."""

from __future__ import annotations

from datetime import datetime

from perdure.core.conversations import Backlog
from perdure.core.ids import AgentId
from perdure.storage.tables.message_rows import IN_VIEW
from perdure.storage.tables.table import OWN_AGENT, Table

_OF_CONVERSATION = f"agent_id = :agent_id AND conversation_seq = :conversation_seq AND {OWN_AGENT}"


class Captures(Table):
    def last_seq(self, agent_id: AgentId, conversation_seq: int) -> int:
        """The number of the last row that capture has processed; -1: none."""
        sql = f"SELECT upto_seq FROM captures WHERE {_OF_CONVERSATION}"
        rows = self._rows(sql, agent_id=agent_id, conversation_seq=conversation_seq)
        return int(rows[0][0]) if rows else -1

    def put(self, agent_id: AgentId, conversation_seq: int, upto_seq: int, *, at: datetime) -> None:
        """Set the number of the last processed row. Raises: NotFound: no such agent."""
        self._put_upto("captures", "captured_at", agent_id, conversation_seq, upto_seq, at)

    def get_backlog(
        self, agent_id: AgentId, conversation_seq: int, *, after_seq: int | None = None, before_seq: int | None = None
    ) -> Backlog:
        """Messages of users and assistants in view, after `after_seq`, or else `last_seq`, and before `before_seq`."""
        by_conversation = self._db.by_index("messages_by_conversation")
        below = "" if before_seq is None else " AND seq < :before_seq"
        ((tokens, last, turns),) = self._rows(
            "SELECT COALESCE(SUM(tokens), 0), COALESCE(MAX(seq), -1), COUNT(*)"
            f" FROM messages{by_conversation} WHERE {_OF_CONVERSATION} AND seq > :upto_seq{below}"
            f" AND kind = 'message' AND role IN ('user', 'assistant') AND {IN_VIEW}",
            agent_id=agent_id,
            conversation_seq=conversation_seq,
            upto_seq=self.last_seq(agent_id, conversation_seq) if after_seq is None else after_seq,
            before_seq=before_seq,
        )
        return Backlog(int(tokens), int(last), int(turns))
