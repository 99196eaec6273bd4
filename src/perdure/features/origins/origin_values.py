"""Where memories and answers come from: values with the ids that open each part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from perdure.context.request.explain import Explanation
from perdure.core.forgetting.origins import FactOrigin
from perdure.core.ids import AgentId, ConversationId, MessageId, RunId, StepId
from perdure.core.messages import Message
from perdure.core.models import Exchange, ModelRequest
from perdure.core.sources import TrustLabel, WriteSource
from perdure.core.text.reprs import short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageText:
    """A message by its id, with its text. `id` is None for one that no log holds: the summaries of a request."""

    id: MessageId | None
    role: str
    kind: str = "message"
    name: str | None = None
    text: str
    at: datetime

    @classmethod
    def of(cls, message: Message) -> MessageText:
        """Return the text of a message."""
        return cls(
            id=message.id if message.seq >= 0 else None,
            role=message.role,
            kind=message.kind,
            name=message.name,
            text=message.text,
            at=message.occurred_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write of a memory.

    Args:
        author: an agent by its tools, a person or program from outside, or Perdure itself; `author_id` and
            `author_name` say which.
        call_message_id: the message with the tool call; `tool` and `arguments` are of the call.
        messages: what the agent was told, oldest first: the memory was written in answer to it.
        version: of the block; None: the memory is none.
        text: the memory after the write; None: the write removed it.
        diff: of the whole block, unified.
        label: how far it is trusted: that of its least trusted source.
        sources: what it may come from; empty: from its author alone.
    """

    at: datetime
    author: Literal["agent", "user", "system"]
    author_id: str
    author_name: str | None = None
    agent_id: AgentId | None = None
    run_id: RunId | None = None
    step_id: StepId | None = None
    call_message_id: MessageId | None = None
    call_id: str | None = None
    tool: str | None = None
    arguments: str | None = None
    messages: tuple[MessageText, ...] = ()
    version: int | None = None
    text: str | None = None
    diff: str = ""
    label: TrustLabel = "user"
    sources: tuple[WriteSource, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOrigin:
    """Where a memory comes from.

    Args:
        id: of the block or passage; of a summary its handle, which counts within `conversation_id`.
        label: of the block; `line` is the number of the line, from 1; None: the whole block, or no line any more.
        writes: the first write and each later change, oldest first; of a passage also those of its near-duplicates.
        earlier_writes: how many older changes there are.
        stands_for: the messages that a summary or a captured passage stands for, at most a hundred; `message_count` is
            how many they are.
        source: where a passage comes from, as it is stored with it: a file, for instance.
    """

    __repr__ = short_repr("kind", "id", "text", "writes")

    type: Literal["memory"] = "memory"
    kind: Literal["block", "line", "passage", "summary"]
    id: str
    label: str | None = None
    line: int | None = None
    conversation_id: ConversationId | None = None
    text: str
    writes: tuple[Write, ...]
    earlier_writes: int = 0
    stands_for: tuple[MessageText, ...] = ()
    message_count: int = 0
    source: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockText:
    """A version of a block in a request. `message_id`: the message that shows it; None: the prompt does.

    Args:
        change: how the message changes the block: "edited", "attached" or "detached"; None: the prompt shows it.
    """

    block_id: str | None
    label: str
    version: int | None
    text: str | None
    message_id: MessageId | None = None
    change: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryText:
    """A summary in a request, with the ids of the first and last message that it stands for."""

    handle: str
    text: str
    message_count: int
    first_message_id: MessageId | None
    last_message_id: MessageId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledText:
    """A text that automatic recall put into a request: a passage or a turn, with its score and the words shown."""

    kind: str
    id: str
    name: str
    score: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchText:
    """A search by the agent whose result is in a request. `passage_ids` are of the passages that it shows."""

    tool: str
    arguments: str
    message_id: MessageId
    text: str
    passage_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOrigin:
    """What was in the request that brought an answer.

    Args:
        model_reason: why it runs on this model; empty: it is the agent's own, or the caller chose it.
        text: the answer.
        messages: all messages of the request, in its order.
        tail: the status at the request's end, with what was recalled.
        problem: why the request can't be built again; then it is not here, and nothing of it.
        request, explanation, exchange: the request itself, what its parts cost, and what was sent and received.
    """

    __repr__ = short_repr("message_id", "run_id", "step_id", "model", "text", "messages", "problem")

    type: Literal["answer"] = "answer"
    agent_id: AgentId
    conversation_id: ConversationId
    run_id: RunId
    step_id: StepId
    message_id: MessageId | None
    model: str
    model_reason: str = ""
    at: datetime
    text: str
    blocks: tuple[BlockText, ...] = ()
    summaries: tuple[SummaryText, ...] = ()
    recalled: tuple[RecalledText, ...] = ()
    searches: tuple[SearchText, ...] = ()
    messages: tuple[MessageText, ...] = ()
    tail: str = ""
    problem: str | None = None
    request: ModelRequest | None = field(default=None, repr=False)
    explanation: Explanation | None = field(default=None, repr=False)
    exchange: Exchange | None = field(default=None, repr=False)


Origin = MemoryOrigin | FactOrigin | AnswerOrigin
