"""The log of one turn of a group and what comes next in it, a pure function of the log: so a process that takes a turn
over goes on where the log stands, and nobody speaks twice for one place. And the turn as it runs in this process.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import AgentId, GroupId, MessageId
from perdure.core.messages import Message
from perdure.core.runs import Run
from perdure.features.groups.tables import GroupMessages
from perdure.features.groups.tools import HOPS_MAX
from perdure.features.groups.values import (
    SLEEPTIME_KINDS,
    GroupMember,
    GroupMessage,
    GroupPlan,
    GroupStopReason,
    GroupTurn,
    Speaker,
    SpeakerTask,
)
from perdure.features.groups.work_tables import GroupTurns
from perdure.storage.tx import Tx


@dataclass(frozen=True)
class GroupLog:
    """A turn and its entries in the transcript, in order."""

    turn: GroupTurn
    entries: Sequence[GroupMessage]

    @cached_property
    def places(self) -> Mapping[int, Sequence[GroupMessage]]:
        """Place -> its entries, in order. A place with entries is done: nobody speaks there again."""
        spoken = sorted((entry for entry in self.entries if entry.place >= 0), key=lambda one: (one.place, one.seq))
        return {place: tuple(entries) for place, entries in groupby(spoken, key=lambda one: one.place)}

    @property
    def last_seq(self) -> int:
        """The number of the last entry."""
        return max((entry.seq for entry in self.entries), default=-1)

    @property
    def user_seq(self) -> int:
        """The number of the last entry of the user: agents that speak at once are shown all up to it."""
        return max((entry.seq for entry in self.entries if entry.kind == "user"), default=-1)

    def speaker_at(self, place: int) -> Speaker:
        """Who spoke at a place that is done."""
        entry = self.places[place][0]
        plan = self.turn.plan
        assert entry.sender_id is not None and plan is not None
        return Speaker(
            agent_id=entry.sender_id, name=entry.sender_name, place=place, task=task_of(plan, entry.sender_id)
        )


def task_of(plan: GroupPlan, agent_id: AgentId) -> SpeakerTask:
    """What this agent does in a turn: speak, or as the manager, choose or answer."""
    if plan.manager is None or agent_id != plan.manager.agent_id:
        return "speak"
    return "choose" if plan.kind == "dynamic" else "answer"


def member_of(plan: GroupPlan, agent_id: AgentId) -> GroupMember:
    """The member of a plan with this agent's id, with its conversation."""
    return next(member for member in plan.members if member.agent_id == agent_id)


def load_group_log(tx: Tx, group_id: GroupId, seq: int) -> GroupLog:
    """Read a turn and its entries. Raises: NotFound: there is no such group or turn."""
    return GroupLog(tx.of(GroupTurns).get(group_id, seq), tx.of(GroupMessages).list_of_turn(group_id, seq))


def load_messages(tx: Tx, entries: Sequence[GroupMessage]) -> Mapping[MessageId, Message]:
    """The messages of agents that entries stand for, by their ids, without deleted ones."""
    wanted: defaultdict[AgentId, list[int]] = defaultdict(list)
    for entry in entries:
        if entry.sender_id is not None and entry.message_seq is not None:
            wanted[entry.sender_id].append(entry.message_seq)
    return {one.id: one for agent_id, seqs in wanted.items() for one in tx.messages.list_by_seqs(agent_id, seqs)}


class ChangeSignal:
    """Wakes all who wait at the moment when something changes."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Wake all that wait, and begin anew."""
        self._event.set()
        self._event = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """Return an event that the next `fire` sets. Take it before reading the data, so that no change is missed."""
        return self._event


@dataclass(slots=True)
class LiveSpeech:
    """A run of a group that this process follows: `items`, its events and previews from the first on. `ended`: nothing
    is added any more; `lost`: this process stopped following, and the run goes on."""

    run: Run
    pulse: ChangeSignal
    items: list[StoredEvent | Delta] = field(default_factory=list)
    ended: bool = False
    lost: bool = False

    def add(self, item: StoredEvent | Delta) -> None:
        self.items.append(item)
        self.pulse.fire()

    def end(self, *, lost: bool = False) -> None:
        if not self.ended:
            self.ended, self.lost = True, lost
            self.pulse.fire()

    @property
    def last_seq(self) -> int:
        """The number of the last stored event."""
        return max((item.seq for item in self.items if isinstance(item, StoredEvent)), default=0)

    async def follow(self) -> AsyncIterator[StoredEvent | Delta]:
        """All events and previews, until the speech has ended."""
        sent = 0
        while True:
            changed = self.pulse.next
            while sent < len(self.items):
                sent += 1
                yield self.items[sent - 1]
            if self.ended:
                return
            await changed.wait()


class LiveTurn:
    """The speeches of one turn, by their places. It lives as long as its driver or a reader does, so that a reader who
    is slower than the agents misses no preview."""

    def __init__(self) -> None:
        self.pulse = ChangeSignal()
        self.speeches: dict[int, LiveSpeech] = {}

    def open(self, place: int, run: Run) -> LiveSpeech:
        """Add a speech that begins, or that this process takes up again."""
        speech = self.speeches[place] = LiveSpeech(run, self.pulse)
        self.pulse.fire()
        return speech

    def end(self, place: int) -> None:
        """End a speech that is in the transcript now, and wake the readers."""
        if (speech := self.speeches.get(place)) is not None:
            speech.end()
        self.pulse.fire()

    def give_up(self) -> None:
        """End what this process no longer drives."""
        for speech in self.speeches.values():
            speech.end(lost=True)
        self.pulse.fire()


DYNAMIC_TURNS = 10
"""How often the participants of a dynamic group speak in a turn, unless the group says otherwise."""

CHOICES_MAX = 3
"""How often the manager is asked for one choice, the first time included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakAction:
    """The next action is that `speakers` speak, all at once. `seen_seq`: the last entry that they are shown."""

    speakers: tuple[Speaker, ...]
    seen_seq: int


@dataclass(frozen=True, slots=True)
class FinishAction:
    """The next action is to end the turn. `problem`: what went wrong, for the reason `error`; `causes`: its entries."""

    reason: GroupStopReason
    problem: str = ""
    causes: tuple[GroupMessage, ...] = ()


GroupAction = SpeakAction | FinishAction


def next_action(log: GroupLog) -> GroupAction:
    """What comes next in a turn that has begun: who speaks, or the end; it follows from the log alone."""
    turn, plan = log.turn, log.turn.plan
    assert plan is not None
    if turn.cancel_requested:
        return FinishAction("cancelled")
    if turn.hops > HOPS_MAX:
        return FinishAction("max_depth")
    if not plan.participants:
        return FinishAction("error", "the group has no agents left")
    if plan.kind == "supervisor" and plan.manager is not None:
        action = _next_of_supervisor(log, plan, plan.manager)
    elif plan.kind == "dynamic" and plan.manager is not None:
        action = _next_of_dynamic(log, plan, plan.manager)
    elif plan.kind in SLEEPTIME_KINDS and plan.manager is not None:
        action = _answer_of_manager(log, plan.manager, 0)
    else:
        action = _next_of_round_robin(log, plan)
    if isinstance(action, FinishAction):
        if action.reason in ("end_turn", "max_turns") and _has(log.entries, "approval"):
            return FinishAction("requires_approval")
        return action
    return _check_limits(log, plan, action)


def _check_limits(log: GroupLog, plan: GroupPlan, action: SpeakAction) -> GroupAction:
    """The action, unless the turn has used up what it may."""
    if not log.places or (plan.kind == "supervisor" and action.speakers[0].task == "speak"):
        return action  # the first speaks in any case; of those that speak at once, all do
    used = log.turn.usage.input_tokens + log.turn.usage.output_tokens
    if plan.max_tokens is not None and used >= plan.max_tokens:
        return FinishAction("max_tokens")
    if plan.max_cost_usd is not None and (log.turn.cost_usd or 0) >= plan.max_cost_usd:
        return FinishAction("max_cost")
    return action


def _next_of_round_robin(log: GroupLog, plan: GroupPlan) -> GroupAction:
    """Round robin: the next agent speaks, shown what the others said before it; or the end of the turn."""
    members, done = plan.participants, len(log.places)
    if done >= len(members) and all(_failed(log.places[done - 1 - back]) for back in range(len(members))):
        return _nobody_spoke([log.places[place] for place in range(done - len(members), done)])
    if done >= (plan.max_turns or len(members)):
        if all(_failed(entries) for entries in log.places.values()):
            return _nobody_spoke([*log.places.values()])
        return FinishAction("end_turn" if plan.max_turns is None else "max_turns")
    return SpeakAction(speakers=(_speaker(members[done % len(members)], done),), seen_seq=log.last_seq)


def _next_of_supervisor(log: GroupLog, plan: GroupPlan, manager: GroupMember) -> GroupAction:
    """Supervisor: all participants at once, then the manager, which answers."""
    count = min(len(plan.participants), plan.max_turns or len(plan.participants))
    left = [place for place in range(count) if place not in log.places]
    if left:
        speakers = tuple(_speaker(plan.participants[place], place) for place in left)
        return SpeakAction(speakers=speakers, seen_seq=log.user_seq)
    action = _answer_of_manager(log, manager, count)
    if isinstance(action, FinishAction) and action.reason == "end_turn" and count < len(plan.participants):
        return FinishAction("max_turns")
    return action


def _answer_of_manager(log: GroupLog, manager: GroupMember, place: int) -> GroupAction:
    """Have the manager answer at this place; if it has, end the turn."""
    if place not in log.places:
        return SpeakAction(speakers=(_speaker(manager, place, "answer"),), seen_seq=log.last_seq)
    answer = log.places[place]
    if _failed(answer) and not _has(answer, "approval"):
        return _end_with_error(answer[-1], f"{manager.name}, the manager, could not answer")
    return FinishAction("end_turn")


def _next_of_dynamic(log: GroupLog, plan: GroupPlan, manager: GroupMember) -> GroupAction:
    """Dynamic: the manager chooses who speaks, that agent speaks, and so on."""
    asked, spoken, chosen = 0, 0, None
    failed: dict[AgentId | None, Sequence[GroupMessage]] = {}
    for place in sorted(log.places):
        entries = log.places[place]
        last = entries[-1]
        if last.sender_id != manager.agent_id:
            if any(entry.ends_turn for entry in entries):
                return FinishAction("termination_token")
            asked, spoken, chosen = 0, spoken + 1, None
            failed = failed | {last.sender_id: entries} if _failed(entries) else {}
            continue
        if last.kind == "approval":
            return FinishAction("requires_approval")
        if last.kind == "failure":
            return _end_with_error(last, f"{manager.name}, the manager, could not choose")
        if last.ends_turn:
            return FinishAction("termination_token")
        asked, chosen = asked + 1, last.chosen_id
    place = len(log.places)
    if chosen is not None:
        member = next(participant for participant in plan.participants if participant.agent_id == chosen)
        return SpeakAction(speakers=(_speaker(member, place),), seen_seq=log.last_seq)
    if len(failed) == len(plan.participants):
        return _nobody_spoke([*failed.values()])
    if spoken >= (plan.max_turns or DYNAMIC_TURNS):
        return FinishAction("max_turns")
    if asked >= CHOICES_MAX:
        return FinishAction("no_speaker")
    return SpeakAction(speakers=(_speaker(manager, place, "choose"),), seen_seq=log.last_seq)


def _speaker(member: GroupMember, place: int, task: SpeakerTask = "speak") -> Speaker:
    return Speaker(agent_id=member.agent_id, name=member.name, place=place, task=task)


def _failed(entries: Sequence[GroupMessage]) -> bool:
    """Whether the entries of a place say that its agent could not speak."""
    return not _has(entries, "speech") and (_has(entries, "failure") or _has(entries, "approval"))


def _has(entries: Sequence[GroupMessage], kind: str) -> bool:
    return any(entry.kind == kind for entry in entries)


def _end_with_error(cause: GroupMessage, problem: str) -> FinishAction:
    return FinishAction("error", f"{problem}: {cause.text}", (cause,))


def _nobody_spoke(places: Sequence[Sequence[GroupMessage]]) -> FinishAction:
    """Return the end of a turn in which nobody could speak; the last entry of each place says why."""
    causes = tuple(entries[-1] for entries in places)
    reasons = "; ".join(dict.fromkeys(f"{cause.sender_name}: {cause.text:.600}" for cause in causes))
    return FinishAction("error", f"nobody in the group could speak: {reasons}", causes)
