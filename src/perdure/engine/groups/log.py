"""The log of one turn of a group: all that decides what comes next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from perdure.core.groups.turns import GroupMember, GroupMessage, GroupPlan, GroupTurn, Speaker, SpeakerTask
from perdure.core.ids import AgentId, GroupId
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
    return GroupLog(tx.group_turns.get(group_id, seq), tx.group_messages.list_of_turn(group_id, seq))
