"""Conversations: sequences of an agent's messages. Number 0 is the agent's default one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from perdure.core.agents import Agent
from perdure.core.blocks import Author
from perdure.core.ids import AgentId, ConversationId, MessageId, derived_id
from perdure.core.messages import Message, Text
from perdure.core.text.reprs import short_repr

ConversationKey = tuple[AgentId, int]
"""An agent, and the number of one of its conversations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation.

    Args:
        seen: block id -> the version that the log shows the model: in its prefix, a memory delta, or the result of the
            agent's own edit. So the edit of a shared block gets into every log once. Likewise for folders and files,
            and graph id -> the newest change of a fact by a person.
        view_tokens: the estimated tokens of the rows since the prefix, in their visible form.
        stubs: row number -> characters, of rows in view that are shown in part.
        overcount: by how much the estimate of prefix and view is too high, from the provider's count of the last
            request; negative if it is too low.
        pending_run_seq: the run that stopped at pending calls; None: nothing waits.
        pending_from: the message with those calls.
        first_seq: the first row since the newest reset; earlier rows are out of view for good.
    """

    __repr__ = short_repr("id", "seq", "summary")

    id: ConversationId
    agent_id: AgentId
    seq: int
    summary: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    seen: Mapping[str, int] = field(default_factory=dict)
    prefix_seq: int | None = None
    view_tokens: int = 0
    stubs: Mapping[int, int] = field(default_factory=dict)
    overcount: int = 0
    pending_run_seq: int | None = None
    pending_from: int | None = None
    first_seq: int = 0
    archived_at: datetime | None = None
    created_at: datetime
    updated_at: datetime
    last_message_at: datetime | None = None

    @property
    def key(self) -> ConversationKey:
        """The agent's id and the number of the conversation, by which its messages and runs are stored."""
        return self.agent_id, self.seq


SYSTEM_SEQ = -(2**40)
"""The number of the first conversation's system message; the others' follow, before the log, which begins at 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMessage:
    """The system message of a conversation, as clients are shown it: what the model is sent before everything else.

    It stands in no log.

    Args:
        text: without a marker; empty if it is rendered when it is read.
        blocks: block id -> the version to render; None: `text` is there.
        compiled_at: the time that the text names.
    """

    id: MessageId
    agent_id: AgentId
    conversation_seq: int
    text: str
    blocks: Mapping[str, int] | None = None
    compiled_at: datetime
    created_at: datetime

    @property
    def as_message(self) -> Message:
        """The message that clients are shown."""
        return Message(
            id=self.id,
            agent_id=self.agent_id,
            seq=SYSTEM_SEQ + self.conversation_seq,
            conversation_seq=self.conversation_seq,
            role="system",
            parts=(Text(self.text),),
            created_at=self.created_at,
            occurred_at=self.created_at,
        )


def system_message_id(conversation_id: ConversationId) -> MessageId:
    """Return the id of a conversation's system message."""
    return MessageId(derived_id("message", "system", conversation_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """A reset of a conversation: its messages up to `upto_seq` left the view for good.

    `message_count` counts them without the engine's own; `number` counts the resets of the conversation, from 1.
    """

    agent_id: AgentId
    conversation_id: ConversationId
    number: int
    upto_seq: int
    message_count: int
    author: Author
    created_at: datetime


COMPACTION = "compaction"
"""Where an agent's settings hold the fields of its `CompactionSettings`."""

EVICT_SHARE, CLIP_CHARS = 0.3, 50_000
"""The defaults of a compaction on request."""

CompactionMode = Literal["all", "sliding_window", "self_compact_all", "self_compact_sliding_window"]
"""What leaves the view: all, or the oldest part. With `self` the agent's own model writes the summary, in a request
that begins as the agent's own do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """How a conversation is compacted. None: as the agent's setting `compaction` says, else the default.

    Args:
        mode: what leaves the view; by default the oldest part.
        model: the handle of the model that writes the summary; by default, and with the modes `self_...`, the agent's.
        options: of that model, by their names in `ModelOptions`.
        prompt: its instructions; by default Perdure's own.
        acknowledge: whether the request has an answer of the model in which it agrees to write only a summary.
        evict_share: with a sliding window, the share to leave, 0.3 on request. A full window makes room by Perdure's
            own rule unless an agent has this setting.
        clip_chars: the most characters of the summary, 50,000 by default; 0: no limit.
    """

    mode: CompactionMode | None = None
    model: str | None = None
    options: Mapping[str, Any] | None = None
    prompt: str | None = None
    acknowledge: bool | None = None
    evict_share: float | None = None
    clip_chars: int | None = None

    @classmethod
    def of(cls, agent: Agent, own: CompactionSettings | None = None) -> CompactionSettings:
        """The compaction settings of an agent; a field of `own`, the settings of one request, takes precedence."""
        settings = cls(**agent.settings.get(COMPACTION, {}))
        own_fields = {} if own is None else {name: getattr(own, name) for name in cls.__slots__}
        return replace(settings, **{name: value for name, value in own_fields.items() if value is not None})

    @property
    def takes_all(self) -> bool:
        """Whether all messages leave the view that may leave it."""
        return self.mode in ("all", "self_compact_all")

    @property
    def keep_share(self) -> float | None:
        """The share of the room for removable messages that stays full after an automatic compaction; None: Perdure's
        default rule. At most 0.9, as the next request would need a compaction again."""
        if self.takes_all:
            return 0.0
        return None if self.evict_share is None else min(0.9, 1 - self.evict_share)

    def clip(self, text: str) -> str:
        """Return `text`, a summary, cut to `clip_chars`."""
        limit = CLIP_CHARS if self.clip_chars is None else self.clip_chars
        return text[:limit] if limit else text


SUMMARIES = "summaries"
"""Where an agent's settings hold the fields of its `SummarySettings`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarySettings:
    """How summaries are prepared in the background, so that a full window has them ready.

    A leaf is a summary of messages, a condensed node one of other summaries.

    Args:
        author: who writes them, also when the window is full: a model, or our own code, which extracts.
        background: whether any are prepared.
        context_threshold: the share of the window from which on they are.
        fresh_tail_messages, fresh_tail_tokens: the newest messages, at most so many, which no leaf covers. Tokens by
            default: four tenths of the room for messages, without the largest run in view.
        leaf_min_fanout: the least messages of a leaf, unless they take half of a chunk.
        leaf_chunk_tokens: the most that a leaf replaces; at most six tenths of the room.
        leaf_target_tokens, condensed_target_tokens: the most of one summary, in a large window.
        condensed_min_fanout: how many nodes of one level become one of the next.
    """

    author: Literal["model", "code"] = "model"
    background: bool = True
    context_threshold: float = 0.75
    fresh_tail_messages: int = 64
    fresh_tail_tokens: int | None = None
    leaf_min_fanout: int = 8
    leaf_chunk_tokens: int = 20_000
    leaf_target_tokens: int = 2_400
    condensed_min_fanout: int = 4
    condensed_target_tokens: int = 2_000

    @classmethod
    def of(cls, agent: Agent) -> SummarySettings:
        """Return the summary settings of an agent."""
        return cls(**(agent.settings.get(SUMMARIES) or {}))


MODEL, OPTIONS, WINDOW = "model", "options", "context_window_tokens"
"""Where a conversation's settings hold its own model and options, and where options hold the window."""

EPHEMERAL = "ephemeral"
"""Where its settings hold that its agent is there for it alone, and is deleted with it."""


def agent_in(agent: Agent, conversation: Conversation) -> Agent:
    """Return the agent as the requests of this conversation need it: with the conversation's own model and options.

    The agent's window is that of its own model, so it does not hold for another one.
    """
    model, options = conversation.settings.get(MODEL), conversation.settings.get(OPTIONS)
    if model is None and options is None:
        return agent
    settings = {name: value for name, value in agent.settings.items() if model is None or name != WINDOW}
    return replace(
        agent,
        model=model or agent.model,
        follows_default=agent.follows_default and model is None,
        settings=settings | (options or {}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationState:
    """The state of a conversation and its agent at the beginning of a run or request, read at once.

    Args:
        active_run_seq: the run of the conversation that is running, else the oldest that waits; None: all have ended.
        agent: the agent as `agent_in` returns it for this conversation; its own `message_count` may be old.
        message_count: how many messages the agent has.
        next_run_seq, next_message_seq: the agent's next numbers.
        embedded: whether the agent's messages get vectors.
        blocks: the agent's blocks, id -> version.
        passages: how many passages its archives hold.
        has: what the agent has of features, by the names in `Feature.has`.
        has_notes: whether one of the blocks holds working notes.
        has_rules: whether only a person changes one of the blocks, or one says how calls fail.
        has_others: whether something was said in another of the agent's first conversations.
    """

    agent: Agent
    conversation: Conversation
    message_count: int
    active_run_seq: int | None
    next_run_seq: int
    next_message_seq: int
    embedded: bool
    blocks: Mapping[str, int]
    passages: int
    has: Mapping[str, Any]
    has_notes: bool
    has_rules: bool
    has_others: bool

    def with_messages(self, messages: Sequence[Message]) -> ConversationState:
        """Return the state after these messages were appended to the conversation."""
        if not messages:
            return self
        count = sum([message.kind == "message" for message in messages])
        tokens = sum([message.tokens for message in messages])
        conversation = replace(
            self.conversation,
            view_tokens=self.conversation.view_tokens + tokens,
            last_message_at=messages[-1].created_at,
        )
        return replace(
            self,
            message_count=self.message_count + count,
            conversation=conversation,
            next_message_seq=messages[-1].seq + 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFilter:
    """Selects conversations, for which all conditions must hold. `text` is a part of the summary, in any case."""

    agent_id: AgentId | None = None
    archived: bool | None = None
    text: str | None = None


ConversationOrder = Literal["created", "last_message", "last_run"]
"""The order of conversations; "last_run" is the end of their last run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCounts:
    """The number of messages in view before `next_seq`, by conversation. It holds while the agent has the same settings
    revision, except for conversations that were reset since."""

    next_seq: int
    settings_revision: int
    counts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Backlog:
    """A conversation's messages that wait for background work: tokens in all, number of the last (-1: none), count."""

    tokens: int
    upto_seq: int
    turns: int = 0


GRAPH_KEY = "graph-"
"""How a key of a conversation's seen versions begins that is a graph, not a block, folder or file."""
