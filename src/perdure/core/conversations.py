"""Conversations: one line of messages of an agent. Number 0 is the agent's default one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from perdure.core.agents import Agent
from perdure.core.blocks import Author
from perdure.core.ids import AgentId, ConversationId
from perdure.core.messages import Message

__all__ = [
    "Conversation",
    "ConversationFilter",
    "ConversationOrder",
    "Counted",
    "Opening",
    "Reset",
    "Waiting",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """`seen` holds, per block, the version this conversation's log already shows the model: in its prefix, as a
    memory delta, or as the result of the agent's own edit. It is how a shared block's edit gets into every log once.
    `view_tokens` are the estimated tokens of the rows since the prefix, as far as they are shown.

    Args:
        stubs: row number -> characters: the rows in view of which only so much is shown.
        overcount: by how much the estimate of prefix and view is known to be too high, from what the provider
            measured of the last request; negative if it is too low.
        pending_run_seq: the run that stopped at calls which wait for somebody outside; None: nothing waits.
        pending_from: the message with those calls.
        first_seq: the first row since the newest reset; what stands before it is out of view for good.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """A conversation began anew: its messages up to `upto_seq` were taken out of view, `message_count` of them said by
    somebody or a tool's result. `number` counts the resets of the conversation, from 1."""

    agent_id: AgentId
    conversation_id: ConversationId
    number: int
    upto_seq: int
    message_count: int
    author: Author
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a run or a request of a conversation begins from, as its transaction finds it in one look.

    Args:
        active_run_seq: the oldest run of the conversation that has not ended.
        agent: as it stands, but for how many messages it has, where it was known from before.
        message_count: how many messages it has.
        next_run_seq, next_message_seq: the agent's next numbers.
        embedded: whether the agent's messages get vectors.
        blocks: the agent's blocks, id -> version.
        passages: how many its archives hold.
        has_folders: whether any is attached to it: then memory is also what `agent_files.shown` tells.
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
    has_folders: bool

    def after(self, messages: Sequence[Message]) -> Opening:
        """The same, now that these were appended to the conversation."""
        if not messages:
            return self
        said = sum([message.kind == "message" for message in messages])
        tokens = sum([message.tokens for message in messages])
        return Opening(
            agent=self.agent,
            message_count=self.message_count + said,
            conversation=replace(
                self.conversation,
                view_tokens=self.conversation.view_tokens + tokens,
                last_message_at=messages[-1].created_at,
            ),
            active_run_seq=self.active_run_seq,
            next_run_seq=self.next_run_seq,
            next_message_seq=messages[-1].seq + 1,
            embedded=self.embedded,
            blocks=self.blocks,
            passages=self.passages,
            has_folders=self.has_folders,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFilter:
    """Which conversations: all conditions hold. `text` is a part of the summary, in any case."""

    agent_id: AgentId | None = None
    archived: bool | None = None
    text: str | None = None


ConversationOrder = Literal["created", "last_message", "last_run"]
"""What conversations are sorted by; "last_run" is when a run of theirs has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How many messages were in view before `next_seq`, by conversation: `said`. It is true of them for as long as the
    agent has the same settings revision, but for conversations that were reset since."""

    next_seq: int
    settings_revision: int
    said: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a conversation holds that was not captured: how many tokens, and the number of its last row; -1: none."""

    tokens: int
    upto_seq: int
