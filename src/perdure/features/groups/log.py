"""The log of one turn of a group, which decides what comes next; and the turn as it runs in this process."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import AgentId, GroupId
from perdure.core.runs import Run
from perdure.features.groups.tables import GroupMessages
from perdure.features.groups.values import GroupMember, GroupMessage, GroupPlan, GroupTurn, Speaker, SpeakerTask
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
        spoken = sorted((one for one in self.entries if one.place >= 0), key=lambda one: (one.place, one.seq))
        return {place: tuple(entries) for place, entries in groupby(spoken, key=lambda one: one.place)}

    @property
    def last_seq(self) -> int:
        """The number of the last entry."""
        return max((one.seq for one in self.entries), default=-1)

    @property
    def user_seq(self) -> int:
        """The number of the last entry of the user: agents that speak at once are shown all up to it."""
        return max((one.seq for one in self.entries if one.kind == "user"), default=-1)

    def speaker_at(self, place: int) -> Speaker:
        """Who spoke at a place that is done."""
        entry = self.places[place][0]
        plan = self.turn.plan
        assert entry.sender_id is not None and plan is not None
        return Speaker(
            agent_id=entry.sender_id, name=entry.sender_name, place=place, task=task_of(plan, entry.sender_id)
        )


def task_of(plan: GroupPlan, agent_id: AgentId) -> SpeakerTask:
    """What a turn asks of this agent."""
    if plan.manager is None or agent_id != plan.manager.agent_id:
        return "speak"
    return "choose" if plan.kind == "dynamic" else "answer"


def member_of(plan: GroupPlan, agent_id: AgentId) -> GroupMember:
    """The agent as it belongs to the group."""
    members = [*plan.participants, *([plan.manager] if plan.manager is not None else [])]
    return next(member for member in members if member.agent_id == agent_id)


def load_group_log(tx: Tx, group_id: GroupId, seq: int) -> GroupLog:
    """Raises: NotFound: there is no such group or turn."""
    return GroupLog(tx.of(GroupTurns).get(group_id, seq), tx.of(GroupMessages).list_of_turn(group_id, seq))


class Pulse:
    """Wakes all who wait at the moment when something changes."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """It is set at the next change. Who takes it and then looks at something misses no change of that."""
        return self._event


@dataclass(slots=True)
class LiveSpeech:
    """A run of a group that this process follows: its events and previews from the first on.

    Args:
        ended: nothing follows here; `lost`: though the run goes on.
    """

    run: Run
    pulse: Pulse
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
        self.pulse = Pulse()
        self.speeches: dict[int, LiveSpeech] = {}

    def open(self, place: int, run: Run) -> LiveSpeech:
        """Add a speech that begins, or that this process takes up again."""
        speech = self.speeches[place] = LiveSpeech(run, self.pulse)
        self.pulse.fire()
        return speech

    def end(self, place: int) -> None:
        """End a speech that is in the transcript, and wake the readers."""
        if (speech := self.speeches.get(place)) is not None:
            speech.end()
        self.pulse.fire()

    def give_up(self) -> None:
        """End what this process no longer drives."""
        for speech in self.speeches.values():
            speech.end(lost=True)
        self.pulse.fire()


class Live:
    """The turns that go on in this process, or that somebody follows here."""

    def __init__(self) -> None:
        self._turns: weakref.WeakValueDictionary[tuple[GroupId, int], LiveTurn] = weakref.WeakValueDictionary()

    def turn(self, turn: GroupTurn) -> LiveTurn:
        """What is known here of a turn: the same object for its driver and all its readers."""
        key = (turn.group_id, turn.seq)
        if (found := self._turns.get(key)) is None:
            found = self._turns[key] = LiveTurn()
        return found
