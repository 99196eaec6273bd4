"""`tx.queues`, how much work waits, and `tx.used`, how much keys and agents have used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta

from perdure.core.features import feature_org_tables, feature_tables
from perdure.core.incoming.principals import PeriodUsage, day_of
from perdure.storage.database.row_format import insert_into, iso, storable
from perdure.storage.tables.table import OWN_AGENT_OF, Table

COUNT_MAX = 10_000
"""How far a queue is counted: it is asked every few seconds, and what is longer is too long anyway."""

_OWN_AGENT = OWN_AGENT_OF.format("t")
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


_INSERT = f"{insert_into('used', 'org_id, owner_id, period, requests, tokens, cost')} ON CONFLICT (owner_id, period) DO"


class UseCounts(Table):
    """How much keys and agents used in each period: a UTC day (`2026-01-31`) or minute (`2026-01-31T12:34`)."""

    def add(self, used: Mapping[str, PeriodUsage], period: str) -> None:
        """Add to what owners, agents or keys by their ids, have used in a period."""
        self._db.run_many(  # sorted, so that transactions on PostgreSQL lock rows in one order
            f"{_INSERT} UPDATE SET requests = used.requests + excluded.requests,"
            " tokens = used.tokens + excluded.tokens, cost = used.cost + excluded.cost"
            " WHERE used.org_id = excluded.org_id",
            [self._row(owner_id, period, one) for owner_id, one in sorted(used.items())],
        )

    def add_today(self, used: Mapping[str, PeriodUsage], *, at: datetime) -> None:
        """Add to what owners have used on the day of this moment. Their counts of days before yesterday are removed."""
        self.add(used, day_of(at))
        before = day_of(at - timedelta(days=1))
        self._db.run_many(
            "DELETE FROM used WHERE owner_id = :owner_id AND period < :before AND org_id = :org_id",
            [{"owner_id": storable(owner_id), "before": before, "org_id": self._org_id} for owner_id in sorted(used)],
        )

    def claim(self, owner_id: str, period: str) -> bool:
        """Count the first use of something, such as a notice, in a period; False: it was used before in this period."""
        return bool(self._db.run_counted(f"{_INSERT} NOTHING", self._row(owner_id, period, PeriodUsage(requests=1))))

    def get(self, owner_id: str, period: str) -> PeriodUsage:
        """What the owner has used in this period; nothing, if nothing is known."""
        rows = self._rows(
            "SELECT requests, tokens, cost FROM used"
            " WHERE owner_id = :owner_id AND period = :period AND org_id = :org_id",
            owner_id=storable(owner_id),
            period=period,
        )
        return PeriodUsage(*rows[0]) if rows else PeriodUsage()

    def _row(self, owner_id: str, period: str, used: PeriodUsage) -> Mapping[str, object]:
        """The parameters of a row of `used`."""
        return {"org_id": self._org_id, "owner_id": storable(owner_id), "period": period, **asdict(used)}
