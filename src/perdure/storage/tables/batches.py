"""`tx.batches`: batches, whose runs are rows of `runs`; `tx.callbacks`: reports of ended runs and batches to send."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from perdure.core.features import feature_tables
from perdure.core.ids import AgentId, BatchId, MessageId
from perdure.core.runs import Batch, Callback, CallbackOwner, DueCallback, Run, RunStatus
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import Codec, RowFormat, dump, from_iso, insert_into, iso, load, storable
from perdure.storage.tables.table import OWN_AGENT_OF, Table, deleted_place, first, keep_places, next_number

_OWN_RUN = OWN_AGENT_OF.format("t")
_OWN_RUN_OF_R = OWN_AGENT_OF.format("r")
_OWN_BATCH = "t.org_id = :org_id"
_OWN: Mapping[CallbackOwner, str] = {"runs": _OWN_RUN, "batches": _OWN_BATCH}
_KEPT: Mapping[str, str] = {
    **{table: f"t.callback_due_at IS NOT NULL AND {own}" for table, own in _OWN.items()},
    **{one.name: f"t.callback IS NOT NULL AND {_OWN_RUN}" for one in feature_tables() if one.has_callback},
}


def _store(callback: Callback) -> str:
    fields = {name: getattr(callback, name) for name in callback.__slots__}
    return dump({**fields, "sent_at": callback.sent_at and iso(callback.sent_at)})


def _load(text: str) -> Callback:
    fields = load(text)
    return Callback(**{**fields, "sent_at": fields["sent_at"] and from_iso(fields["sent_at"])})


CALLBACK = Codec(_store, _load)


def unended(batch_id: str) -> str:
    """SQL that is true for a batch with runs that have not ended; `batch_id` is the column of its id."""
    return (
        f"EXISTS (SELECT 1 FROM runs r WHERE r.batch_id = {batch_id} AND r.status IN ('queued', 'running')"
        f" AND {_OWN_RUN_OF_R})"
    )


_HAS_RUNS = f"EXISTS (SELECT 1 FROM runs r WHERE r.batch_id = t.id AND {_OWN_RUN_OF_R})"
"""The condition of batches that have not lost all their agents: what those leave is not reported."""
_READY: Mapping[CallbackOwner, str] = {
    "runs": f"t.status NOT IN ('queued', 'running') AND {_OWN_RUN}",
    "batches": f"NOT {unended('t.id')} AND {_OWN_BATCH} AND {_HAS_RUNS}",
}
"""Table -> the condition of its rows whose end can be reported."""


class Callbacks(Table):
    """A row of `runs` or `batches` with a callback has the time of its next try in `callback_due_at`; NULL: no more."""

    def request(self, run: Run, callback: Callback, *, at: datetime) -> Run:
        """Store where the end of a new run is to be reported; return the run with it."""
        self._run(
            "UPDATE runs AS t SET callback = :callback, callback_due_at = :at"
            f" WHERE t.agent_id = :agent_id AND t.seq = :seq AND {_OWN['runs']}",
            callback=_store(callback),
            at=iso(at),
            **run.key._asdict(),
        )
        return replace(run, callback=callback)

    def list_due(self, *, at: datetime, limit: int) -> Sequence[DueCallback]:
        """Return the first `limit` callbacks that are due at this time, of runs and of ended batches, oldest first."""
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

    def change_all(self, change: Callable[[Callback], Callback]) -> int:
        """Change the callbacks that may still be used, those of schedules too, and return how many differ now."""
        changed = 0
        for table, own in _KEPT.items():
            for id_, before in self._rows(f"SELECT t.id, t.callback FROM {table} t WHERE {own} ORDER BY t.id"):
                if (after := _store(change(_load(before)))) != before:
                    sql = f"UPDATE {table} AS t SET callback = :after WHERE t.id = :id AND callback = :before AND {own}"
                    changed += self._run_counted(sql, after=after, id=id_, before=before)
        return changed

    def put(self, due: DueCallback, callback: Callback, *, due_at: datetime | None) -> DueCallback | None:
        """Store a callback with the time of its next try, `due_at` (None: there is none), and return it as stored;
        None: another process has stored it since `due` was read."""
        changed = self._run_counted(
            f"UPDATE {due.owner} AS t SET callback = :callback, callback_due_at = :next"
            f" WHERE t.id = :id AND t.callback_due_at = :due_at AND {_OWN[due.owner]}",
            callback=_store(callback),
            next=due_at and iso(due_at),
            id=due.id,
            due_at=iso(due.due_at),
        )
        return replace(due, callback=callback, due_at=due_at or due.due_at) if changed else None


_BATCH = RowFormat(Batch, {CALLBACK: "callback"}, columns="id, number, digest, created_at, callback")
_INSERT = insert_into("batches", f"{_BATCH.columns}, callback_due_at, org_id")
# From a run's first message to that of the next run of its conversation, or each run of an agent would read all its
# later messages. A run that goes on with answered calls begins before those that waited, whose numbers are lower.
_MESSAGES = f"""
    SELECT m.id, m.agent_id, m.seq FROM runs r CROSS JOIN messages m
    WHERE r.batch_id = :batch_id AND {_OWN_RUN_OF_R}
      AND m.agent_id = r.agent_id AND m.conversation_seq = r.conversation_seq AND m.run_seq = r.seq
      AND m.seq >= r.first_message_seq AND m.seq < COALESCE(
          (SELECT n.first_message_seq FROM runs n WHERE n.agent_id = r.agent_id AND n.seq > r.seq
             AND n.conversation_seq = r.conversation_seq AND n.first_message_seq > r.first_message_seq
           ORDER BY n.seq LIMIT 1), 9223372036854775807)
      AND m.role IN ('assistant', 'tool') AND m.kind IN ('message', 'approval') AND m.removed = 0
"""


class Batches(Table):
    def add(self, batch: Batch) -> Batch:
        """Add a batch, and return it with its number; its runs are added as such. A callback is due when they end."""
        batch = replace(batch, number=next_number(self._db))
        self._run(_INSERT, callback_due_at=batch.callback and iso(batch.created_at), **_BATCH.params(batch))
        return batch

    def find(self, batch_id: BatchId, *, deleted: bool = False) -> Batch | None:
        """Return a batch and its number of runs; with `deleted` also a deleted one (only its place)."""
        sql = f"SELECT {_BATCH.columns} FROM batches WHERE id = :id AND org_id = :org_id"
        found = self._counted(self._all(_BATCH, sql, id=storable(batch_id)))
        if deleted and not found:
            for number, at in deleted_place(self._db, self._org_id, batch_id, ("number", "created_at")):
                return Batch(id=batch_id, number=number, digest="", created_at=from_iso(at))
        return found[0] if found else None

    def get(self, batch_id: BatchId, *, deleted: bool = False) -> Batch:
        """As `find`. Raises: NotFound."""
        return first(list(filter(None, [self.find(batch_id, deleted=deleted)])), "job", batch_id)

    def page(
        self,
        *,
        only_unended: bool = False,
        ascending: bool = False,
        limit: int = 100,
        after: Batch | datetime | None = None,
        before: Batch | datetime | None = None,
    ) -> Sequence[Batch]:
        """Return batches in order of creation, between `after` and `before`. A time comes after its batches."""
        where = Conditions("t.org_id = :org_id")
        if only_unended:
            where.add(unended("t.id"))
        places = [None if cursor is None else _list_position(cursor) for cursor in (after, before)]
        select, columns = f"SELECT {_BATCH.columns_of('t')} FROM batches t", ("t.created_at", "t.number")
        return self._counted(self._page(_BATCH, select, where, columns, places, ascending=ascending, limit=limit))

    def list_message_ids(
        self, batch_id: BatchId, *, agent_id: AgentId | None = None
    ) -> Sequence[tuple[MessageId, AgentId, int]]:
        """Return (id, agent, number) of a batch's answers and tool results, oldest first; all agents' by default."""
        of_agent = "" if agent_id is None else " AND r.agent_id = :agent_id"
        rows = self._rows(
            f"{_MESSAGES}{of_agent} ORDER BY m.created_at, m.agent_id, m.seq", batch_id=batch_id, agent_id=agent_id
        )
        return [(MessageId(row[0]), AgentId(row[1]), row[2]) for row in rows]

    def delete(self, batch_id: BatchId) -> None:
        """Delete a batch; its runs stay, and belong to none. Raises: NotFound."""
        batch = self.get(batch_id)
        place = {"number": batch.number, "created_at": iso(batch.created_at)}
        keep_places(self._db, self._org_id, {batch.id: place})
        sql = "DELETE FROM batches WHERE id = :id AND org_id = :org_id"
        self._change_one("job", batch_id, sql, id=storable(batch_id))
        self._run(f"UPDATE runs AS r SET batch_id = NULL WHERE r.batch_id = :id AND {_OWN_RUN_OF_R}", id=batch_id)

    def _counted(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """The batches with the counts of their runs, and the time when the last one ended."""
        where = Conditions(_OWN_RUN_OF_R)
        where.among("r.batch_id", [batch.id for batch in batches])
        rows = self._rows(
            f"SELECT r.batch_id, r.status, COUNT(*), MAX(r.ended_at) FROM runs r WHERE {where}"
            " GROUP BY r.batch_id, r.status",
            **where.params,
        )
        counts: defaultdict[str, dict[RunStatus, int]] = defaultdict(dict)
        ends: dict[str, str] = {}
        for batch_id, status, count, ended_at in rows:
            counts[batch_id][status] = count
            ends[batch_id] = max(ends.get(batch_id, ""), ended_at or "")
        return [
            replace(
                batch,
                runs=counts[batch.id],
                ended_at=from_iso(end) if (end := ends.get(batch.id)) else None,
                callback=batch.callback if counts[batch.id] else None,  # it goes with the last agent, in small steps
            )
            for batch in batches
        ]


def _list_position(cursor: Batch | datetime) -> tuple[str, int]:
    """Return the position of a batch in lists: (time, number); a time stands after all batches of that time."""
    return (iso(cursor), 2**62) if isinstance(cursor, datetime) else (iso(cursor.created_at), cursor.number)
