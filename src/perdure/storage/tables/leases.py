"""Leases of rows: which process works on one. A single statement decides it, so of many processes one gets it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar, cast

from perdure.core.errors import LeaseLost
from perdure.storage.database.row_format import RowFormat, assignments, iso, storable
from perdure.storage.tables.table import Table

T = TypeVar("T")

UNENDED = "status IN ('queued', 'running')"
RELEASED = "lease_owner = NULL, lease_until = NULL"


class LeasedTable(Table, Generic[T]):
    """The verbs of rows that wait, are worked on under a lease, and end.

    A queued row may be claimed by the process that reserved it. A running one may not, even by the same owner, before
    its lease has run out or its holder is known to be dead.
    """

    _table: ClassVar[str]
    _format: ClassVar[RowFormat[Any]]
    _key: ClassVar[str]  # the columns of a row's key
    _own: ClassVar[str]  # the condition of one row, by the columns of its key
    _own_of: ClassVar[str]  # the condition that a row `r` belongs to the organisation
    _oldest: ClassVar[str]  # the condition that no row stands before `r`, which may use the index `{unended}`

    def keep_lease(self, row: T, *, until: datetime | None = None) -> T:
        """Check that the row's lease still holds, and extend it to `until` if given; no other process can claim it
        within this transaction. Returns the row as stored now. Raises: LeaseLost: another lease holds, or the row has
        ended or is gone."""
        params = self._format.params(row, f"{self._key}, lease_owner, lease_number")
        held = f"{self._own} AND status = 'running' AND lease_owner = :lease_owner AND lease_number = :lease_number"
        if until is None:
            sql = f"SELECT {self._format.columns} FROM {self._table} WHERE {held}{self._db.for_update}"
        else:
            sql = f"UPDATE {self._table} SET lease_until = :until WHERE {held} RETURNING {self._format.columns}"
            params["until"] = iso(until)
        found: list[T] = self._all(self._format, sql, **params)
        if not found:
            owner_id, seq, owner, number, *_ = params.values()
            raise LeaseLost(f"{self._table}: number {seq} of {owner_id} is no longer held by {owner} ({number})")
        return found[0]

    def claim(
        self, key: tuple[str, int], *, owner: str, at: datetime, until: datetime, dead_owner: str | None = None
    ) -> T | None:
        """Claim the row with this key (owner, number) under a new lease of process `owner`, from `at` to `until`;
        return it. None: it has ended, another one stands before it, or another lease holds. The lease of a `dead_owner`
        does not count."""
        oldest = self._oldest.format(unended=self._db.by_index(f"{self._table}_unended"))
        return self._one(
            self._format,
            f"UPDATE {self._table} AS r SET status = 'running', lease_owner = :owner, lease_number = lease_number + 1,"
            " lease_until = :until, started_at = COALESCE(started_at, :at)"
            f" WHERE {self._own} AND {UNENDED} AND {oldest} AND (r.lease_owner IS NULL OR r.lease_until < :at"
            " OR (r.lease_owner = :owner AND r.status = 'queued') OR r.lease_owner = :dead_owner)"
            f" RETURNING {self._format.columns}",
            owner=owner,
            at=iso(at),
            until=iso(until),
            dead_owner=dead_owner or "",
            **self._params(key),
        )

    def release(self, owner: str, *, queued: bool = False) -> int:
        """Release every row that this process has claimed, or with `queued` only those not begun; return how many."""
        status = "status = 'queued'" if queued else UNENDED
        self._db.signal(self._table)
        return self._run_counted(
            f"UPDATE {self._table} AS r SET {RELEASED} WHERE lease_owner = :owner AND {status} AND {self._own_of}",
            owner=owner,
        )

    def request_cancel(self, key: tuple[str, int]) -> bool:
        """Request the end of the row with this key; False: it has ended, or its end was requested before."""
        sql = f"UPDATE {self._table} SET cancel_requested = 1 WHERE {self._own} AND cancel_requested = 0 AND {UNENDED}"
        return bool(self._run_counted(sql, **self._params(key)))

    def _params(self, key: tuple[str, int]) -> dict[str, str | int]:
        """The parameters of a row's key, by the names of its columns."""
        return dict(zip(self._key.split(", "), (storable(key[0]), key[1]), strict=True))

    def _end(self, row: T, columns: str = "", *, at: datetime, changes: str = "", **fields: Any) -> T | None:
        """Store that a row has ended, with `fields` changed in it, and release it; return it as stored. None: it had
        ended already. `columns`: what else to store, separated by commas. `changes`: SQL behind that."""
        ended: T = replace(cast(Any, row), lease_owner=None, lease_until=None, ended_at=at, **fields)
        columns = f"status, stop_reason, failure, ended_at{columns and f', {columns}'}"
        sql = f"UPDATE {self._table} SET {assignments(columns)}, {RELEASED}{changes} WHERE {self._own} AND {UNENDED}"
        return ended if self._run_counted(sql, **self._format.params(ended, f"{self._key}, {columns}")) else None
