"""`tx.of(Schedules)`: the schedules of agents, and what became of their due times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime, time

from perdure.core.ids import AgentId, ScheduleId
from perdure.core.messages import Image, Text, parts_from_json, parts_to_json
from perdure.features.schedules.values import (
    Action,
    Firing,
    QuietHours,
    Schedule,
    ScheduledMessage,
    ScheduleStatus,
    ScheduleTiming,
)
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables.batches import CALLBACK
from perdure.storage.tables.table import OWN_AGENT, Table, deleted_place, first, keep_places, own_agent

FIRINGS_KEPT = 1_000
"""How many firings of a schedule are kept."""
ENDED_KEPT = 200
"""How many schedules of an agent are kept that fire no more."""

_OWN = "EXISTS (SELECT 1 FROM agents a WHERE a.id = s.agent_id AND a.org_id = :org_id)"
_TIMES = ("at", "starts_at", "ends_at")


def _store_timing(timing: ScheduleTiming) -> str:
    """Return a timing as JSON for its column, without the fields that are None."""
    shape = {field.name: getattr(timing, field.name) for field in fields(timing)}
    shape |= {name: shape[name] and row_format.iso(shape[name]) for name in _TIMES}
    if timing.quiet is not None:
        shape["quiet"] = [f"{timing.quiet.start:%H:%M}", f"{timing.quiet.end:%H:%M}", timing.quiet.then]
    return row_format.dump({name: value for name, value in shape.items() if value is not None})


def _load_timing(text: str) -> ScheduleTiming:
    shape = row_format.load(text)
    shape |= {name: row_format.from_iso(shape[name]) for name in _TIMES if name in shape}
    if "quiet" in shape:
        start, end, then = shape["quiet"]
        shape["quiet"] = QuietHours(start=time.fromisoformat(start), end=time.fromisoformat(end), then=then)
    return ScheduleTiming(**shape)


def _store_messages(messages: Sequence[ScheduledMessage]) -> str:
    names = [field.name for field in fields(ScheduledMessage) if field.name != "parts"]
    shapes = [{name: getattr(one, name) for name in names} | {"parts": parts_to_json(one.parts)} for one in messages]
    return row_format.dump(shapes)


def _load_messages(text: str) -> tuple[ScheduledMessage, ...]:
    messages = []
    for shape in row_format.load(text):
        parts = tuple(part for part in parts_from_json(shape.pop("parts")) if isinstance(part, Text | Image))
        messages.append(ScheduledMessage(parts=parts, **shape))
    return tuple(messages)


_SCHEDULE = row_format.RowFormat(
    Schedule,
    {
        row_format.Codec(_store_timing, _load_timing): "timing",
        row_format.Codec(_store_messages, _load_messages): "messages",
        CALLBACK: "callback",
    },
)
_FIRING = row_format.RowFormat(Firing)
_SELECT = f"SELECT {_SCHEDULE.columns_of('s')} FROM schedules s"
_OF_SCHEDULE = f"agent_id = :agent_id AND schedule_seq = :schedule_seq AND {OWN_AGENT}"


class Schedules(Table):
    """The schedules of an organisation, and their firings, in one transaction."""

    def add(self, schedule: Schedule) -> Schedule:
        """Add a schedule, and return it with its number; of the agent's that have ended, only `ENDED_KEPT` stay.
        Raises: NotFound: the agent; TooMany."""
        own = own_agent(self._db, self._org_id, schedule.agent_id, lock=True)
        self._check_room(schedule)
        schedule = replace(schedule, seq=self._next("schedules", "seq", agent_id=own))
        self._run(
            row_format.insert_into("schedules", _SCHEDULE.columns), **_SCHEDULE.params(schedule) | {"agent_id": own}
        )
        self._db.signal("schedules")
        old = self._rows(
            "SELECT s.id FROM schedules s WHERE s.agent_id = :agent_id AND s.status NOT IN ('active', 'paused')"
            " ORDER BY s.seq DESC LIMIT 10 OFFSET :kept",
            agent_id=own,
            kept=ENDED_KEPT,
        )
        for (schedule_id,) in old:
            self.delete(ScheduleId(schedule_id))
        return schedule

    def count_active(self, agent_id: AgentId, *, made_by: str | None = None) -> int:
        """Count the schedules of an agent that still fire; with `made_by`, `user` or `agent`, only those made by it."""
        where = Conditions("s.agent_id = :agent_id", "s.status = 'active'", _OWN)
        where.equal("s.made_by", made_by)
        return int(self._value(f"SELECT COUNT(*) FROM schedules s WHERE {where}", agent_id=agent_id, **where.params))

    def get(self, schedule_id: ScheduleId, agent_id: AgentId | None = None) -> Schedule:
        """Return the schedule of this id, which has to be `agent_id`'s, if one is given. Raises: NotFound."""
        where = Conditions("s.id = :id", _OWN)
        where.equal("s.agent_id", agent_id)
        rows = self._rows(f"{_SELECT} WHERE {where}", id=row_format.storable(schedule_id), **where.params)
        return _SCHEDULE.read(first(rows, "schedule" if agent_id is None else "schedule of this agent", schedule_id))

    def page(
        self,
        agent_id: AgentId | None,
        *,
        statuses: Sequence[ScheduleStatus] | None = None,
        limit: int = 50,
        after: ScheduleId | None = None,
    ) -> Sequence[Schedule]:
        """A page of an agent's schedules, or of all agents', in order of creation, behind the schedule `after`. Raises:
        NotFound: the schedule of the cursor."""
        where = Conditions(_OWN)
        where.equal("s.agent_id", agent_id)
        where.among("s.status", statuses)
        if after is not None:
            sql = f"SELECT s.agent_id, s.seq FROM schedules s WHERE s.id = :id AND {_OWN}"
            rows = self._rows(sql, id=row_format.storable(after))
            rows = rows or deleted_place(self._db, self._org_id, after, ("agent_id", "seq"))
            rows = [row for row in rows if agent_id in (None, row[0])]
            where.add("(s.agent_id, s.seq) > (?, ?)", *first(rows, "schedule", after))
        sql = f"{_SELECT} WHERE {where} ORDER BY s.agent_id, s.seq LIMIT :limit"
        return self._all(_SCHEDULE, sql, limit=limit, **where.params)

    def list_due(self, *, at: datetime, limit: int) -> Sequence[Schedule]:
        """List the due schedules of all agents, those that have waited longest first."""
        sql = f"{_SELECT} WHERE s.next_at <= :at AND {_OWN} ORDER BY s.next_at, s.id LIMIT :limit"
        return self._all(_SCHEDULE, sql, at=row_format.iso(at), limit=limit)

    def next_due(self, *, since: datetime) -> datetime | None:
        """Return the earliest due time of any schedule after `since`; None: there is none."""
        sql = f"SELECT MIN(s.next_at) FROM schedules s WHERE s.next_at > :since AND {_OWN}"
        found = self._value(sql, since=row_format.iso(since))
        return found and row_format.from_iso(found)

    def advance(self, schedule: Schedule, firing: Firing, *, next_at: datetime | None, at: datetime) -> Schedule | None:
        """Store what became of the schedule's due time, and the next one; with `next_at` None it has ended. Return the
        schedule as it is now; None: another process has dealt with the due time, or has changed the schedule. Firings
        before the newest `FIRINGS_KEPT` are removed."""
        assert schedule.next_at is not None
        changed = replace(
            schedule,
            next_at=next_at,
            status="active" if next_at is not None else "ended",
            firings=schedule.firings + (firing.outcome == "fired"),
            updated_at=at,
        )
        columns = "next_at, status, firings, updated_at"
        done = self._run_counted(
            f"UPDATE schedules AS s SET {row_format.assignments(columns)} WHERE s.id = :id AND s.status = 'active'"
            f" AND s.next_at = :due_at AND s.firings = :before AND {_OWN}",
            id=schedule.id,
            due_at=row_format.iso(schedule.next_at),
            before=schedule.firings,
            **_SCHEDULE.params(changed, columns),
        )
        if not done:
            return None
        place = {"agent_id": schedule.agent_id, "schedule_seq": schedule.seq}
        firing = replace(firing, seq=self._next("schedule_firings", "seq", **place))
        sql = row_format.insert_into("schedule_firings", f"agent_id, schedule_seq, {_FIRING.columns}")
        self._run(sql, **place, **_FIRING.params(firing))
        self._run(
            f"DELETE FROM schedule_firings WHERE {_OF_SCHEDULE} AND seq <= :old", old=firing.seq - FIRINGS_KEPT, **place
        )
        return changed

    def put_next(
        self, schedule: Schedule, status: ScheduleStatus, next_at: datetime | None, *, at: datetime
    ) -> Schedule:
        """Store whether and when a schedule fires next; return it. One that was changed since it was read is left
        alone. Raises: TooMany: it fires again, and the agent has enough others."""
        if status == "active":
            self._check_room(schedule)
        changed = replace(schedule, status=status, next_at=next_at, updated_at=at)
        columns = "status, next_at, updated_at"
        self._run(
            f"UPDATE schedules AS s SET {row_format.assignments(columns)}"
            f" WHERE s.id = :id AND s.status = :before AND {_OWN}",
            id=schedule.id,
            before=schedule.status,
            **_SCHEDULE.params(changed, columns),
        )
        self._db.signal("schedules")
        return self.get(schedule.id)

    def _check_room(self, schedule: Schedule) -> None:
        """Check that the agent may have one more schedule that fires. Raises: TooMany."""
        self._limits.check("schedules_per_agent", 1 + self.count_active(schedule.agent_id))
        if schedule.made_by == "agent":
            self._limits.check("own_schedules_per_agent", 1 + self.count_active(schedule.agent_id, made_by="agent"))

    def cancel(self, schedule: Schedule, *, at: datetime) -> Schedule:
        """End a schedule; one that has ended is not changed."""
        if schedule.status not in ("active", "paused"):
            return schedule
        self._cancel("s.id = :id", id=schedule.id, at=row_format.iso(at))
        return self.get(schedule.id)

    def cancel_all(self, agent_id: AgentId, action: Action, *, at: datetime) -> None:
        """End all schedules of an agent with this action."""
        condition = "s.agent_id = :agent_id AND s.action = :action"
        self._cancel(condition, agent_id=agent_id, action=action, at=row_format.iso(at))

    def _cancel(self, condition: str, **params: str) -> None:
        """End the active schedules that an SQL condition on `schedules s` selects; `params` has its values and `at`."""
        cancelled = "status = 'cancelled', next_at = NULL, updated_at = :at"
        self._run(
            f"UPDATE schedules AS s SET {cancelled} WHERE {condition} AND s.status IN ('active', 'paused') AND {_OWN}",
            **params,
        )

    def delete(self, schedule_id: ScheduleId) -> None:
        """Delete a schedule with its firings, of which there are at most `FIRINGS_KEPT`. Raises: NotFound."""
        schedule = self.get(schedule_id)
        self._run(
            f"DELETE FROM schedule_firings WHERE {_OF_SCHEDULE}", agent_id=schedule.agent_id, schedule_seq=schedule.seq
        )
        sql = f"DELETE FROM schedules AS s WHERE s.id = :id AND {_OWN}"
        self._change_one("schedule", schedule_id, sql, id=schedule.id)
        place = {"agent_id": schedule.agent_id, "seq": schedule.seq}
        keep_places(self._db, self._org_id, {schedule.id: place})

    def list_firings(self, schedule: Schedule, *, limit: int = 20, before_seq: int | None = None) -> Sequence[Firing]:
        """Firings of a schedule, the newest first, before number `before_seq`."""
        where = Conditions(_OF_SCHEDULE)
        where.between("seq", None, before_seq)
        return self._all(
            _FIRING,
            f"SELECT {_FIRING.columns} FROM schedule_firings WHERE {where} ORDER BY seq DESC LIMIT :limit",
            agent_id=schedule.agent_id,
            schedule_seq=schedule.seq,
            limit=limit,
            **where.params,
        )
