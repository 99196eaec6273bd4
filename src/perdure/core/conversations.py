"""Conversations: one line of messages of an agent. Number 0 is the agent's default one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perdure.core.ids import AgentId, BlockId, ConversationId
from perdure.core.quick import quick

__all__ = ["Conversation"]


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """`seen` holds, per block, the version this conversation's log already shows the model: in its prefix, as a
    memory delta, or as the result of the agent's own edit. It is how a shared block's edit gets into every log once.
    `view_tokens` are the estimated tokens of the rows since the prefix, as far as they are shown.

    Args:
        stubs: row number -> characters: the rows in view of which only so much is shown.
        overcount: by how much the estimate of prefix and view is known to be too high, from what the provider
            measured of the last request; negative if it is too low.
    """

    id: ConversationId
    agent_id: AgentId
    seq: int
    summary: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    seen: Mapping[BlockId, int] = field(default_factory=dict)
    prefix_seq: int | None = None
    view_tokens: int = 0
    stubs: Mapping[int, int] = field(default_factory=dict)
    overcount: int = 0
    archived_at: datetime | None = None
    created_at: datetime
    updated_at: datetime
    last_message_at: datetime | None = None
