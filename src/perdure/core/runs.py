"""Runs, steps, prefixes and recipes: one request being served, and how each of its model calls was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from perdure.core.ids import AgentId, ConversationId, RunId, StepId

__all__ = [
    "FAILED_REASONS",
    "NO_USAGE",
    "Failure",
    "IfBusy",
    "Lease",
    "Prefix",
    "Recipe",
    "Run",
    "RunFilter",
    "RunKey",
    "RunStatus",
    "Step",
    "StepStatus",
    "StopReason",
    "Usage",
    "status_of",
    "usage_to_json",
]

RunStatus = Literal["queued", "running", "completed", "failed", "cancelled"]
StepStatus = Literal["pending", "success", "failed", "cancelled", "abandoned"]
IfBusy = Literal["wait", "reject"]

StopReason = Literal[
    "end_turn",
    "tool_rule",
    "max_steps",
    "requires_approval",
    "cancelled",
    "error",
    "llm_api_error",
    "invalid_llm_response",
    "invalid_tool_call",
    "no_tool_call",
    "max_tokens_exceeded",
    "insufficient_credits",
    "context_window_overflow_in_system_prompt",
]
"""Why a run ended, in the wire's words."""

FAILED_REASONS: frozenset[str] = frozenset(
    {
        "error",
        "llm_api_error",
        "invalid_llm_response",
        "invalid_tool_call",
        "no_tool_call",
        "max_tokens_exceeded",
        "insufficient_credits",
        "context_window_overflow_in_system_prompt",
    }
)


def status_of(reason: StopReason) -> RunStatus:
    """The status a run has after ending for this reason."""
    if reason == "cancelled":
        return "cancelled"
    return "failed" if reason in FAILED_REASONS else "completed"


class RunKey(NamedTuple):
    """Where a run stands: `seq` is the agent's own count of runs. A tuple, because it is a key of dictionaries."""

    agent_id: AgentId
    seq: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one process to work on a run. `number` grows with every claim: an older holder can write nothing."""

    owner: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one step, or of a run summed over its steps."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


NO_USAGE = Usage()


def usage_to_json(usage: Usage) -> str:
    """Compact JSON of the fields, without the rarer ones that are 0. A message writes it three times, and the encoder
    takes five times as long."""
    rarer = usage.cached_input_tokens or usage.cache_write_tokens or usage.reasoning_tokens
    return f'{{"input_tokens":{usage.input_tokens},"output_tokens":{usage.output_tokens}' + (
        f',"cached_input_tokens":{usage.cached_input_tokens},"cache_write_tokens":{usage.cache_write_tokens}'
        f',"reasoning_tokens":{usage.reasoning_tokens}}}'
        if rarer
        else "}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a run or step failed: the wire's error type and a sentence that helps."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One request being served, from its messages to a stop reason.

    `first_message_seq` is where its input begins in the log; None while it waits behind another run, because a message
    must not come to stand between that run's calls and their results. `context` is what hooks have added and the next
    request shows: it becomes rows of the log there.

    Args:
        resumes: the run with whose pending calls this one goes on; None: it begins with something that was said.
        begins_at: the message with those calls, from which on its log is read.
        turn_from: the first message of the request that this run and those before it serve.
        input_waits: what was said along with the answers comes into the log once all calls have their results.
        client_tools: the set of tools and skills that the caller brought along, by its digest.
    """

    id: RunId
    key: RunKey
    conversation_seq: int
    conversation_id: ConversationId
    status: RunStatus
    stop_reason: StopReason | None = None
    failure: Failure | None = None
    background: bool = False
    max_steps: int = 50
    first_message_seq: int | None = None
    lease_owner: str | None = None
    lease_number: int = 0
    lease_until: datetime | None = None
    cancel_requested: bool = False
    usage: Usage = NO_USAGE
    step_count: int = 0
    resumes: int | None = None
    begins_at: int | None = None
    turn_from: int | None = None
    input_waits: bool = False
    client_tools: str | None = None
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    context: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        return self.status not in ("queued", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """The part of a request that repeats: compiled once, stored once, sent as it is until it is rewritten.

    `system` holds base prompt and memory section; `seen` the block versions folded into it; `from_message_seq` the
    first log row that follows it. `reason` says why it was (re)written.

    Args:
        summary: what stands for the rows before `from_message_seq`, as the model sees it; empty when nothing left.
        nodes: the numbers of the summary nodes it was made of, oldest first.
        pinned: the numbers of earlier rows that are shown between summary and the rows that follow: the input of a
            run that is so long that its own beginning left the view.
        tokens: the upper estimate of tools, system and summary.
        client_tools: the set of tools and skills that the caller brought along, by its digest.
        marker: what the engine's messages carry behind this prefix, and no other text; empty in one of an older store.
    """

    agent_id: AgentId
    seq: int
    conversation_seq: int
    reason: str
    system: str
    tools: tuple[Mapping[str, Any], ...]
    seen: Mapping[str, int] = field(default_factory=dict)
    from_message_seq: int = 0
    settings_revision: int = 0
    tokens: int = 0
    summary: str = ""
    nodes: tuple[int, ...] = ()
    pinned: tuple[int, ...] = ()
    client_tools: str | None = None
    marker: str = ""
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a request was made: enough to build it again, byte for byte, from the log.

    Args:
        stubs: row number -> characters: the rows of which only so much is shown, with a handle to the rest.
        digest: of the request's canonical form (`context.request.assemble.digest_of`); empty where none was recorded.
        tokens: the upper estimate of the whole request, not corrected.
        overcount: by how much that is known to be too high, from what the provider measured of an earlier request;
            negative if it is too low. `tokens - overcount` is what was certified to fit.
        estimator: (tokens - overcount) / tokens.
        tool_choice: what the agent's tool rules asked of the model, a list of names or a word; None: nothing.
        single_calls: whether the model was asked for one call at a time, because of such rules.
    """

    prefix_seq: int
    upto_message_seq: int
    tail: str
    settings_revision: int
    estimator: float = 1.0
    stubs: Mapping[int, int] = field(default_factory=dict)
    digest: str = ""
    tokens: int = 0
    overcount: int = 0
    tool_choice: str | tuple[str, ...] | None = None
    single_calls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One model call and what follows from it; `index` counts within the run, from 0."""

    id: StepId
    agent_id: AgentId
    run_seq: int
    index: int
    status: StepStatus
    model: str
    recipe: Recipe
    lease_number: int
    usage: Usage = NO_USAGE
    stop_reason: StopReason | None = None
    failure: Failure | None = None
    created_at: datetime
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs: all conditions hold; an empty tuple is none."""

    agent_ids: tuple[AgentId, ...] = ()
    conversation_id: ConversationId | None = None
    conversation_seq: int | None = None
    statuses: tuple[RunStatus, ...] = ()
    stop_reason: StopReason | None = None
    background: bool | None = None
