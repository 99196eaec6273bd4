"""`tx.group_turns`: the turns of groups. Single statements decide which process may work on one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.groups.group import GroupMember, GroupPlan, GroupStopReason, GroupTurn, group_status_of
from perdure.core.ids import GroupId
from perdure.core.runs import Failure
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables.groups.groups import OWN_GROUP
from perdure.storage.tables.leases import UNENDED, LeasedTable
from perdure.storage.tables.runs import FAILURE, USAGE
from perdure.storage.tables.table import first


def _store_plan(plan: GroupPlan) -> str:
    fields = {name: getattr(plan, name) for name in plan.__slots__}
    members = [_fields_of(one) for one in plan.participants]
    return row_format.dump({**fields, "participants": members, "manager": plan.manager and _fields_of(plan.manager)})


def _fields_of(member: GroupMember) -> dict[str, Any]:
    return {name: getattr(member, name) for name in member.__slots__}


def _load_plan(text: str) -> GroupPlan:
    fields: Mapping[str, Any] = row_format.load(text)
    participants = tuple(GroupMember(**one) for one in fields["participants"])
    manager = None if fields["manager"] is None else GroupMember(**fields["manager"])
    return GroupPlan(**{**fields, "participants": participants, "manager": manager})


_TURN = row_format.RowFormat(
    GroupTurn,
    "group_id, seq, status, stop_reason, failure, plan, hops, max_steps, usage, step_count, cost_usd,"
    " cancel_requested, lease_owner, lease_number, lease_until, created_at, started_at, ended_at",
    {
        FAILURE: "failure",
        row_format.Codec(_store_plan, _load_plan): "plan",
        USAGE: "usage",
        row_format.FLAG: "cancel_requested",
        row_format.TIME: "lease_until created_at started_at ended_at",
    },
)
_OWN = f"group_id = :group_id AND seq = :seq AND {OWN_GROUP}"
_OWN_OF_R = "EXISTS (SELECT 1 FROM groups g WHERE g.id = r.group_id AND g.org_id = :org_id)"

# Only the oldest unended turn of a group may run.
_OLDEST = (
    "NOT EXISTS (SELECT 1 FROM group_turns o WHERE o.group_id = r.group_id AND o.seq < r.seq"
    " AND o.status IN ('queued', 'running'))"
)


class GroupTurns(LeasedTable[GroupTurn]):
    _table, _format, _key, _own, _own_of = "group_turns", _TURN, "group_id, seq", _OWN, _OWN_OF_R

    def add(self, turn: GroupTurn, waiting_input: str, *, idempotency_key: str | None, digest: str) -> GroupTurn:
        """Add a queued turn, reserved for the process that accepted it, and return it with its number. Raises:
        NotFound: the group.

        Args:
            waiting_input: the encoded messages of the user; they are appended to the transcript when the turn begins.
        """
        rows = self._rows(
            "UPDATE groups SET turn_seq = turn_seq + 1 WHERE id = :id AND org_id = :org_id RETURNING turn_seq - 1",
            id=turn.group_id,
        )
        turn = replace(turn, seq=int(first(rows, "group", turn.group_id)[0]))
        self._run(
            row_format.insert_into("group_turns", f"{_TURN.columns}, input, idempotency_key, digest"),
            input=row_format.storable(waiting_input),
            idempotency_key=None if idempotency_key is None else row_format.storable(idempotency_key),
            digest=digest,
            **{**_TURN.params(turn), "usage": USAGE.store(turn.usage)},
        )
        return turn

    def get(self, group_id: GroupId, seq: int) -> GroupTurn:
        """Raises: NotFound."""
        sql = f"SELECT {_TURN.columns} FROM group_turns WHERE {_OWN}"
        rows = self._rows(sql, group_id=row_format.storable(group_id), seq=seq)
        return _TURN.read(first(rows, "group turn", f"{seq} of {group_id}"))

    def find_by_key(self, group_id: GroupId, idempotency_key: str) -> tuple[GroupTurn, str] | None:
        """The turn with this idempotency key, and the digest of its input."""
        rows = self._rows(
            f"SELECT {_TURN.columns}, digest FROM group_turns"
            f" WHERE group_id = :group_id AND idempotency_key = :key AND {OWN_GROUP}",
            group_id=row_format.storable(group_id),
            key=row_format.storable(idempotency_key),
        )
        return (_TURN.read(rows[0]), rows[0][-1]) if rows else None

    def list(self, group_id: GroupId, *, limit: int = 50, before_seq: int | None = None) -> Sequence[GroupTurn]:
        """The turns of a group, newest first."""
        where = Conditions("group_id = :group_id", OWN_GROUP, group_id=row_format.storable(group_id))
        where.add("seq < ?", before_seq)
        sql = f"SELECT {_TURN.columns} FROM group_turns WHERE {where} ORDER BY seq DESC LIMIT :limit"
        return self._all(_TURN, sql, limit=limit, **where.params)

    def find_active(self, group_id: GroupId) -> GroupTurn | None:
        """The oldest turn of a group that has not ended: the only one that may be claimed."""
        return self._one(
            _TURN,
            f"SELECT {_TURN.columns} FROM group_turns WHERE group_id = :group_id AND {UNENDED} AND {OWN_GROUP}"
            " ORDER BY seq LIMIT 1",
            group_id=row_format.storable(group_id),
        )

    def list_oldest(self, *, limit: int = 1_000) -> Sequence[GroupTurn]:
        """The oldest unended turn of every group, oldest first."""
        sql = (
            f"SELECT {_TURN.columns_of('r')} FROM group_turns r WHERE r.{UNENDED} AND {_OLDEST} AND {_OWN_OF_R}"
            " ORDER BY r.created_at, r.group_id, r.seq LIMIT :limit"
        )
        return self._all(_TURN, sql, limit=limit)

    def claim(
        self, group_id: GroupId, seq: int, *, owner: str, at: datetime, until: datetime, dead_owner: str | None = None
    ) -> GroupTurn | None:
        """Claim a turn under a new lease of `owner`. None: it has ended, is not the oldest of its group, or another
        lease holds. `dead_owner`: a process known to be dead, whose lease does not count."""
        key = {"group_id": row_format.storable(group_id), "seq": seq}
        return self._claim(key, _OLDEST, owner=owner, at=at, until=until, dead_owner=dead_owner)

    def begin(self, turn: GroupTurn, plan: GroupPlan) -> tuple[GroupTurn, str | None]:
        """Store the settings that a claimed turn goes by; the turn, and its encoded input, which is stored no more."""
        key = {"group_id": turn.group_id, "seq": turn.seq}
        rows = self._rows(f"SELECT input FROM group_turns WHERE {_OWN}", **key)
        self._run(f"UPDATE group_turns SET plan = :plan, input = NULL WHERE {_OWN}", plan=_store_plan(plan), **key)
        text = row_format.restore(rows[0][0]) if rows and rows[0][0] is not None else None
        return replace(turn, plan=plan), text

    def request_cancel(self, group_id: GroupId, seq: int) -> bool:
        """Request a turn's end. Whether it was unended and had no such request yet."""
        return self._request_cancel({"group_id": row_format.storable(group_id), "seq": seq})

    def spend(self, turn: GroupTurn) -> None:
        """Store what the runs of a turn have used."""
        self._run(
            f"UPDATE group_turns SET usage = :usage, step_count = :step_count, cost_usd = :cost_usd WHERE {_OWN}",
            usage=USAGE.store(turn.usage),
            **_TURN.params(turn, "group_id, seq, step_count, cost_usd"),
        )

    def end(self, turn: GroupTurn, reason: GroupStopReason, *, failure: Failure | None, at: datetime) -> GroupTurn:
        """End a turn. One that has ended already stays as it is. Raises: NotFound."""
        ended = replace(
            turn,
            status=group_status_of(reason),
            stop_reason=reason,
            failure=failure,
            lease_owner=None,
            lease_until=None,
            ended_at=at,
        )
        is_changed = self._end(ended, "status, stop_reason, failure, ended_at", ", input = NULL")
        return ended if is_changed else self.get(turn.group_id, turn.seq)
