"""Runs, steps, prefixes and recipes: one request being served, and how each of its model calls was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, cast, get_args

from perdure.core.ids import AgentId, BatchId, ConversationId, RunId, StepId
from perdure.core.text.json_strings import compact_json
from perdure.core.text.reprs import short_repr

RunStatus = Literal["queued", "running", "completed", "failed", "cancelled"]
StepStatus = Literal["pending", "success", "failed", "cancelled", "abandoned"]
IfBusy = Literal["wait", "reject"]
Feedback = Literal["positive", "negative"]

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

_GOOD_REASONS = {"end_turn", "tool_rule", "max_steps", "requires_approval", "cancelled"}
FAILED_REASONS = frozenset(get_args(StopReason)) - _GOOD_REASONS

MAX_COST = "max_cost_exceeded"
"""The kind of failure of a run whose budget of money is used up: of the run, its agent or its key, not of the account
at the provider, which has the same stop reason."""


def status_of(reason: StopReason) -> RunStatus:
    """Return the status of a run that ended for this reason."""
    if reason == "cancelled":
        return "cancelled"
    return "failed" if reason in FAILED_REASONS else "completed"


class RunKey(NamedTuple):
    """The key of a run: `seq` is the agent's own count of runs."""

    agent_id: AgentId
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one step, or of a run summed over its steps."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Tokens in and out."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


NO_USAGE = Usage()


def usage_to_dict(usage: Usage) -> dict[str, int]:
    """Return the fields of a usage by name, without those of caches and reasoning if all of these are 0."""
    fields = {name: getattr(usage, name) for name in usage.__slots__}
    common = {name: fields[name] for name in ("input_tokens", "output_tokens")}
    return fields if any(fields[name] for name in fields.keys() - common.keys()) else common


def usage_to_json(usage: Usage) -> str:
    """Return `usage_to_dict` as compact JSON."""
    return compact_json(usage_to_dict(usage))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What one request sets for its own model calls and its answer, in place of the agent's settings; None: theirs.

    Args:
        model: the handle of the model.
        system: the whole system text of its requests, in place of the compiled one.
        logprobs, token_ids: whether the provider is to tell the logarithms of the tokens' probabilities; their numbers.
        top_logprobs: how many of the most likely tokens it tells at each place.
        caller: the run of another agent that waits for this one; None: none does.
        hops: how many agents have passed a message on, one because of the other, before this run.
        origin: the run that the first of those messages was written in; None: no agent wrote this one.
        helper: the name of the helper that the run serves; empty: none.
        tools: the names of the only tools that may be called for the request; None: any of the agent's.
        model_reason: why it runs on `model`; empty: nobody but the caller chose it.
        max_tokens: the tokens, in and out, after which no other model call is made; None: no limit.
        max_cost_usd: the US dollars, of models with a known price, after which none is made; None: no limit.
        key_id: the API key whose use of the day the run counts for; None: none's.
        key_limits: what that key may use in a day, by the names of `Limits`.
        note: the run only stores its messages, and ends without a model call.
        settings: options of the model's answers, by the names of an agent's settings.
        form: in which form the caller gets the run's messages. Only the server reads it.
        alone: a schedule or an event began the run, and no person waits for what it says.
    """

    model: str | None = None
    system: str | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    token_ids: bool = False
    caller: RunId | None = None
    hops: int = 0
    origin: RunId | None = None
    helper: str = ""
    model_reason: str = ""
    tools: Sequence[str] | None = field(default=None, hash=False)
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    key_id: str | None = None
    key_limits: Mapping[str, Any] = field(default_factory=dict, hash=False)
    note: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    form: Mapping[str, Any] = field(default_factory=dict, hash=False)
    alone: bool = False

    @property
    def values(self) -> dict[str, Any]:
        """The fields that are set, by name. Only these are stored, so older versions can read runs without new ones."""
        own = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in own.items() if value != getattr(NO_OPTIONS, name)}

    @property
    def differs(self) -> bool:
        """Whether the run has its own model or system text in place of the conversation's."""
        return self.model is not None or self.system is not None

    @property
    def wants_tokens(self) -> bool:
        """Whether the caller asked for the probabilities or numbers of the answer's tokens."""
        return self.logprobs or self.token_ids

    @property
    def model_settings(self) -> dict[str, Any]:
        """The options of the model's answer, as the settings of an agent hold them."""
        tokens = {"logprobs": True, "top_logprobs": self.top_logprobs, "token_ids": self.token_ids}
        return {**self.settings, **(tokens if self.wants_tokens else {})}


NO_OPTIONS = RunOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a run or step failed: the wire's error type and a sentence that helps."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """Where the end of a run or batch is reported, and what became of the last try.

    Args:
        url, sealed: the receiver; a part that may hold a key is hidden in the one, and encrypted in the other.
        tries: how many reports were begun.
        status_code: the HTTP status of the receiver's answer; None: there was none.
        private: whether the receiver may be on this machine or in a private network.
    """

    url: str = field(repr=False)
    sealed: str = field(default="", repr=False)
    tries: int = 0
    sent_at: datetime | None = None
    status_code: int | None = None
    error: str | None = None
    private: bool = False


CallbackOwner = Literal["runs", "batches"]
"""The table of what a callback reports."""


@dataclass(frozen=True, slots=True)
class DueCallback:
    """A report to send at `due_at`: of the end of the run or batch with this id."""

    owner: CallbackOwner
    id: str
    callback: Callback
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One request, from its messages to a stop reason.

    `first_message_seq` is where its input begins in the log; None while it waits for another run, because no message
    may separate that run's calls from their results. `context` are texts of hooks for the next request, which makes
    them rows of the log.

    Args:
        resumes: the run whose pending calls this one continues; None: it begins with messages.
        begins_at: the message with those calls; the run's log begins there.
        turn_from: the first message of the request that this run and those before it serve.
        input_waits: the messages that came with the answers are appended once all calls have their results.
        client_tools: the digest of the tools and skills that the caller sent.
        hidden: it is deleted: no list or look-up by id shows it. Its messages stay in the log.
        options: what the request sets for its own model calls.
        callback: where its end is reported; None: nowhere.
        batch_id: the batch that it was accepted with; None: it came alone.
    """

    __repr__ = short_repr("id", "status", "stop_reason", "step_count", "failure")

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
    hidden: bool = False
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    context: tuple[str, ...] = ()
    options: RunOptions = NO_OPTIONS
    callback: Callback | None = None
    batch_id: BatchId | None = None

    @property
    def ended(self) -> bool:
        """Whether the run has a stop reason."""
        return self.status not in ("queued", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Requests to several agents that were accepted in one transaction; each is answered by a run.

    Args:
        digest: of its requests. It tells a retry from another batch under the same key.
        runs: status -> how many runs of the batch have it, without those of deleted agents.
        ended_at: the end of the newest run that has ended; None: none has.
        callback: where the end of the last run is reported; None: nowhere.
    """

    id: BatchId
    number: int = 0
    digest: str
    created_at: datetime
    runs: Mapping[RunStatus, int] = field(default_factory=dict)
    ended_at: datetime | None = None
    callback: Callback | None = None

    @property
    def ended(self) -> bool:
        """Whether every run has ended."""
        return not self.runs.keys() & {"queued", "running"}

    @property
    def status(self) -> RunStatus | Literal["expired"]:
        """What became of the runs: cancelled if one was, failed if none brought an answer, expired if none is left."""
        if not self.ended:
            return "queued" if self.runs.keys() == {"queued"} else "running"
        if "cancelled" in self.runs:
            return "cancelled"
        return "failed" if self.runs.keys() == {"failed"} else "completed" if self.runs else "expired"


ChangedThing = Literal[
    "model",
    "agent type",
    "setting",
    "system prompt",
    "tool",
    "skills",
    "block",
    "files",
    "engine messages",
    "profile",
    "message",
    "messages",
    "summaries",
]
Change = Literal["added", "removed", "changed", "summarised", "merged", "cut", "revised"]

_PART_KINDS = {"words": "engine messages"}
"""Parts of a prefix that are called otherwise where they change."""


@dataclass(frozen=True, slots=True)
class PrefixChange:
    """One difference between a prefix and the one before it.

    Args:
        what: what kind of thing changed.
        name: which one: of a setting, tool or block its name, of messages and summaries their handles.
        by: who changed it, such as `user` or the id of a run; empty if that is not known.
    """

    what: ChangedThing
    name: str = ""
    change: Change = "changed"
    by: str = ""

    def __str__(self) -> str:
        """Return the change in a few words, such as `block human changed by user`."""
        return " ".join(filter(None, (self.what, self.name, self.change, self.by and f"by {self.by}")))


def compare_parts(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[PrefixChange, ...]:
    """Return the differences between the parts of two prefixes: in the order of `new`, then those that were removed.

    Args:
        old, new: `kind:name` of each part -> its value or a digest of it. An empty `old` is of an older store, which
            recorded none.
    """
    if not old:
        return ()
    changes: list[PrefixChange] = []
    for key in (*new, *(key for key in old if key not in new)):
        if old.get(key) == new.get(key):
            continue
        kind, _, name = key.partition(":")
        change: Change = "added" if key not in old else "removed" if key not in new else "changed"
        if kind == "model":
            name = f"{old.get(key, '?')} → {new.get(key, '?')}"
        changes.append(PrefixChange(cast(ChangedThing, _PART_KINDS.get(kind, kind)), name, change))
    return tuple(changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """The part of a request that repeats: compiled and stored once, sent until it is rewritten.

    `system` holds base prompt and memory section; `seen` the block versions in it; `from_message_seq` the first log row
    after it. `reason` says why it was (re)written.

    Args:
        opening: what the engine says first behind the system text: what differs from conversation to conversation;
            empty if nothing does, and in a prefix of an older store, whose system text has it.
        summary: the summary section for rows before `from_message_seq`; empty when none left the view.
        nodes: the numbers of its summary nodes, oldest first.
        pinned: the numbers of earlier rows between the summary and the rows that follow: the input of a run that is so
            long that its own beginning left the view.
        tokens: the upper estimate of tools, system, opening and summary.
        client_tools: the digest of the tools and skills that the caller sent.
        marker: the marker of the engine's messages after this prefix; empty in a prefix of an older store.
        hides_notice: answers in its view are shown without what the built-in program says about itself.
        parts: what it is made of: `kind:name` -> its value, version or digest.
        changes: what is different from the prefix before it.
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
    opening: str = ""
    summary: str = ""
    nodes: tuple[int, ...] = ()
    pinned: tuple[int, ...] = ()
    client_tools: str | None = None
    marker: str = ""
    hides_notice: bool = False
    parts: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[PrefixChange, ...] = ()
    created_at: datetime

    @property
    def words_zone(self) -> str:
        """The time zone of the dates in its messages, if the engine's are plain sentences; empty: they are JSON."""
        return self.parts.get("words", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All that is needed to build a request again, byte for byte, from the log.

    Args:
        stubs: row number -> characters, of rows that are shown in part.
        digest: of the request's canonical form (`context.sections.assemble.digest_of`); empty where none was recorded.
        tokens: the upper estimate of the whole request, not corrected.
        overcount: by how much the estimate is too high, from the provider's count of an earlier request; negative if it
            is too low. `tokens - overcount` was certified to fit.
        estimator: the quotient (tokens - overcount) / tokens.
        window_tokens: the window that the request had to fit, with the answer; 0: not recorded.
        tool_choice: the tool choice by the agent's tool rules, a list of names or a word; None: free.
        single_calls: whether tool rules allow only one call at a time.
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
    window_tokens: int = 0
    tool_choice: str | tuple[str, ...] | None = None
    single_calls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One model call and its tool calls; `index` counts within the run, from 0.

    `feedback` is a person's opinion of it, with `tags`.
    """

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
    feedback: Feedback | None = None
    tags: tuple[str, ...] = ()
    created_at: datetime
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFilter:
    """Selects steps, for which all conditions must hold; None asks for nothing.

    Args:
        model: the name of the model without its provider.
        has_feedback: whether a person gave an opinion.
        tags: the step has one of these; empty: any step.
        run_ids: the step is of one of these runs; None: any run.
        since, until: bounds of the step's start, both included.
        holding: what the settings of its agent hold; see `AgentFilter`.
    """

    agent_id: AgentId | None = None
    model: str | None = None
    feedback: Feedback | None = None
    has_feedback: bool | None = None
    tags: tuple[str, ...] = ()
    run_ids: tuple[RunId, ...] | None = None
    since: datetime | None = None
    until: datetime | None = None
    holding: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Selects runs, for which all conditions must hold; None and an empty tuple ask for nothing."""

    agent_ids: tuple[AgentId, ...] = ()
    conversation_id: ConversationId | None = None
    conversation_seq: int | None = None
    statuses: tuple[RunStatus, ...] = ()
    stop_reason: StopReason | None = None
    background: bool | None = None
    batch_id: BatchId | None = None
    waiting: bool = False  # with True those that have stopped at calls which wait for an answer
    model: str | None = None
    since: datetime | None = None
    until: datetime | None = None
