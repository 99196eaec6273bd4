"""What the verbs of every noun share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from perdure.core.errors import NotFound
from perdure.core.ids import OrgId
from perdure.core.limits import DEFAULT_LIMITS, Limits
from perdure.core.text.words import storable
from perdure.storage.database.base import Database
from perdure.storage.database.row_format import Row
from perdure.storage.tables.conditions import Conditions

T = TypeVar("T")


class Table:
    """The verbs of one noun, in transactions of one organisation. A statement names the organisation as `:org_id`."""

    def __init__(self, db: Database, org_id: OrgId, limits: Limits = DEFAULT_LIMITS) -> None:
        self._db, self._org_id, self._limits = db, org_id, limits

    def _rows(self, sql: str, /, **params: Any) -> Sequence[Row]:
        """The rows that a statement returns."""
        return self._db.rows(sql, {**params, "org_id": self._org_id})

    def _run(self, sql: str, /, **params: Any) -> int:
        """Run a statement; return how many rows it changed."""
        return self._db.run(sql, {**params, "org_id": self._org_id})

    def _page(
        self,
        select: str,
        where: Conditions,
        columns: Sequence[str],
        *,
        ascending: bool,
        limit: int,
        after: Sequence[Any] | None,
        before: Sequence[Any] | None,
    ) -> Sequence[Row]:
        """Rows in the order of these columns: the first behind `after`, or with `before` alone the last in front of it.
        `after` and `before` are values of the columns."""
        order = where.page(columns, ascending=ascending, after=after, before=before)
        rows = self._rows(f"{select} WHERE {where} {order} LIMIT :limit", limit=limit, **where.params)
        return rows[::-1] if before is not None and after is None else rows

    def _place(self, kind: str, source: str, columns: Sequence[str], id_: str | None, name: str) -> Row | None:
        """The values of these columns in the row that the cursor `name` stands on; None: there is no cursor.

        Raises: NotFound.
        """
        if id_ is None:
            return None
        sql = f"SELECT {', '.join(columns)} FROM {source} WHERE id = :id AND org_id = :org_id"
        return first(self._rows(sql, id=storable(id_)), kind, id_, hint=f"`{name}` must be one of the list")


def first(values: Sequence[T], kind: str, key: str, *, hint: str = "") -> T:
    """The first of the values. Raises: NotFound: there is none."""
    if not values:
        raise NotFound(kind, key, hint=hint)
    return values[0]
