"""Conversations as the wire shows them, and what clients say of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from perdure.core.conversations import Conversation
from perdure.core.ids import AgentId, MessageId
from perdure.domain.conversations.units import DESCRIPTION, SUMMARY_CHARS, ConversationChanges
from perdure.library.services.conversations import ConversationState
from perdure.server.ids import IdFormat
from perdure.server.limits import MaxItems
from perdure.server.unsupported import NotSupported
from perdure.server.wire.base import ACTOR_ID, WireRequest, stamp

_Text = Annotated[str, Field(max_length=SUMMARY_CHARS)]


class _Own(WireRequest):
    """What a conversation has of its own here: words about it. All else is its agent's."""

    summary: _Text | None = None
    description: _Text | None = None
    model: str | None = None
    model_settings: dict[str, Any] | None = None
    context_window_limit: int | None = None

    def check(self) -> None:
        """Raises: NotSupported."""
        for name in ("model", "model_settings", "context_window_limit", "isolated_block_labels", "last_message_at"):
            if getattr(self, name, None):
                raise NotSupported(f"{name} of a conversation is not supported by this server yet: it is the agent's")


class ConversationIn(_Own):
    isolated_block_labels: Annotated[list[str], MaxItems("blocks_per_agent")] | None = None
    hidden: bool | None = None


class ConversationChangesIn(_Own):
    """What is not given stays; null takes it away. `agent_id` tells whose `default` is meant."""

    agent_id: Annotated[AgentId, IdFormat("agent")] | None = None
    archived: bool | None = None
    last_message_at: str | None = None

    def changes(self) -> ConversationChanges:
        """The fields of the conversation to change, with their values."""
        sent = self.model_fields_set
        changes: ConversationChanges = {}
        if "summary" in sent:
            changes["summary"] = self.summary
        if "description" in sent:
            changes["description"] = self.description
        if self.archived is not None:
            changes["archived"] = self.archived
        return changes


def conversation_state_shape(state: ConversationState) -> dict[str, Any]:
    """The conversation with the messages in view."""
    return conversation_shape(state.conversation, state.message_ids)


def conversation_shape(conversation: Conversation, shown: Sequence[MessageId] | None = None) -> dict[str, Any]:
    """`shown`: the messages in view; None: they were not looked up."""
    return {
        "created_by_id": ACTOR_ID,
        "last_updated_by_id": ACTOR_ID,
        "created_at": stamp(conversation.created_at),
        "updated_at": stamp(conversation.updated_at),
        "id": conversation.id,
        "agent_id": conversation.agent_id,
        "summary": conversation.summary,
        "in_context_message_ids": None if shown is None else list(shown),
        "isolated_block_ids": [],
        "model": None,
        "model_settings": None,
        "last_message_at": stamp(conversation.last_message_at),
        "description": conversation.settings.get(DESCRIPTION),
        "archived": conversation.archived_at is not None,
        "archived_at": stamp(conversation.archived_at),
        "context_window_limit": None,
    }
