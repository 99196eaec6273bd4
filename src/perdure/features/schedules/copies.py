"""The schedules of an agent in its copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from perdure.core.errors import ScheduleInvalid
from perdure.core.ids import AgentId, Ids, ScheduleId
from perdure.domain.agents.units import COMPANIONS
from perdure.domain.conversations.agent_copies import CopyPart, FileRows
from perdure.features.schedules.tables import Schedules
from perdure.features.schedules.values import Schedule, check_timing
from perdure.storage.tx import Tx

_ALL = 1_000_000


def copy_schedules(tx: Tx, agent_id: AgentId, rows: FileRows) -> Sequence[Schedule]:
    """Return the schedules of the agent's first conversation that go on, without callbacks; part of `CopyPart`."""
    found = tx.of(Schedules).page(agent_id, statuses=["active", "paused"], limit=_ALL, after=None)
    return [replace(schedule, callback=None) for schedule in found if not schedule.conversation_seq]


def restore_schedules(
    tx: Tx, agent_id: AgentId, schedules: Sequence[Schedule], rows: FileRows, ids: Ids, at: datetime
) -> Sequence[str]:
    """Add copied schedules to the agent of a copy; return a sentence for each that can't fire any more."""
    left_out = []
    for schedule in schedules:
        try:
            first = check_timing(schedule.timing, now=at, interval_s=tx.limits.schedule_interval_s)
        except ScheduleInvalid as error:
            left_out.append(f"schedule {schedule.name!r:.80} is left out: {error!s:.200}")
            continue
        if schedule.action == "companion" and not any(COMPANIONS(tx, agent_id)):
            left_out.append(f"schedule {schedule.name!r:.80} is left out: the agent has no companion")
            continue
        own_id = ScheduleId(ids.new("schedule"))
        copied = replace(schedule, id=own_id, agent_id=agent_id, seq=0, conversation_seq=0, callback=None)
        following = None if schedule.status == "paused" else first
        tx.of(Schedules).add(replace(copied, next_at=following, created_at=at, updated_at=at))
    return left_out


SCHEDULES = CopyPart(
    name="schedules",
    kind=Sequence[Schedule],
    hide=lambda schedules, text: text.redact(schedules, ("name", "messages"), text.is_old),
    copy=copy_schedules,
    restore=restore_schedules,
)
