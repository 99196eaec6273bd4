"""Groups of agents: who belongs to one, by which rule they speak, their turns, and the passes of a companion."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from perdure.core.errors import BlockChanged
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import AgentId, BlockId, GroupId, MessageId, OrgId, RunId
from perdure.core.messages import Message, Part, text_of
from perdure.core.runs import NO_USAGE, Failure, Run, RunStatus, Usage
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

    @property
    def members(self) -> tuple[AgentId, ...]:
        """The participants in order, and the manager."""
        return self.agent_ids if self.manager_agent_id is None else (*self.agent_ids, self.manager_agent_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """Which groups: all conditions hold. `kinds`: one of these; `agent_id`: a participant or the manager."""

    kind: GroupKind | None = None
    kinds: Collection[GroupKind] | None = None
    manager_agent_id: AgentId | None = None
    agent_id: AgentId | None = None
    project_id: str | None = None
    hidden: bool | None = None


FREQUENCY = 5
"""A companion wakes after so many turns of its agent, unless its group says otherwise."""

REFUSALS_MAX = 3
"""After so many refused rewrites in a row, each because somebody else edits the block, a pass gives up."""

PassCause = Literal["turns", "compaction", "request", "schedule", "rest", "retry"]
"""Why a pass begins: turns of the agent, a compaction, a person or a schedule that asked for it, messages that the pass
before had no room for, or a failure of the pass before."""

PassOutcome = Literal[
    "finished", "budget", "conflicts", "requires_approval", "cancelled", "edited", "model_error", "error"
]
"""How a pass ended: it is done; it used its steps or tokens; others edited the same block all the time; it called a
tool that needs approval; somebody cancelled it, or edited a message that it was reading; its model failed; anything
else failed."""

READ_OUTCOMES: frozenset[PassOutcome] = frozenset({"finished", "budget"})
"""Outcomes after which the messages of the pass count as read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A pass of a companion: the messages that it is about, and its run.

    Args:
        agent_id: the agent whose messages are read.
        number: its place among the passes for this agent, from 1; 0 before it is stored.
        from_seq, upto_seq: the agent's messages with these numbers and all between are read.
        last_message_id: the last of them.
        upto_run_seq: the last run that the agent had then.
        is_full: it had no room for all messages; another pass follows.
        failures: how many passes before this one failed in a row.
        run_id: the run of the companion; while the pass goes on, it may not be accepted yet.
        outcome: None: the pass goes on.
    """

    __repr__ = short_repr("agent_id", "number", "cause", "outcome")

    agent_id: AgentId
    number: int = 0
    group_id: GroupId
    companion_id: AgentId
    cause: PassCause
    from_seq: int
    upto_seq: int
    last_message_id: MessageId
    upto_run_seq: int
    is_full: bool = False
    failures: int = 0
    run_id: RunId
    outcome: PassOutcome | None = None
    created_at: datetime
    ended_at: datetime | None = None

    @property
    def key(self) -> str:
        """The idempotency key of its run: a pass that goes on after a crash finds it."""
        return f"companion-pass-{self.group_id}-{self.number}"

    @property
    def failed(self) -> bool:
        """Whether it ended, and its messages count as unread."""
        return self.outcome is not None and self.outcome not in READ_OUTCOMES


def count_refusals(messages: Sequence[Message]) -> int:
    """Return how many rewrites at the end of a run were refused because somebody else had changed the block."""
    count = 0
    for message in messages:
        for result in message.results:
            if result.status == "error" and BlockChanged.words in result.text:
                count += 1
            elif result.status == "success":
                count = 0
    return count


def outcome_of(run: Run, messages: Sequence[Message]) -> PassOutcome:
    """Return how the pass of an ended run ended."""
    if count_refusals(messages) >= REFUSALS_MAX:
        return "conflicts"
    match run.stop_reason:
        case "end_turn" | "tool_rule":
            return "finished"
        case "max_steps":
            return "budget"
        case "requires_approval" | "cancelled":
            return run.stop_reason
        case "max_tokens_exceeded" if run.options.max_tokens is not None and (
            run.usage.total_tokens >= run.options.max_tokens
        ):
            return "budget"
        case "error" | "context_window_overflow_in_system_prompt" | "max_tokens_exceeded":
            return "error"
        case _:
            return "model_error"


def last_words(messages: Sequence[Message]) -> str:
    """Return the last text that an agent said in a run; empty if it said nothing."""
    said = [message.text.strip() for message in messages if message.role == "assistant" and message.kind == "message"]
    return next((text for text in reversed(said) if text), "")


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
    """The settings of a group when a turn began, which hold for all of it. For the fields see `Group`."""

    kind: GroupKind
    participants: tuple[GroupMember, ...]
    manager: GroupMember | None = None
    termination_token: str | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None

    @property
    def members(self) -> tuple[GroupMember, ...]:
        """The participants in order, and the manager."""
        return self.participants if self.manager is None else (*self.participants, self.manager)


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
    """An agent that speaks in a turn, at a `place`: the number of its run among those of the turn, from 0."""

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
