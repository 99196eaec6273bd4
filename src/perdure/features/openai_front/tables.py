"""`tx.of(OpenaiHistories)`: the chains of chats that are known, by their digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.core.ids import AgentId, ConversationId
from perdure.features.openai_front.values import KnownChain
from perdure.storage.database.row_format import RowFormat
from perdure.storage.tables.table import OWN_AGENT, Table, own_agent

_HISTORY = RowFormat(KnownChain)
_AT_ONCE = 500
"""Digests in one statement."""


class OpenaiHistories(Table):
    """The known chains of an agent."""

    def add(self, agent_id: AgentId, rows: Sequence[KnownChain]) -> None:
        """Add chains; an existing one with the same run or message stays. Raises: NotFound."""
        own = own_agent(self._db, self._org_id, agent_id)
        names = f"agent_id, {_HISTORY.columns}"
        values = ", ".join(f":{name}" for name in names.split(", "))
        sql = f"INSERT INTO openai_histories ({names}) VALUES ({values}) ON CONFLICT DO NOTHING"
        for row in rows:
            self._run(sql, agent_id=own, **_HISTORY.params(row))

    def find(self, agent_id: AgentId, digests: Sequence[str], *, most: int = 8) -> Mapping[str, Sequence[KnownChain]]:
        """Return digest -> the known chains with it, newest first, at most `most` each."""
        found: dict[str, list[KnownChain]] = {}
        for first in range(0, len(digests), _AT_ONCE):
            names = {f"d{place}": one for place, one in enumerate(digests[first : first + _AT_ONCE])}
            sql = (
                f"SELECT {_HISTORY.columns} FROM (SELECT {_HISTORY.columns}, ROW_NUMBER()"
                " OVER (PARTITION BY digest ORDER BY created_at DESC, said_in) AS place"
                f" FROM openai_histories WHERE agent_id = :agent_id AND {OWN_AGENT}"
                f" AND digest IN ({', '.join(f':{name}' for name in names)})) AS newest"
                " WHERE place <= :most ORDER BY place"
            )
            for row in self._all(_HISTORY, sql, agent_id=agent_id, most=most, **names):
                found.setdefault(row.digest, []).append(row)
        return found

    def newest_system(self, agent_id: AgentId, conversation_id: ConversationId) -> str:
        """The digest of what a program said last beside a conversation; empty: nothing, or there is none."""
        sql = (
            f"SELECT system_digest FROM openai_histories WHERE agent_id = :agent_id AND {OWN_AGENT}"
            " AND conversation_id = :conversation_id ORDER BY created_at DESC LIMIT 1"
        )
        return str(self._value(sql, agent_id=agent_id, conversation_id=conversation_id) or "")
