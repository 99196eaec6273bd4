"""Conversations on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import Field

from perdure.context.prompts import summary_prompt
from perdure.core.conversations import (
    CLIP_CHARS,
    EVICT_SHARE,
    MODEL,
    OPTIONS,
    WINDOW,
    CompactionMode,
    CompactionSettings,
)
from perdure.domain.conversations.units import DESCRIPTION, MODEL_SETTINGS, SUMMARY_CHARS, ConversationChanges
from perdure.engine.compaction.compact_view import Compacted
from perdure.library.services.conversations import ConversationState
from perdure.server.errors import NotSupported
from perdure.server.wire.base import WireRequest, fields, stamp, stamps
from perdure.server.wire.fields import AgentIdIn, MaxItems
from perdure.server.wire.models import ModelSettings

_Text = Annotated[str, Field(max_length=SUMMARY_CHARS)]


class _ConversationFields(WireRequest):
    """The fields of a conversation: texts about it, and what it has in place of its agent's."""

    summary: _Text | None = None
    description: _Text | None = None
    model: str | None = None
    model_settings: ModelSettings | None = None
    context_window_limit: Annotated[int, Field(ge=1)] | None = None

    def values(self) -> ConversationChanges:
        """The fields of the conversation that the body has, with their values."""
        own = {"summary", "description", "model", "context_window_limit"}
        values = self.model_dump(include=own, exclude_unset=True)
        if "model_settings" in self.model_fields_set:
            sent = self.model_settings
            values["model_settings"] = None if sent is None else sent.model_dump(exclude_unset=True)
            options = {} if sent is None else sent.options()
            values["options"] = {name: value for name, value in options.items() if value is not None} or None
        return cast(ConversationChanges, values)


class ConversationIn(_ConversationFields):
    """A new conversation."""

    isolated_block_labels: Annotated[list[str], MaxItems("blocks_per_agent")] | None = None
    hidden: bool | None = None


class EphemeralConversationIn(_ConversationFields):
    """A new conversation without an agent of the client's: it has a model and a system prompt of its own."""

    model: str
    system: str


class ConversationChangesIn(_ConversationFields):
    """Changes of a conversation. A missing field stays, null removes a text. `agent_id` is the owner of `default`."""

    agent_id: AgentIdIn | None = None
    archived: bool | None = None
    last_message_at: str | None = None

    def check_supported(self) -> None:
        """Raises: NotSupported: a field that a conversation can't have here."""
        if self.last_message_at:
            raise NotSupported("last_message_at of a conversation can't be set: it is the time of its newest message")

    def changes(self) -> ConversationChanges:
        """The fields of the conversation to change, with their values."""
        return cast(ConversationChanges, {**self.values(), **self.non_null("archived")})


class CompactionSettingsIn(WireRequest):
    """How to compact: by default the oldest part, with a summary by the agent's own model."""

    mode: CompactionMode | None = None
    model: str | None = None
    model_settings: ModelSettings | None = None
    prompt: _Text | None = None
    prompt_acknowledgement: bool | None = None
    clip_chars: Annotated[int, Field(ge=1)] | None = None
    sliding_window_percentage: Annotated[float, Field(ge=0, le=1)] | None = None

    def values(self) -> dict[str, Any]:
        """The fields of `CompactionSettings` that the client sets. A `clip_chars` of null is no limit."""
        values: dict[str, Any] = {
            "mode": self.mode,
            "model": self.model,
            "prompt": self.prompt,
            "acknowledge": self.prompt_acknowledgement,
            "evict_share": self.sliding_window_percentage,
            "clip_chars": 0 if "clip_chars" in self.model_fields_set and self.clip_chars is None else self.clip_chars,
        }
        if self.model_settings is not None:
            options = self.model_settings.options()
            values["options"] = {name: value for name, value in options.items() if value is not None} or None
        return {name: value for name, value in values.items() if value is not None}


def compaction_settings_shape(model: str, stored: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a client has set, with the defaults of a request to compact for the others."""
    return {
        "model": model,
        "model_settings": None,
        "prompt": summary_prompt(),
        "prompt_acknowledgement": False,
        "clip_chars": CLIP_CHARS,
        "mode": "sliding_window",
        "sliding_window_percentage": EVICT_SHARE,
        **stored,
    }


class CompactIn(WireRequest):
    """The body of a request to compact a conversation. `agent_id` is the owner of `default`."""

    agent_id: AgentIdIn | None = None
    compaction_settings: CompactionSettingsIn | None = None

    @property
    def settings(self) -> CompactionSettings | None:
        """The settings for the library."""
        sent = self.compaction_settings
        return None if sent is None else CompactionSettings(**sent.values())


def compacted_shape(compacted: Compacted) -> dict[str, Any]:
    """The result of a compaction."""
    return fields(compacted, "summary", num_messages_before="messages_before", num_messages_after="messages_after")


class RecompileIn(WireRequest):
    """The body of a request to compile a prompt. `agent_id` is the owner of `default`."""

    agent_id: AgentIdIn | None = None
    compaction_settings: dict[str, Any] | None = None


def conversation_shape(state: ConversationState) -> dict[str, Any]:
    """The conversation with all fields of the wire."""
    conversation, settings = state.conversation, state.conversation.settings
    return {
        **stamps(conversation.created_at, conversation.updated_at),
        **fields(conversation, "id", "agent_id", "summary"),
        **fields(state, in_context_message_ids="message_ids", isolated_block_ids="isolated_block_ids"),
        "model": settings.get(MODEL),
        "model_settings": settings.get(MODEL_SETTINGS),
        "last_message_at": stamp(conversation.last_message_at),
        "description": settings.get(DESCRIPTION),
        "archived": conversation.archived_at is not None,
        "archived_at": stamp(conversation.archived_at),
        "context_window_limit": settings.get(OPTIONS, {}).get(WINDOW),
    }
