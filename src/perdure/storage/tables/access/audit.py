"""`directory.audit`, `directory.used` and `tx.used`: what was done from outside, and how much keys and agents have
used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from perdure.core.access.values import AuditEntry, AuditFilter, Used
from perdure.core.ids import OrgId
from perdure.storage.database.base import Database
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import TIME, RowFormat, insert_into, iso, storable
from perdure.storage.tables.access.organisations import next_numbers
from perdure.storage.tables.table import Table

_ENTRY = RowFormat(
    AuditEntry,
    {TIME: "created_at"},
    columns="seq, org_id, created_at, user_id, key_id, action, object_id, trace_id",
    attributes={"created_at": lambda entry: entry.at},
    build=lambda created_at, **values: AuditEntry(at=created_at, **values),
)


class Audit:
    """The audit log of all organisations."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, entries: Sequence[AuditEntry]) -> None:
        """Append entries; they are numbered in this order."""
        if not entries:
            return
        first = next_numbers(self._db, len(entries))
        self._db.run_many(
            insert_into("audit_entries", _ENTRY.columns),
            [{**_ENTRY.params(entry), "seq": first + place} for place, entry in enumerate(entries)],
        )

    def page(
        self, org_id: OrgId, where: AuditFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[AuditEntry]:
        """Newest first; `before` is the number of the last one of the page before."""
        conditions = Conditions("org_id = :org_id", org_id=storable(org_id))
        conditions.equal("user_id", where.user_id)
        conditions.equal("key_id", where.key_id)
        conditions.equal("object_id", where.object_id)
        conditions.contain("action", where.action)
        conditions.between("seq", None, before)
        sql = f"SELECT {_ENTRY.columns} FROM audit_entries WHERE {conditions} ORDER BY seq DESC LIMIT :limit"
        return [_ENTRY.read(row) for row in self._db.rows(sql, {**conditions.params, "limit": limit})]

    def trim(self, *, before: datetime, limit: int) -> int:
        """Delete entries of all organisations that are older, at most so many; return how many."""
        sql = (
            "DELETE FROM audit_entries WHERE seq IN"
            " (SELECT seq FROM audit_entries WHERE created_at < :before ORDER BY seq LIMIT :limit)"
        )
        return self._db.run_counted(sql, {"before": iso(before), "limit": limit})


class UsedTable:
    """How much keys and agents have used, by period: a day as `2026-01-31`, a minute as `2026-01-31T12:34`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, org_id: OrgId, period: str, used: Mapping[str, Used]) -> None:
        """Add to what owners have used in a period."""
        sql = (
            f"{insert_into('used', 'org_id, owner_id, period, requests, tokens, cost')}"
            " ON CONFLICT (owner_id, period) DO UPDATE SET requests = used.requests + excluded.requests,"
            " tokens = used.tokens + excluded.tokens, cost = used.cost + excluded.cost"
            " WHERE used.org_id = excluded.org_id"
        )
        self._db.run_many(  # sorted, so that transactions on PostgreSQL lock rows in one order
            sql,
            [
                {
                    "org_id": storable(org_id),
                    "owner_id": storable(owner_id),
                    "period": period,
                    "requests": one.requests,
                    "tokens": one.tokens,
                    "cost": one.cost,
                }
                for owner_id, one in sorted(used.items())
            ],
        )

    def claim(self, org_id: OrgId, owner_id: str, period: str) -> bool:
        """Count the first use of something; False: it was used before in this period."""
        sql = (
            f"{insert_into('used', 'org_id, owner_id, period, requests, tokens, cost')}"
            " ON CONFLICT (owner_id, period) DO NOTHING"
        )
        params = {"org_id": storable(org_id), "owner_id": storable(owner_id), "period": period}
        return bool(self._db.run_counted(sql, {**params, "requests": 1, "tokens": 0, "cost": 0.0}))

    def get(self, org_id: OrgId, owner_id: str, period: str) -> Used:
        """What the owner has used in this period; nothing, if nothing is known."""
        rows = self._db.rows(
            "SELECT requests, tokens, cost FROM used"
            " WHERE owner_id = :owner_id AND period = :period AND org_id = :org_id",
            {"owner_id": storable(owner_id), "period": period, "org_id": storable(org_id)},
        )
        return Used(*rows[0]) if rows else Used()

    def trim(self, *, before: str) -> int:
        """Delete the counts of periods before this one; return how many."""
        return self._db.run_counted("DELETE FROM used WHERE period < :before", {"before": before})


class OwnUsed(Table):
    """`tx.used`: how much the keys and agents of one organisation have used in a day of UTC."""

    def add(self, used: Mapping[str, Used], *, at: datetime) -> None:
        """Add to what owners have used on the day of this moment. Their counts of days before yesterday go."""
        table, day = UsedTable(self._db), day_of(at)
        table.add(self._org_id, day, used)
        before = day_of(at - timedelta(days=1))
        self._db.run_many(
            "DELETE FROM used WHERE owner_id = :owner_id AND period < :before AND org_id = :org_id",
            [{"owner_id": storable(one), "before": before, "org_id": self._org_id} for one in sorted(used)],
        )

    def get(self, owner_id: str, *, at: datetime) -> Used:
        """What an owner has used on the day of this moment."""
        return UsedTable(self._db).get(self._org_id, owner_id, day_of(at))


def day_of(at: datetime) -> str:
    """The day of UTC, as the counts name it."""
    return at.astimezone(UTC).date().isoformat()
