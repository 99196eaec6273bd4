"""Groups of agents: who belongs to one, and by which rule they speak."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from perdure.core.ids import AgentId, BlockId, GroupId, MessageId, OrgId
from perdure.core.text.reprs import short_repr

GroupKind = Literal["round_robin", "supervisor", "dynamic", "sleeptime", "voice_sleeptime"]
"""By which rule the agents speak. In the two kinds of sleeptime only the manager does; the others are companions."""

SLEEPTIME_KINDS: frozenset[GroupKind] = frozenset({"sleeptime", "voice_sleeptime"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group and its settings.

    Args:
        agent_ids: its participants, in the order in which they speak; of a sleeptime group, its companion.
        manager_agent_id: the agent that answers (supervisor), chooses who speaks (dynamic), or has the companion.
        shared_block_ids: the blocks that all of its agents have because of it.
        termination_token: what a dynamic group's agents write to end a turn.
        max_turns: how often its participants may speak in one turn of the group; None: the default of its kind.
        max_tokens: the tokens, in and out, that a turn of the group may use; None: no limit.
        max_cost_usd: what a turn may cost, where prices are known; None: no limit.
        frequency: a companion wakes after so many turns of its agent.
        max_message_buffer_length, min_message_buffer_length: stored for clients of voice groups.
        last_message_id: the last message that a companion has read.
        number: its place in lists.
        turns_counter: how many turns of its agent count towards the next pass of its companion; -1: there was none
            yet; None: it has no companion, or nobody counted.
    """

    __repr__ = short_repr("id", "kind", "agent_ids", "manager_agent_id")

    id: GroupId
    org_id: OrgId
    number: int = 0
    kind: GroupKind
    description: str = ""
    agent_ids: tuple[AgentId, ...] = ()
    manager_agent_id: AgentId | None = None
    shared_block_ids: tuple[BlockId, ...] = ()
    termination_token: str | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    frequency: int | None = None
    max_message_buffer_length: int | None = None
    min_message_buffer_length: int | None = None
    last_message_id: MessageId | None = None
    project_id: str | None = None
    hidden: bool = False
    turns_counter: int | None = field(default=None, compare=False)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """Which groups: all conditions hold. `agent_id`: a participant or the manager."""

    kind: GroupKind | None = None
    manager_agent_id: AgentId | None = None
    agent_id: AgentId | None = None
    project_id: str | None = None
    hidden: bool | None = None
