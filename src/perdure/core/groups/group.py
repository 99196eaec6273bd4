"""Groups of agents: who belongs to one, by which rule they speak, and the passes of a companion."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from perdure.core.errors import BlockChanged
from perdure.core.ids import AgentId, BlockId, GroupId, MessageId, OrgId, RunId
from perdure.core.messages import Message
from perdure.core.runs import Run
from perdure.core.text.reprs import short_repr
from perdure.core.tools.arguments import read_json

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


COMPANION, COMPANION_OF = "companion", "companion_of"
"""The settings of an agent that has a companion, and of a companion. Only the operations on companions change them."""

FREQUENCY = 5
"""A companion wakes after so many turns of its agent, unless its group says otherwise."""

REFUSALS_MAX = 3
"""After so many refused rewrites in a row, each because somebody else edits the block, a pass gives up."""

FINISH_TOOLS = ("memory_finish_edits", "finish_rethinking_memory")
"""The tools by which a companion says that it is done, and why it changed what it changed."""

PassCause = Literal["turns", "compaction", "request", "schedule", "rest", "retry"]
"""Why a pass begins: turns of the agent, a compaction, a person or a schedule that asked for it, messages that the pass
before had no room for, or a failure of the pass before."""

PassOutcome = Literal["finished", "budget", "conflicts", "requires_approval", "cancelled", "model_error", "error"]
"""How a pass ended: it is done; it used its steps or tokens; others edited the same block all the time; it called a
tool that needs approval; somebody cancelled it; its model failed; anything else failed."""

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


def reason_in(messages: Sequence[Message]) -> str:
    """Return the reason that an agent gave for the edits of a run, with the call that ends them; else an empty text."""
    for message in reversed(messages):
        for call in reversed(message.calls):
            if call.name in FINISH_TOOLS:
                with contextlib.suppress(ValueError):
                    arguments = read_json(call.own_arguments)
                    if isinstance(arguments, dict) and isinstance(reason := arguments.get("reason"), str):
                        return reason.strip()
                return ""
    return ""


def last_words(messages: Sequence[Message]) -> str:
    """Return what an agent said last in a run; empty if it said nothing."""
    said = [one.text.strip() for one in messages if one.role == "assistant" and one.kind == "message"]
    return next((text for text in reversed(said) if text), "")
