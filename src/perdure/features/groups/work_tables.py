"""The turns of groups, where single statements decide which process may work on one; and the passes of companions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.blocks import WORKING_CHECKPOINT
from perdure.core.ids import AgentId, GroupId, MessageId, RunId
from perdure.core.runs import Failure
from perdure.features.groups.tables import OWN_GROUP
from perdure.features.groups.values import (
    GroupMember,
    GroupPlan,
    GroupStopReason,
    GroupTurn,
    Pass,
    PassOutcome,
    group_status_of,
)
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables.leases import UNENDED, LeasedTable
from perdure.storage.tables.runs import FAILURE, USAGE
from perdure.storage.tables.table import OWN_AGENT, Table, first, own_agent


def _store_plan(plan: GroupPlan) -> str:
    fields = {name: getattr(plan, name) for name in plan.__slots__}
    members = [_fields_of(participant) for participant in plan.participants]
    return row_format.dump({**fields, "participants": members, "manager": plan.manager and _fields_of(plan.manager)})


def _fields_of(member: GroupMember) -> dict[str, Any]:
    return {name: getattr(member, name) for name in member.__slots__}


def _load_plan(text: str) -> GroupPlan:
    """Read a plan from its JSON, as `_store_plan` writes it."""
    fields: Mapping[str, Any] = row_format.load(text)
    participants = tuple(GroupMember(**member) for member in fields["participants"])
    manager = None if fields["manager"] is None else GroupMember(**fields["manager"])
    return GroupPlan(**{**fields, "participants": participants, "manager": manager})


_TURN = row_format.RowFormat(
    GroupTurn, {FAILURE: "failure", row_format.Codec(_store_plan, _load_plan): "plan", USAGE: "usage"}
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
    _oldest = _OLDEST

    def add(self, turn: GroupTurn, waiting_input: str, *, idempotency_key: str | None, digest: str) -> GroupTurn:
        """Add a queued turn, reserved for the accepting process; return it numbered. Raises: NotFound: the group.

        Args:
            waiting_input: the encoded messages of the user; they are appended to the transcript when the turn begins.
        """
        turn = replace(turn, seq=self._take("groups", "turn_seq", turn.group_id, "group"))
        self._run(
            row_format.insert_into("group_turns", f"{_TURN.columns}, input, idempotency_key, digest"),
            input=row_format.storable(waiting_input),
            idempotency_key=None if idempotency_key is None else row_format.storable(idempotency_key),
            digest=digest,
            **{**_TURN.params(turn), "usage": USAGE.store(turn.usage)},
        )
        return turn

    def get(self, group_id: GroupId, seq: int) -> GroupTurn:
        """The turn of a group with this number. Raises: NotFound."""
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

    def begin(self, turn: GroupTurn, plan: GroupPlan) -> tuple[GroupTurn, str | None]:
        """Store the settings of a claimed turn; return it, and its encoded input, which is deleted from the row."""
        key = {"group_id": turn.group_id, "seq": turn.seq}
        text = self._value(f"SELECT input FROM group_turns WHERE {_OWN}", **key)
        self._set("group_turns", key, OWN_GROUP, plan=_store_plan(plan), input=None)
        return replace(turn, plan=plan), None if text is None else row_format.restore(text)

    def spend(self, turn: GroupTurn) -> None:
        """Store what the runs of a turn have used."""
        used = _TURN.params(turn, "step_count, cost_usd")
        self._set("group_turns", _TURN.params(turn, self._key), OWN_GROUP, usage=USAGE.store(turn.usage), **used)

    def end(self, turn: GroupTurn, reason: GroupStopReason, *, failure: Failure | None, at: datetime) -> GroupTurn:
        """End a turn. One that has ended already stays as it is. Raises: NotFound."""
        ended = replace(turn, status=group_status_of(reason), stop_reason=reason, failure=failure)
        return self._end(ended, at=at, changes=", input = NULL") or self.get(turn.group_id, turn.seq)


_PASS = row_format.RowFormat(Pass)
_SELECT_PASS = f"SELECT {_PASS.columns_of('p')} FROM companion_passes p"
_OWN_PASS = "EXISTS (SELECT 1 FROM agents a WHERE a.id = p.agent_id AND a.org_id = :org_id)"
RUNS_MAX = 10_000
"""The newest runs of an agent among which its turns are counted."""


class Passes(Table):
    """The passes of companions, numbered for each agent."""

    def add(self, pass_: Pass) -> Pass:
        """Add a pass, and return it with its number. The caller has locked the agent. Raises: NotFound: the agent."""
        own = own_agent(self._db, self._org_id, pass_.agent_id)
        pass_ = replace(pass_, number=self._next("companion_passes", "number", agent_id=own))
        self._run(row_format.insert_into("companion_passes", _PASS.columns), **_PASS.params(pass_))
        return pass_

    def end(self, pass_: Pass, outcome: PassOutcome, *, at: datetime) -> Pass | None:
        """End a pass, and return it as stored; None: it had ended before, or was deleted with its agent."""
        return self._change(pass_, outcome=outcome, ended_at=at)

    def ask(self, pass_: Pass) -> Pass:
        """Note that a person asks for a pass that goes on."""
        return self._change(pass_, cause="request") or pass_

    def narrow(self, pass_: Pass, *, upto_seq: int, last_message_id: MessageId) -> Pass:
        """Have a pass that goes on read fewer messages than it began with."""
        return self._change(pass_, upto_seq=upto_seq, last_message_id=last_message_id, is_full=True) or pass_

    def _change(self, pass_: Pass, **changes: Any) -> Pass | None:
        """Change a pass that goes on, and return it; None: it has ended, or is gone with its agent."""
        names = ", ".join(changes)
        return self._one(
            _PASS,
            f"UPDATE companion_passes SET {row_format.assignments(names)} WHERE agent_id = :agent_id"
            f" AND number = :number AND ended_at IS NULL AND {OWN_AGENT} RETURNING {_PASS.columns}",
            **_PASS.params(replace(pass_, **changes), f"agent_id, number, {names}"),
        )

    def find_last(self, agent_id: AgentId, group_id: GroupId) -> Pass | None:
        """The newest pass of a group."""
        found = self._read("p.agent_id = :agent_id AND p.group_id = :group_id", 1, agent_id=agent_id, group_id=group_id)
        return found[0] if found else None

    def find_by_run(self, run_id: RunId) -> Pass | None:
        """The pass whose run this is."""
        found = self._read("p.run_id = :run_id", 1, run_id=run_id)
        return found[0] if found else None

    def list(
        self, agent_id: AgentId, *, limit: int, before: int | None = None, since: datetime | None = None
    ) -> Sequence[Pass]:
        """The passes for an agent, newest first: those with a number below `before`, that ended after `since`."""
        where = Conditions("p.agent_id = :agent_id")
        where.add("p.number < ?", before)
        where.add("p.ended_at > ?", since and row_format.iso(since))
        return self._read(str(where), limit, agent_id=agent_id, **where.params)

    def list_unended(self, *, limit: int, until: datetime | None = None) -> Sequence[Pass]:
        """Passes of all agents that go on, oldest first; only those that began before `until`."""
        where = Conditions("p.ended_at IS NULL", _OWN_PASS)
        where.add("p.created_at < ?", until and row_format.iso(until))
        order = "p.created_at, p.agent_id, p.number"
        return self._all(
            _PASS, f"{_SELECT_PASS} WHERE {where} ORDER BY {order} LIMIT :limit", limit=limit, **where.params
        )

    def list_isolated(self, agent_id: AgentId) -> frozenset[int]:
        """The numbers of conversations with own blocks, besides working notes: what is said there is for these only."""
        rows = self._rows(
            "SELECT DISTINCT conversation_seq FROM conversation_blocks"
            f" WHERE agent_id = :agent_id AND label <> :notes AND {OWN_AGENT}",
            agent_id=agent_id,
            notes=WORKING_CHECKPOINT,
        )
        return frozenset(row[0] for row in rows)

    def count_turns(self, agent_id: AgentId, *, from_seq: int, after_run_seq: int) -> int:
        """How many answered runs of an agent begin at message `from_seq` or later, without isolated conversations."""
        rows = self._rows(
            "SELECT r.conversation_seq, COUNT(*) FROM (SELECT conversation_seq, first_message_seq, status, stop_reason"
            " FROM runs WHERE agent_id = :agent_id AND seq > :after ORDER BY seq DESC LIMIT :most) r"
            " WHERE r.first_message_seq >= :from_seq AND r.status = 'completed'"
            f" AND r.stop_reason <> 'requires_approval' AND {OWN_AGENT} GROUP BY r.conversation_seq",
            agent_id=agent_id,
            after=after_run_seq,
            from_seq=from_seq,
            most=RUNS_MAX,
        )
        isolated = self.list_isolated(agent_id) if rows else frozenset()
        return sum(row[1] for row in rows if row[0] not in isolated)

    def last_run_seq(self, agent_id: AgentId) -> int:
        """The number of the agent's newest run; -1: it has none."""
        sql = "SELECT run_seq - 1 FROM agents WHERE id = :agent_id AND org_id = :org_id"
        found = self._value(sql, agent_id=agent_id)
        return -1 if found is None else int(found)

    def _read(self, where: str, limit: int, **params: object) -> Sequence[Pass]:
        """Passes, newest first."""
        sql = f"{_SELECT_PASS} WHERE {where} AND {_OWN_PASS} ORDER BY p.number DESC LIMIT :limit"
        return self._all(_PASS, sql, limit=limit, **params)
