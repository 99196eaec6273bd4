"""Groups and schedules of manifests: both name agents."""

from __future__ import annotations

from typing import Any

from perdure.core.ids import GroupId, ScheduleId
from perdure.core.messages import Text
from perdure.core.text.zones import zone
from perdure.engine.budget import check_agent_size
from perdure.features.groups.tables import Groups
from perdure.features.groups.units import create_group, update_group
from perdure.features.manifests.values import ManifestObject
from perdure.features.manifests.work import ApplyWork, Kind
from perdure.features.schedules.tables import Schedules
from perdure.features.schedules.units import NewSchedule, create_schedule, resume_schedule, timing_of
from perdure.features.schedules.values import Schedule, ScheduledMessage, ScheduleTiming, parse_interval
from perdure.features.schedules.worker import check_schedule

_LIMITS = ("description", "max_turns", "max_tokens", "max_cost_usd", "termination_token")
_COUNTS = ("max_firings", "missed", "missed_limit")
_TIMING = ("at", "cron", "timezone", "ends_at", "in_quiet_hours", *_COUNTS)
SCHEDULES_MAX = 10_000


class GroupKind(Kind):
    """Groups. One that is taken out is hidden, and keeps its transcript."""

    def describe(self, work: ApplyWork, id_: str) -> dict[str, Any]:
        """Return the fields of a group, as a manifest has them."""
        group = work.tx.of(Groups).get(id_)
        found: dict[str, Any] = {"kind": group.kind} | {name: getattr(group, name) for name in _LIMITS}
        found["agents"] = [work.agent_name(agent_id) for agent_id in group.agent_ids]
        found["manager"] = None if group.manager_agent_id is None else work.agent_name(group.manager_agent_id)
        found["shared_blocks"] = [work.name_of("blocks", one, one) for one in group.shared_block_ids]
        return found

    def create(self, work: ApplyWork, thing: ManifestObject) -> str:
        new: Any = {"kind": thing.fields.get("kind", "round_robin"), **self._fields(work, thing)}
        return create_group(work.tx, new, ids=work.ports.ids, at=work.inputs.now).id

    def change(self, work: ApplyWork, id_: str, thing: ManifestObject, changed: set[str]) -> str:
        """Change the group, or replace it by another one of the new kind; return its id."""
        if "kind" in changed:  # a group of another kind is another group
            self.remove(work, id_)
            return self.create(work, thing)
        changes: Any = self._fields(work, thing)
        update_group(work.tx, GroupId(id_), changes, ids=work.ports.ids, at=work.inputs.now)
        work.touch(*work.tx.of(Groups).get(id_).members)
        return id_

    def _fields(self, work: ApplyWork, thing: ManifestObject) -> dict[str, Any]:
        """The fields of a group as units take them. Raises: InvalidInput: there is no such agent or block."""
        found: dict[str, Any] = {name: thing.fields[name] for name in _LIMITS if name in thing.fields}
        if "agents" in thing.fields:
            found["agent_ids"] = [work.agent(thing, f"agents.{name}", name) for name in thing.fields["agents"]]
        if "manager" in thing.fields:
            found["manager_agent_id"] = work.agent(thing, "manager", thing.fields["manager"])
        if "shared_blocks" in thing.fields:
            found["shared_block_ids"] = work.blocks(thing)
        return found

    def is_removed(self, work: ApplyWork, id_: str) -> bool:
        return work.tx.of(Groups).get(id_).hidden

    def restore(self, work: ApplyWork, id_: str) -> None:
        update_group(work.tx, GroupId(id_), {"hidden": False}, ids=work.ports.ids, at=work.inputs.now)

    def remove(self, work: ApplyWork, id_: str) -> str:
        """Hide the group from lists."""
        update_group(work.tx, GroupId(id_), {"hidden": True}, ids=work.ports.ids, at=work.inputs.now)
        return f"lists leave it out; {id_} keeps its transcript until it is deleted"


class ScheduleKind(Kind):
    """Schedules of agents. One that changes is cancelled, and made anew."""

    def find(self, work: ApplyWork, thing: ManifestObject) -> str | None:
        """Return the id of the agent's schedule of this name."""
        if (id_ := super().find(work, thing)) is not None:
            return id_
        agent_id = work.agent(thing, "agent", thing.fields["agent"])
        found = work.tx.of(Schedules).page(agent_id, statuses=("active", "paused"), limit=SCHEDULES_MAX)
        return next((one.id for one in found if one.name == thing.name), None)

    def describe(self, work: ApplyWork, id_: str) -> dict[str, Any]:
        schedule = work.tx.of(Schedules).get(ScheduleId(id_))
        return {"agent": work.agent_name(schedule.agent_id), **describe_schedule(schedule)}

    def create(self, work: ApplyWork, thing: ManifestObject) -> str:
        """Create the schedule that a manifest describes; return its id."""
        fields, tx, at = thing.fields, work.tx, work.inputs.now
        agent_id = work.agent(thing, "agent", fields["agent"])
        message = ScheduledMessage(parts=(Text(fields.get("message", "")),), role=fields.get("role", "system"))
        messages = () if fields.get("companion") else (message,)
        chars = check_schedule(messages, fields.get("max_steps"), work.ports.settings, may_be_empty=not messages)
        check_agent_size(chars, tx.agents.get(agent_id))
        new = _new_schedule(fields, name=thing.name, messages=messages, max_steps=fields.get("max_steps"))
        return create_schedule(tx, work.new_id("schedule"), agent_id, new, made_by="user", at=at).id

    def change(self, work: ApplyWork, id_: str, thing: ManifestObject, changed: set[str]) -> str:
        """Times and intervals may be written otherwise than `describe` writes them: then nothing changes."""
        before, fields = self.describe(work, id_), thing.fields
        timing = timing_of(_new_schedule(fields), before["timezone"], now=work.inputs.now)
        wanted = {**fields, **_describe_timing(timing)}
        if all((before.get(name) or None) == (wanted[name] or None) for name in changed):
            return id_
        self.remove(work, id_)
        return self.create(work, thing)

    def is_removed(self, work: ApplyWork, id_: str) -> bool:
        return work.tx.of(Schedules).get(ScheduleId(id_)).status == "cancelled"

    def restore(self, work: ApplyWork, id_: str) -> None:
        resume_schedule(work.tx, work.tx.of(Schedules).get(ScheduleId(id_)), at=work.inputs.now)

    def remove(self, work: ApplyWork, id_: str) -> str:
        """Cancel the schedule."""
        work.tx.of(Schedules).cancel(work.tx.of(Schedules).get(ScheduleId(id_)), at=work.inputs.now)
        return "it is cancelled"


def describe_schedule(schedule: Schedule) -> dict[str, Any]:
    """The fields of a schedule as a file has them, beside its agent; times are in its zone."""
    found = _describe_timing(schedule.timing) | {"max_steps": schedule.max_steps}
    if schedule.action == "companion":
        return found | {"companion": True}
    texts = [part.text for message in schedule.messages for part in message.parts if isinstance(part, Text)]
    return found | {"message": "\n".join(texts), "role": schedule.messages[0].role}


def _describe_timing(timing: ScheduleTiming) -> dict[str, Any]:
    """When a schedule is due, as a file has it."""
    found: dict[str, Any] = {name: getattr(timing, name) for name in ("timezone", *_COUNTS)}
    for name in ("at", "ends_at"):
        if (moment := getattr(timing, name)) is not None:
            found[name] = moment.astimezone(zone(timing.timezone)).isoformat()
    if timing.every_s is not None:
        found["every"] = f"{timing.every_s}s"
    if timing.cron is not None:
        found["cron"] = timing.cron
    if (quiet := timing.quiet) is not None:
        found |= {"quiet_hours": f"{quiet.start:%H:%M}-{quiet.end:%H:%M}", "in_quiet_hours": quiet.then}
    return found


def _new_schedule(fields: Any, messages: tuple[ScheduledMessage, ...] = (), **more: Any) -> NewSchedule:
    """A schedule to make by the fields of a file; without messages it wakes a companion. Raises: InvalidInput."""
    timing = {name: fields[name] for name in _TIMING if name in fields}
    every = {"every_s": parse_interval(fields["every"])} if "every" in fields else {}
    return NewSchedule(
        messages=messages,
        action="message" if messages else "companion",
        quiet=fields.get("quiet_hours"),
        **{**timing, **every, **more},
    )
