"""Conversations on the wire, and the parts of a context window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from perdure.context.prompts import summary_prompt
from perdure.context.request.explain import share_out
from perdure.context.sections.envelopes import text_for_clients
from perdure.context.window.budget import blocks_section, directories_section
from perdure.core.conversations import (
    CLIP_CHARS,
    EVICT_SHARE,
    MODEL,
    OPTIONS,
    WINDOW,
    CompactionMode,
    CompactionSettings,
)
from perdure.core.messages import Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from perdure.core.ports import TokenCounter
from perdure.domain.conversations.units import DESCRIPTION, MODEL_SETTINGS, SUMMARY_CHARS, ConversationChanges
from perdure.engine.compaction.compact_view import CompactionCounts
from perdure.engine.compaction.room import RequestPreview
from perdure.library.messages.conversations import FullConversation
from perdure.server.wire.base import WireRequest, fields, nulls
from perdure.server.wire.errors import NotSupported
from perdure.server.wire.fields import AgentIdIn, MaxItems, RunIdIn
from perdure.server.wire.models import ModelSettings
from perdure.server.wire.shapes import Object, StampedShape, WireShape, computed

_RULES = ("<tool_usage_rules>", "</tool_usage_rules>")
_METADATA = ("<memory_metadata>", "</memory_metadata>")


class Context(WireShape):
    """The tokens of the parts (`num_tokens_...`) and their texts; they sum to `context_window_size_current`."""

    context_window_size_max: int
    context_window_size_current: int
    num_messages: int
    num_archival_memory: int
    num_recall_memory: int
    system_prompt: str
    core_memory: str
    functions_definitions: list[Object] | None
    messages: list[Object]


def context_shape(preview: RequestPreview, *, counter: TokenCounter) -> Context:
    """The overview with all fields of the wire; the parts' tokens sum to `context_window_size_current`.

    The status, the date and counts at the end of each request, is part of the external summary, which has counts too.
    Perdure has no memory files in its prompt: that part is empty.
    """
    view, certificate = preview.view, preview.certificate
    tokens = {segment.name: segment.tokens for segment in certificate.segments}
    blocks, metadata = blocks_section(view.prefix.system), _section(text_for_clients(view.prefix), *_METADATA)
    directories = directories_section(view.prefix.system)
    rules = _section(view.prefix.system, *_RULES)
    system = _without(view.prefix.system, blocks, rules, directories, metadata)
    metadata_tokens = min(tokens["system prompt"], counter.count(metadata))
    rule_tokens = min(tokens["system prompt"] - metadata_tokens, counter.count(rules))
    # The summary, which is shown first, stands in no log.
    messages = [StoredMessage.make(message) for message in view.messages[bool(view.prefix.summary) :]]
    summary = "\n".join(filter(None, (metadata, preview.status)))
    functions = [{"type": "function", "function": dict(tool)} for tool in view.prefix.tools]
    parts: dict[str, tuple[int, Any]] = {  # tokens and content
        "external_memory_summary": (metadata_tokens + tokens["status"], summary),
        "system": (tokens["system prompt"] - metadata_tokens - rule_tokens, system),
        "core_memory": (tokens["memory blocks"], blocks),
        "memory_filesystem": (0, None),
        "tool_usage_rules": (rule_tokens, rules or None),
        "directories": (tokens.get("files", 0), directories or None),
        "summary_memory": (tokens["summary"], view.prefix.summary or None),
        "functions_definitions": (tokens["tools"], functions),
        "messages": (tokens["messages"] + tokens["newest turn"], messages),
    }
    shape = Context(
        context_window_size_max=certificate.window_tokens,
        context_window_size_current=certificate.tokens,
        num_messages=len(messages),
        num_archival_memory=preview.counts.passages,
        num_recall_memory=preview.counts.messages,
    )
    sizes = share_out([size for size, _ in parts.values()], certificate.tokens)
    for (name, (_, content)), size in zip(parts.items(), sizes, strict=True):
        shape |= {f"num_tokens_{name}": size, "system_prompt" if name == "system" else name: content}
    return shape


class StoredMessage(
    WireShape,
    of=Message,
    fields="created_by_id last_updated_by_id created_at updated_at id agent_id model role content name tool_calls"
    " tool_call_id step_id run_id otid tool_returns group_id sender_id",
    unlisted=nulls("created_by_id", "last_updated_by_id", "updated_at", "model", "group_id", "batch_item_id", "is_err"),
):
    """A row of the log by role, as Letta stores messages: calls and results are no messages of their own, so that one
    row is one message."""

    role: Literal["assistant", "tool"]  # as a batch lists them
    run_id: RunIdIn
    content: list[Object] = computed(lambda message: _content(message.parts))
    name: str | None = computed(lambda message: message.name or next((result.name for result in message.results), None))
    tool_calls: list[Object] | None = computed(lambda message: [_call(call) for call in message.calls] or None)
    tool_call_id: str | None = computed(lambda message: next((result.call_id for result in message.results), None))
    tool_returns: list[Object] = computed(lambda message: [_result(result) for result in message.results])


def _call(call: ToolCall) -> Object:
    """A call as OpenAI's API has it."""
    return {"id": call.call_id, "function": {"name": call.name, "arguments": call.arguments}, "type": "function"}


def _result(result: ToolResult) -> Object:
    """A result beside the text of its row."""
    shape = fields(result, "status", tool_call_id="call_id", func_response="text")
    return shape | {"stdout": list(result.stdout), "stderr": list(result.stderr)}


def _content(parts: Sequence[Part]) -> list[Mapping[str, Any]]:
    """Texts and reasoning; of a tool's message what it returned."""
    shapes: list[Mapping[str, Any]] = []
    for part in parts:
        if isinstance(part, Reasoning):
            shapes.append({"type": "reasoning", "is_native": True, "reasoning": part.text, "signature": part.signature})
        elif isinstance(part, Text | Image | ToolResult):
            shapes.append({"type": "text", "text": part.text})
    return shapes


def _section(text: str, begin: str, end: str) -> str:
    """The last section of this name, tags included; empty if there is none."""
    start = text.rfind(begin)
    stop = text.find(end, start)
    return text[start : stop + len(end)] if 0 <= start < stop else ""


def _without(text: str, *sections: str) -> str:
    """Return the text without the last occurrence of each section; the texts around one are joined by an empty line."""
    for section in filter(None, sections):
        before, _, after = text.rpartition(section)
        text = "\n\n".join(filter(None, (before.rstrip(), after.lstrip())))
    return text.strip()


_Text = Annotated[str, Field(max_length=SUMMARY_CHARS)]


class _ConversationFields(WireRequest):
    """The fields of a conversation: its texts, and settings that replace its agent's."""

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


class WireCompaction(
    WireShape,
    of=CompactionCounts,
    fields="summary",
    num_messages_before="messages_before",
    num_messages_after="messages_after",
):
    """The summary, and how many messages were in view before and after, with system message and summaries."""


class RecompileIn(WireRequest):
    """The body of a request to compile a prompt. `agent_id` is the owner of `default`."""

    agent_id: AgentIdIn | None = None
    compaction_settings: dict[str, Any] | None = None


class WireConversation(
    StampedShape,
    of=FullConversation,
    fields="conversation.created_at conversation.updated_at conversation.id conversation.agent_id conversation.summary"
    " in_context_message_ids isolated_block_ids model model_settings conversation.last_message_at description archived"
    " conversation.archived_at context_window_limit",
    in_context_message_ids="message_ids",
):
    """A conversation; null is what its agent has."""

    description: str | None = computed(lambda state: state.conversation.settings.get(DESCRIPTION))
    model: str | None = computed(lambda state: state.conversation.settings.get(MODEL))
    model_settings: Object | None = computed(lambda state: state.conversation.settings.get(MODEL_SETTINGS))
    context_window_limit: int | None = computed(lambda state: state.conversation.settings.get(OPTIONS, {}).get(WINDOW))
    archived: bool = computed(lambda state: state.conversation.archived_at is not None)
