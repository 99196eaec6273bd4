"""`tx.queues`: how much work waits, for those who watch."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from perdure.core.features import feature_org_tables, feature_tables
from perdure.storage.database.row_format import iso
from perdure.storage.tables.table import Table

COUNT_MAX = 10_000
"""How far a queue is counted: it is asked every few seconds, and what is longer is too long anyway."""

_OWN_AGENT = "EXISTS (SELECT 1 FROM agents a WHERE a.id = t.agent_id AND a.org_id = :org_id)"
_QUEUES: Mapping[str, str] = {
    "embeddings": "embedding_queue t WHERE EXISTS"
    " (SELECT 1 FROM vector_scopes s WHERE s.number = t.number AND s.org_id = :org_id)",
    **{
        name: f"{table.name} t WHERE t.org_id = :org_id AND {condition}"
        for table in feature_org_tables()
        for name, condition in table.queues.items()
    },
    "runs_queued": f"runs t WHERE t.status = 'queued' AND {_OWN_AGENT}",
    "runs_running": f"runs t WHERE t.status = 'running' AND {_OWN_AGENT}",
    **{
        name: f"{table.name} t WHERE {condition} AND {_OWN_AGENT}"
        for table in feature_tables()
        for name, condition in table.queues.items()
    },
    "callbacks": f"runs t WHERE t.callback_due_at <= :at AND t.status NOT IN ('queued', 'running') AND {_OWN_AGENT}",
}
"""Queue -> the rows that are in it. The indexes of their workers serve them."""


class Queues(Table):
    """The lengths of the organisation's queues."""

    def lengths(self, *, at: datetime) -> Mapping[str, int]:
        """Queue -> how many wait in it, at most `COUNT_MAX`. Schedules and reports count from when they are due."""
        lengths = {}
        for name, rows in _QUEUES.items():
            times = {"at": iso(at)} if ":at" in rows else {}
            counted = f"SELECT COUNT(*) FROM (SELECT 1 FROM {rows} LIMIT {COUNT_MAX}) c"
            lengths[name] = int(self._rows(counted, **times)[0][0])
        return lengths
