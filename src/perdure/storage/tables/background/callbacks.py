"""`tx.callbacks`: reports of ended runs and batches that are still to be sent, in one transaction.

A row of `runs` or `batches` with a callback has the time of its next try in `callback_due_at`; NULL: no more tries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from perdure.core.runs import Callback, CallbackOwner, DueCallback, Run
from perdure.storage.database.row_format import Codec, dump, from_iso, iso, load
from perdure.storage.tables.table import Table


def _store(callback: Callback) -> str:
    fields = {name: getattr(callback, name) for name in callback.__slots__}
    return dump({**fields, "sent_at": callback.sent_at and iso(callback.sent_at)})


def _load(text: str) -> Callback:
    fields = load(text)
    return Callback(**{**fields, "sent_at": fields["sent_at"] and from_iso(fields["sent_at"])})


CALLBACK = Codec(_store, _load)

_OWN_RUN = "EXISTS (SELECT 1 FROM agents a WHERE a.id = t.agent_id AND a.org_id = :org_id)"
_OWN_BATCH = "t.org_id = :org_id"


def unended(batch_id: str) -> str:
    """The condition that a batch has runs that have not ended; `batch_id` is the column of its id."""
    return (
        f"EXISTS (SELECT 1 FROM runs r WHERE r.batch_id = {batch_id} AND r.status IN ('queued', 'running')"
        " AND EXISTS (SELECT 1 FROM agents a WHERE a.id = r.agent_id AND a.org_id = :org_id))"
    )


_READY: Mapping[CallbackOwner, str] = {
    "runs": f"t.status NOT IN ('queued', 'running') AND {_OWN_RUN}",
    "batches": f"NOT {unended('t.id')} AND {_OWN_BATCH}",
}
"""Table -> the condition of its rows whose end can be reported."""

_OWN: Mapping[CallbackOwner, str] = {"runs": _OWN_RUN, "batches": _OWN_BATCH}


class Callbacks(Table):
    def request(self, run: Run, callback: Callback, *, at: datetime) -> Run:
        """Have the end of a new run reported."""
        self._run(
            "UPDATE runs AS t SET callback = :callback, callback_due_at = :at"
            f" WHERE t.agent_id = :agent_id AND t.seq = :seq AND {_OWN['runs']}",
            callback=_store(callback),
            at=iso(at),
            **run.key._asdict(),
        )
        return replace(run, callback=callback)

    def list_due(self, *, at: datetime, limit: int) -> Sequence[DueCallback]:
        """Reports of what has ended that are due, the oldest first."""
        return [
            DueCallback(table, row[0], _load(row[1]), from_iso(row[2]))
            for table, ready in _READY.items()
            for row in self._rows(
                f"SELECT t.id, t.callback, t.callback_due_at FROM {table} t"
                f" WHERE t.callback_due_at <= :at AND {ready} ORDER BY t.callback_due_at LIMIT :limit",
                at=iso(at),
                limit=limit,
            )
        ]

    def put(self, due: DueCallback, callback: Callback, *, due_at: datetime | None) -> DueCallback | None:
        """Store a callback and when it is due again, None: never. None: another process has done so since `due` was
        read."""
        changed = self._run(
            f"UPDATE {due.owner} AS t SET callback = :callback, callback_due_at = :next"
            f" WHERE t.id = :id AND t.callback_due_at = :due_at AND {_OWN[due.owner]}",
            callback=_store(callback),
            next=due_at and iso(due_at),
            id=due.id,
            due_at=iso(due.due_at),
        )
        return replace(due, callback=callback, due_at=due_at or due.due_at) if changed else None
