"""One turn of a group, from a user's message to a stop reason, and what its readers are told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from perdure.core.events import Delta, StoredEvent
from perdure.core.groups.group import GroupKind
from perdure.core.ids import AgentId, GroupId, MessageId, RunId
from perdure.core.messages import Part, text_of
from perdure.core.runs import NO_USAGE, Failure, Run, RunStatus, Usage
from perdure.core.text.reprs import short_repr

GroupStopReason = Literal[
    "end_turn",
    "termination_token",
    "max_turns",
    "max_tokens",
    "max_cost",
    "max_depth",
    "no_speaker",
    "requires_approval",
    "cancelled",
    "error",
]
"""Why a turn of a group ended. `no_speaker`: its manager named nobody. The others as of runs, or by a limit."""

GROUP_FAILED_REASONS: frozenset[GroupStopReason] = frozenset({"error", "no_speaker"})


def group_status_of(reason: GroupStopReason) -> RunStatus:
    """Return the status of a group's turn that ended for this reason."""
    if reason == "cancelled":
        return "cancelled"
    return "failed" if reason in GROUP_FAILED_REASONS else "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """An agent of a group, with its name and the conversation in which it speaks there."""

    agent_id: AgentId
    name: str
    conversation_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The settings of a group as one of its turns began: it goes by these to its end. For the fields see `Group`."""

    kind: GroupKind
    participants: tuple[GroupMember, ...]
    manager: GroupMember | None = None
    termination_token: str | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTurn:
    """One turn of a group: a user's message, and all that the group says to it.

    Args:
        seq: the group's own count of turns, from 0.
        plan: the settings that it goes by; None until it begins.
        hops: how many agents have passed a message on, one because of the other, before this turn.
        max_steps: the most steps of each of its runs; None: the default.
        usage, step_count, cost_usd: of its runs that have ended; the cost of models with a price, None: none has one.
    """

    __repr__ = short_repr("group_id", "seq", "status", "stop_reason", "failure")

    group_id: GroupId
    seq: int = 0
    status: RunStatus = "queued"
    stop_reason: GroupStopReason | None = None
    failure: Failure | None = None
    plan: GroupPlan | None = None
    hops: int = 0
    max_steps: int | None = None
    usage: Usage = NO_USAGE
    step_count: int = 0
    cost_usd: float | None = None
    cancel_requested: bool = False
    lease_owner: str | None = None
    lease_number: int = 0
    lease_until: datetime | None = None
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def ended(self) -> bool:
        """Whether the turn has a stop reason."""
        return self.status not in ("queued", "running")


GroupMessageKind = Literal["user", "speech", "silence", "failure", "approval", "choice"]
"""What an entry of a group's transcript is: what a user says, what an agent says, that one said nothing, that one
failed, that one stopped at a call which a person must approve, or that the manager chose who speaks next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMessage:
    """One entry of a group's transcript.

    Args:
        seq: the group's own count of entries.
        place: which of the turn's runs made it, from 0; -1: a user did.
        sender_id, sender_name: the agent and the name that it had; None and empty: a user.
        message_id, message_seq: of a speech or choice, the agent's message that holds its text; of a user, an id.
        parts: what a user says, or why an agent failed; empty: the agent's message holds it.
        chosen_id: whom the manager chose; None: nobody.
        ends_turn: whether it holds the termination token.
        seen_seq: the last entry that its agent had been shown.
    """

    group_id: GroupId
    seq: int = 0
    turn_seq: int
    place: int = -1
    kind: GroupMessageKind
    sender_id: AgentId | None = None
    sender_name: str = ""
    run_id: RunId | None = None
    message_id: MessageId | None = None
    message_seq: int | None = None
    parts: tuple[Part, ...] = ()
    chosen_id: AgentId | None = None
    ends_turn: bool = False
    seen_seq: int = -1
    created_at: datetime

    @property
    def text(self) -> str:
        """The text of `parts`."""
        return text_of(self.parts)


SpeakerTask = Literal["speak", "choose", "answer"]
"""What an agent is asked for: to speak as a participant; as the manager, to choose who speaks, or to answer the
user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Whose run it is, and for which place of the turn."""

    agent_id: AgentId
    name: str
    place: int
    task: SpeakerTask = "speak"


@dataclass(frozen=True, slots=True)
class SpeakerStarted:
    """An agent of the group begins: its run's events follow."""

    speaker: Speaker
    run: Run


@dataclass(frozen=True, slots=True)
class SpeakerEvent:
    """An event, or a preview, of a speaker's run."""

    speaker: Speaker
    event: StoredEvent | Delta


@dataclass(frozen=True, slots=True)
class SpeakerFailed:
    """An agent of the group could not speak, or not to the end; the others go on. `entry` says so in the transcript."""

    speaker: Speaker
    entry: GroupMessage

    @property
    def reason(self) -> str:
        """Why it failed."""
        return self.entry.text


@dataclass(frozen=True, slots=True)
class GroupTurnEnded:
    """The turn has ended; nothing follows."""

    turn: GroupTurn


GroupEvent = SpeakerStarted | SpeakerEvent | SpeakerFailed | GroupTurnEnded
"""What the readers of a group's turn receive. Agents that speak at once are told one after the other, in order."""
