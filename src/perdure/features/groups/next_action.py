"""What a turn of a group does next: a pure function of its log.

So a process that takes a turn over goes on where the log stands, and nobody speaks twice for one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.core.ids import AgentId
from perdure.core.runs import GroupStopReason
from perdure.features.groups.log import GroupLog
from perdure.features.groups.tools import HOPS_MAX
from perdure.features.groups.values import SLEEPTIME_KINDS, GroupMember, GroupMessage, GroupPlan, Speaker, SpeakerTask

DYNAMIC_TURNS = 10
"""How often the participants of a dynamic group speak in a turn, unless the group says otherwise."""

CHOICES_MAX = 3
"""How often the manager is asked for one choice, the first time included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speak:
    """These speak next, at once, each at its own place. `seen_seq`: the last entry that they are shown."""

    speakers: tuple[Speaker, ...]
    seen_seq: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The turn ends. `problem`: what went wrong, for the reason `error`; `causes`: the entries that say why."""

    reason: GroupStopReason
    problem: str = ""
    causes: tuple[GroupMessage, ...] = ()


GroupAction = Speak | Finish


def next_action(log: GroupLog) -> GroupAction:
    """What comes next in a turn that has begun."""
    turn, plan = log.turn, log.turn.plan
    assert plan is not None
    if turn.cancel_requested:
        return Finish("cancelled")
    if turn.hops > HOPS_MAX:
        return Finish("max_depth")
    if not plan.participants:
        return Finish("error", "the group has no agents left")
    if plan.kind == "supervisor" and plan.manager is not None:
        action = _supervised(log, plan, plan.manager)
    elif plan.kind == "dynamic" and plan.manager is not None:
        action = _chosen(log, plan, plan.manager)
    elif plan.kind in SLEEPTIME_KINDS and plan.manager is not None:
        action = _answered(log, plan.manager, 0)
    else:
        action = _in_order(log, plan)
    if isinstance(action, Finish):
        if action.reason in ("end_turn", "max_turns") and _has(log.entries, "approval"):
            return Finish("requires_approval")
        return action
    return _check_limits(log, plan, action)


def _check_limits(log: GroupLog, plan: GroupPlan, action: Speak) -> GroupAction:
    """The action, unless the turn has used up what it may."""
    if not log.places or (plan.kind == "supervisor" and action.speakers[0].task == "speak"):
        return action  # the first speaks in any case; of those that speak at once, all do
    used = log.turn.usage.input_tokens + log.turn.usage.output_tokens
    if plan.max_tokens is not None and used >= plan.max_tokens:
        return Finish("max_tokens")
    if plan.max_cost_usd is not None and (log.turn.cost_usd or 0) >= plan.max_cost_usd:
        return Finish("max_cost")
    return action


def _in_order(log: GroupLog, plan: GroupPlan) -> GroupAction:
    """Round robin: one after the other, each shown what the others said before it."""
    members, done = plan.participants, len(log.places)
    if done >= len(members) and all(_failed(log.places[done - 1 - back]) for back in range(len(members))):
        return _nobody([log.places[place] for place in range(done - len(members), done)])
    if done >= (plan.max_turns or len(members)):
        if all(_failed(entries) for entries in log.places.values()):
            return _nobody([*log.places.values()])
        return Finish("end_turn" if plan.max_turns is None else "max_turns")
    return Speak(speakers=(_speaker(members[done % len(members)], done),), seen_seq=log.last_seq)


def _supervised(log: GroupLog, plan: GroupPlan, manager: GroupMember) -> GroupAction:
    """Supervisor: all participants at once, then the manager, which answers."""
    count = min(len(plan.participants), plan.max_turns or len(plan.participants))
    left = [place for place in range(count) if place not in log.places]
    if left:
        speakers = tuple(_speaker(plan.participants[place], place) for place in left)
        return Speak(speakers=speakers, seen_seq=log.user_seq)
    action = _answered(log, manager, count)
    if isinstance(action, Finish) and action.reason == "end_turn" and count < len(plan.participants):
        return Finish("max_turns")
    return action


def _answered(log: GroupLog, manager: GroupMember, place: int) -> GroupAction:
    """The manager answers at this place, and the turn ends. In a group with companions nobody else speaks."""
    if place not in log.places:
        return Speak(speakers=(_speaker(manager, place, "answer"),), seen_seq=log.last_seq)
    answer = log.places[place]
    if _failed(answer) and not _has(answer, "approval"):
        return _end_by(answer[-1], f"{manager.name}, the manager, could not answer")
    return Finish("end_turn")


def _chosen(log: GroupLog, plan: GroupPlan, manager: GroupMember) -> GroupAction:
    """Dynamic: the manager chooses who speaks, that agent speaks, and so on."""
    asked, spoken, chosen = 0, 0, None
    failed: dict[AgentId | None, Sequence[GroupMessage]] = {}
    for place in sorted(log.places):
        entries = log.places[place]
        last = entries[-1]
        if last.sender_id != manager.agent_id:
            if any(one.ends_turn for one in entries):
                return Finish("termination_token")
            asked, spoken, chosen = 0, spoken + 1, None
            failed = failed | {last.sender_id: entries} if _failed(entries) else {}
            continue
        if last.kind == "approval":
            return Finish("requires_approval")
        if last.kind == "failure":
            return _end_by(last, f"{manager.name}, the manager, could not choose")
        if last.ends_turn:
            return Finish("termination_token")
        asked, chosen = asked + 1, last.chosen_id
    place = len(log.places)
    if chosen is not None:
        member = next(one for one in plan.participants if one.agent_id == chosen)
        return Speak(speakers=(_speaker(member, place),), seen_seq=log.last_seq)
    if len(failed) == len(plan.participants):
        return _nobody([*failed.values()])
    if spoken >= (plan.max_turns or DYNAMIC_TURNS):
        return Finish("max_turns")
    if asked >= CHOICES_MAX:
        return Finish("no_speaker")
    return Speak(speakers=(_speaker(manager, place, "choose"),), seen_seq=log.last_seq)


def _speaker(member: GroupMember, place: int, task: SpeakerTask = "speak") -> Speaker:
    return Speaker(agent_id=member.agent_id, name=member.name, place=place, task=task)


def _failed(entries: Sequence[GroupMessage]) -> bool:
    """Whether an agent said nothing because it could not."""
    return not _has(entries, "speech") and (_has(entries, "failure") or _has(entries, "approval"))


def _has(entries: Sequence[GroupMessage], kind: str) -> bool:
    return any(one.kind == kind for one in entries)


def _end_by(cause: GroupMessage, problem: str) -> Finish:
    return Finish("error", f"{problem}: {cause.text}", (cause,))


def _nobody(places: Sequence[Sequence[GroupMessage]]) -> Finish:
    """The end of a turn in which all failed, with what each says of it."""
    causes = tuple(entries[-1] for entries in places)
    reasons = "; ".join(dict.fromkeys(f"{one.sender_name}: {one.text:.600}" for one in causes))
    return Finish("error", f"nobody in the group could speak: {reasons}", causes)
