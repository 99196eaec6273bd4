"""Agents as the wire shows and takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from perdure.context.prompts import base_prompt
from perdure.core.agents import DEFAULT_AGENT_TYPE, Agent
from perdure.core.ids import BlockId, FolderId, ToolId
from perdure.core.messages import Text
from perdure.core.ports import Embedder
from perdure.core.runs import Run
from perdure.core.tools.rule_check import rules_to_settings
from perdure.domain.agents.automatic import AUTOMATIC_SETTINGS
from perdure.domain.agents.units import CONTEXT_WINDOW_TOKENS_MIN, AgentChanges, NewAgent
from perdure.domain.blocks.units import NewBlock
from perdure.domain.tools.specs import DEFAULT_TOOLS
from perdure.library.services.agents import AgentState, Belongings
from perdure.library.services.messages import NewMessage
from perdure.server.ids import IdFormat
from perdure.server.limits import Items, ItemsByName, MaxItems, Tags
from perdure.server.unsupported import NotSupported
from perdure.server.wire.approvals import pending_shape
from perdure.server.wire.base import WireRequest, stamp
from perdure.server.wire.blocks import NewWireBlock, block_shape, memory_shape
from perdure.server.wire.folders import folder_shape
from perdure.server.wire.models import (
    Facts,
    LlmConfig,
    ModelSettings,
    ResponseFormat,
    extras_of,
    handles_named,
    llm_config_shape,
    model_settings_shape,
)
from perdure.server.wire.secrets import SecretsIn, secret_shape, secrets_of
from perdure.server.wire.tools import tool_shape
from perdure.server.wire.values import JsonObject, keywords

AgentType = Literal[
    "memgpt_agent",
    "memgpt_v2_agent",
    "letta_v1_agent",
    "react_agent",
    "workflow_agent",
    "split_thread_agent",
    "sleeptime_agent",
    "voice_convo_agent",
    "voice_sleeptime_agent",
]

_MEMGPT = (
    "send_message",
    "conversation_search",
    "core_memory_append",
    "core_memory_replace",
    "memory",
    "memory_apply_patch",
)

BASE_TOOLS: Mapping[str, Sequence[str]] = {
    "letta_v1_agent": DEFAULT_TOOLS["letta_v1_agent"],
    "memgpt_agent": _MEMGPT,
    "memgpt_v2_agent": ("send_message", "conversation_search", "memory_insert", "memory_replace"),
    "split_thread_agent": _MEMGPT,
    "sleeptime_agent": ("memory_replace", "memory_insert", "memory_rethink", "memory_finish_edits"),
    "react_agent": (),
    "workflow_agent": (),
    "voice_convo_agent": ("send_message", "search_memory"),
    "voice_sleeptime_agent": ("store_memories", "rethink_user_memory", "finish_rethinking_memory"),
}
"""Agent type -> the tools it has unless `include_base_tools` is false. Those that are not here are left out."""

HIDDEN_TAG = "role:subagent"
"""Agents with this tag are hidden, whatever the client asks for."""

_Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\w '\-]+$")]
_BlockId = Annotated[BlockId, IdFormat("block")]
_FolderId = Annotated[FolderId, IdFormat("folder")]
_ToolId = Annotated[ToolId, IdFormat("tool")]
_WINDOW = keywords(minimum=CONTEXT_WINDOW_TOKENS_MIN)
_Count = Annotated[int | None, Field(ge=0, le=2**53)]

# What an agent is given and only gives back: nothing here works by it.
_KEPT = (
    "embedding",
    "embedding_config",
    "compaction_settings",
    "message_buffer_autoclear",
    "project_id",
    "template_id",
    "base_template_id",
)

_REFUSED: Mapping[str, str] = {
    "enable_sleeptime": "sleeptime agents",
    "identity_ids": "identities",
    "from_template": "templates",
    "memory_variables": "templates",
    "include_default_source": "a default folder",
    "include_multi_agent_tools": "multi-agent tools",
    "message_ids": "choosing the messages in context",
}
"""Field -> what it would need. Without it such an agent would not do what it was made for, so it is not made."""


class InitialMessage(WireRequest):
    """A message that an agent begins with."""

    role: Literal["system", "user", "assistant"]
    content: str | Items[dict[str, Any]]
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None

    @property
    def text(self) -> str:
        """What it says. Raises: NotSupported: it has a part that is no text."""
        if isinstance(self.content, str):
            return self.content
        for part in self.content:
            if part.get("type", "text") != "text" or not isinstance(part.get("text"), str):
                raise NotSupported("initial_message_sequence: only text can be in a message that an agent begins with")
        return "\n".join(part["text"] for part in self.content)


class AgentChangesIn(WireRequest):
    """What may be changed of an agent. What is missing or null stays as it is."""

    name: _Name | None = None
    description: str | None = None
    system: str | None = None
    metadata: JsonObject | None = None
    tags: Tags | None = None
    timezone: str | None = None
    hidden: bool | None = None
    model: Annotated[str, Field(pattern="^[^/]+/.+$")] | None = None
    model_settings: ModelSettings | None = None
    llm_config: LlmConfig | None = None
    context_window_limit: Annotated[int, Field(ge=1, le=2**53), _WINDOW] | None = None
    max_tokens: _Count = None
    max_reasoning_tokens: _Count = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    embedding: str | None = None
    embedding_config: JsonObject | None = None
    compaction_settings: JsonObject | None = None
    message_buffer_autoclear: bool | None = None
    max_files_open: _Count = None
    per_file_view_window_char_limit: _Count = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    block_ids: Annotated[list[_BlockId], MaxItems("blocks_per_agent")] | None = None
    tool_ids: Annotated[list[_ToolId], MaxItems("tools_per_agent")] | None = None
    tool_rules: Annotated[list[dict[str, Any]], MaxItems("tool_rules_per_agent")] | None = None
    # Perdure's own, beyond the wire; `false` and an empty list take them away.
    auto_recall: bool | JsonObject | None = None
    auto_capture: bool | JsonObject | None = None
    bypass_session_patterns: Items[str] | None = None
    secrets: Annotated[SecretsIn, MaxItems("secrets_per_owner")] | None = None
    tool_exec_environment_variables: Annotated[SecretsIn, MaxItems("secrets_per_owner")] | None = None
    # Of these only the empty forms can be served.
    enable_sleeptime: bool | None = None
    identity_ids: Items[str] | None = None
    folder_ids: Annotated[list[_FolderId], MaxItems("folders_per_agent")] | None = None
    source_ids: Annotated[list[_FolderId], MaxItems("folders_per_agent")] | None = None
    message_ids: Items[str] | None = None

    def check_supported(self) -> None:
        """Nothing, when this server can do what is asked. Raises: NotSupported, naming the fields."""
        asked = [name for name, value in self if name in _REFUSED and value]
        if asked:
            needed = ", ".join(dict.fromkeys(_REFUSED[name] for name in asked))
            raise NotSupported(f"{', '.join(asked)}: this server has no {needed} yet; leave it out or empty")

    @property
    def secret_values(self) -> dict[str, str] | None:
        """The new secrets of the agent, name -> value; None: they stay. The newer field wins."""
        given = self.tool_exec_environment_variables if self.secrets is None else self.secrets
        return None if given is None else secrets_of(given)

    @property
    def named_model(self) -> str | None:
        """The model that the client names, as it stands."""
        return self.model or (self.llm_config and self.llm_config.named) or None

    @property
    def model_handles(self) -> Sequence[str]:
        """The handles of the model that the client names; none: it names no model."""
        return handles_named(self.named_model) if self.named_model else ()

    def prompt(self) -> str | None:
        """The base prompt, None for Perdure's own: a client that sends back the prompt it got changes nothing."""
        return None if self.system is None or self.system == base_prompt() else self.system

    def changes(self, before: Agent, model: str | None) -> AgentChanges:
        """The fields of the agent to change, with their values; `model` is the handle of its new model."""
        settings = merged_settings(before.settings, self, model_changes=model not in (None, before.model))
        changes: AgentChanges = {"settings": settings}
        if model is not None:
            changes["model"] = model
        if self.name is not None:
            changes["name"] = self.name
        if self.description is not None:
            changes["description"] = self.description
        if self.system is not None:
            changes["system"] = self.prompt()
        if self.timezone is not None:
            changes["timezone"] = self.timezone
        if self.metadata is not None:
            changes["metadata"] = self.metadata
        if self.tags is not None:
            changes["tags"] = tuple(dict.fromkeys(self.tags))
        hidden = before.hidden if self.hidden is None else self.hidden
        changes["hidden"] = hidden or HIDDEN_TAG in changes.get("tags", before.tags)
        return changes

    @property
    def belongings(self) -> Belongings:
        """What the agent is to have besides its own fields."""
        folder_ids = self.source_ids if self.folder_ids is None else self.folder_ids
        return Belongings(
            block_ids=self.block_ids, tool_ids=self.tool_ids, folder_ids=folder_ids, secrets=self.secret_values
        )


class AgentIn(AgentChangesIn):
    """What an agent is made of; it needs a model, in the newer or the older form."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["model"], "properties": {"model": {"type": "string"}}},
                {"required": ["llm_config"], "properties": {"llm_config": {"type": "object"}}},
            ]
        }
    )

    agent_type: AgentType = DEFAULT_AGENT_TYPE  # type: ignore[assignment]  # it is one of them
    memory_blocks: Annotated[list[NewWireBlock], MaxItems("blocks_per_agent")] | None = None
    tools: Annotated[list[str], MaxItems("tools_per_agent")] | None = None
    include_base_tools: bool | None = None
    initial_message_sequence: Annotated[list[InitialMessage], MaxItems("messages_per_request")] | None = None
    from_template: str | None = None
    memory_variables: ItemsByName[Any] | None = None
    include_default_source: bool | None = None
    include_multi_agent_tools: bool | None = None

    def new_agent(self, name: str, model: str) -> NewAgent:
        """The agent to make; `name` is used if the client gives none."""
        tags = tuple(dict.fromkeys(self.tags or ()))
        return NewAgent(
            name=self.name or name,
            model=model,
            agent_type=DEFAULT_AGENT_TYPE,
            system=self.prompt(),
            description=self.description,
            timezone=self.timezone or "UTC",
            blocks=tuple(NewBlock(**block.fields) for block in self.memory_blocks or ()),
            block_ids=tuple(self.block_ids or ()),
            optional_tools=() if self.include_base_tools is False else BASE_TOOLS[self.agent_type],
            tools=tuple(self.tools or ()),
            tool_ids=self.tool_ids or (),
            tags=tags,
            metadata=self.metadata or {},
            settings=merged_settings({}, self),
            hidden=bool(self.hidden) or HIDDEN_TAG in tags,
        )

    @property
    def belongings(self) -> Belongings:
        """What the agent is to have besides what `new_agent` says."""
        return Belongings(folder_ids=(*(self.folder_ids or ()), *(self.source_ids or ())), secrets=self.secret_values)

    @property
    def first_messages(self) -> Sequence[NewMessage]:
        """The messages that the agent begins with. Raises: NotSupported."""
        return [
            NewMessage((Text(message.text),), message.role, message.name, message.otid, message.sender_id)
            for message in self.initial_message_sequence or ()
        ]


def agent_type_of(agent: Agent) -> str:
    """The type that a client gave. All types work as `letta_v1_agent` does until they have loops of their own."""
    asked: str = agent.settings.get("wire", {}).get("agent_type", agent.agent_type)
    return asked


def merged_settings(before: Mapping[str, Any], body: AgentChangesIn, *, model_changes: bool = False) -> dict[str, Any]:
    """An agent's settings with what a client asks for: model options by their names in `core.models.ModelOptions`,
    the window as `context_window_tokens`, and under `wire` what is only given back.

    Of an option that is named twice the newer way wins: `model_settings`, then the field, then `llm_config`.
    """
    settings = dict(before)
    kept = dict(before.get("wire", {}))
    config = body.llm_config
    given: dict[str, Any] = config.options() if config else {}
    for name, value in (
        ("max_output_tokens", body.max_tokens),
        ("max_reasoning_tokens", body.max_reasoning_tokens),
        ("parallel_tool_calls", body.parallel_tool_calls),
        ("max_files_open", body.max_files_open),
        ("file_view_chars", body.per_file_view_window_char_limit),
    ):
        if value is not None:
            given[name] = None if value == 0 and name.startswith(("max_", "file_")) else value
    if body.response_format is not None:
        given["response_format"] = body.response_format.option()
    if body.model_settings is not None:
        options = body.model_settings.options()
        shown = not isinstance(body, AgentIn) and "reasoning_effort" not in before
        if shown and options.get("reasoning_effort") == "minimal":
            # This is what we show where nothing is set. Sent back, it is no wish: many models refuse it.
            del options["reasoning_effort"]
        given |= options
        kept["model_settings"] = extras_of(body.model_settings)
    elif model_changes:
        kept.pop("model_settings", None)  # it was said in the words of another provider
    settings |= given
    window = body.context_window_limit or (config and config.context_window)
    if window:
        settings["context_window_tokens"] = window
    for name in AUTOMATIC_SETTINGS:
        if (value := getattr(body, name)) is not None:
            settings[name] = value if value or isinstance(value, dict) else None  # what is off is not there
    if body.tool_rules is not None:
        settings["tool_rules"] = rules_to_settings(body.tool_rules) or None
    kept |= {name: value for name, value in body if name in _KEPT and value is not None}
    if body.hidden is not None:
        kept["hidden"] = body.hidden
    if isinstance(body, AgentIn) and body.agent_type not in DEFAULT_TOOLS:
        kept["agent_type"] = body.agent_type
    settings = {name: value for name, value in settings.items() if value is not None}
    return settings | ({"wire": kept} if kept else {})


def agent_shape(state: AgentState, facts: Facts, embedder: Embedder | None) -> dict[str, Any]:
    """The agent with all fields of the wire, relations always included: clients take them in every place."""
    agent, run = state.agent, state.run
    kept = agent.settings.get("wire", {})
    agent_type = agent_type_of(agent)
    blocks = [block_shape(block) for block in state.blocks]
    secrets = [secret_shape(secret) for secret in state.secrets]
    ended = run if run is not None and run.ended else None
    return {
        "created_by_id": agent.created_by,
        "last_updated_by_id": agent.updated_by,
        "created_at": stamp(agent.created_at),
        "updated_at": stamp(agent.updated_at),
        "id": agent.id,
        "name": agent.name,
        "tool_rules": list(agent.settings.get("tool_rules", ())),
        "message_ids": list(state.message_ids),
        "system": base_prompt() if agent.system is None else agent.system,
        "agent_type": agent_type,
        "llm_config": llm_config_shape(agent.model, facts, agent.settings),
        "embedding_config": kept.get("embedding_config"),
        "model": agent.model,
        "embedding": kept.get("embedding"),
        "model_settings": model_settings_shape(agent.model, facts, agent.settings),
        "compaction_settings": kept.get("compaction_settings"),
        "response_format": agent.settings.get("response_format"),
        "description": agent.description,
        "metadata": dict(agent.metadata),
        "memory": memory_shape(agent_type, blocks),
        "blocks": blocks,
        "tools": [tool_shape(tool, state.codes.get(tool.id)) for tool in state.tools],
        "sources": [folder_shape(folder, embedder) for folder in state.folders],
        "tags": list(agent.tags),
        "tool_exec_environment_variables": secrets,
        "secrets": secrets,
        "project_id": kept.get("project_id"),
        "template_id": kept.get("template_id"),
        "base_template_id": kept.get("base_template_id"),
        "deployment_id": None,
        "entity_id": None,
        "identity_ids": [],
        "identities": [],
        "pending_approval": pending_shape(state.pending),
        "message_buffer_autoclear": kept.get("message_buffer_autoclear", False),
        "enable_sleeptime": None,
        "multi_agent_group": None,
        "managed_group": None,
        "last_run_completion": stamp(ended.ended_at) if ended else None,
        "last_run_duration_ms": _duration_ms(ended),
        "last_stop_reason": ended.stop_reason if ended else None,
        "timezone": agent.timezone,
        "max_files_open": agent.settings.get("max_files_open"),
        "per_file_view_window_char_limit": agent.settings.get("file_view_chars"),
        "hidden": True if agent.hidden else kept.get("hidden"),
        # Only where they are set: a client of Letta's expects nothing else.
        **{name: agent.settings[name] for name in AUTOMATIC_SETTINGS if name in agent.settings},
    }


def _duration_ms(run: Run | None) -> int | None:
    if run is None or run.ended_at is None:
        return None
    began: datetime = run.started_at or run.created_at
    return max(0, round((run.ended_at - began).total_seconds() * 1000))
