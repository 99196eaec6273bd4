"""Agents on the wire, with their secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import ConfigDict, Field, create_model, model_validator

from perdure.context.prompts import base_prompt
from perdure.core import agents as core
from perdure.core import secrets as stored
from perdure.core.agents import AUTOCLEAR, DEFAULT_AGENT_TYPE, GUARDS
from perdure.core.conversations import COMPACTION, SUMMARIES
from perdure.core.errors import FeatureMissing
from perdure.core.features import Point, feature_settings
from perdure.core.incoming.principals import LIMIT_MAX, UseLimits
from perdure.core.messages import Text
from perdure.core.ports import Embedder
from perdure.core.runs import Run
from perdure.core.tools.engine_specs import DEFAULT_RULES, DEFAULT_TOOLS, MULTI_AGENT_TOOLS
from perdure.core.tools.rule_check import rules_to_settings
from perdure.domain.agents.automatic import AUTOMATIC_SETTINGS, AutoRecall
from perdure.domain.agents.options import CONTEXT_ENGINE, LIMITS, NAME_CHARS
from perdure.domain.agents.profile import OFFERS, PROFILE_SETTINGS, PROFILES, PROMPTS, WAKES
from perdure.domain.agents.units import CONTEXT_WINDOW_TOKENS_MIN, AgentChanges, NewAgent
from perdure.domain.blocks.units import NewBlock
from perdure.domain.provenance.policy import UNTRUSTED_WRITES, WritePolicy
from perdure.engine.records.run_request import NewMessage
from perdure.library.agents.agents import AgentAttachments, CompanionKind, FullAgent
from perdure.server.wire import fields as ids
from perdure.server.wire import models
from perdure.server.wire.archives import NO_EMBEDDER, filled_embedding_config
from perdure.server.wire.base import MASKED, WIRE_SETTING, WireRequest, join_texts, nulls
from perdure.server.wire.blocks import GIT_TAG, NewWireBlock, WireBlock, WireMemory
from perdure.server.wire.conversations import CompactionSettingsIn, compaction_settings_shape
from perdure.server.wire.errors import NotSupported
from perdure.server.wire.identities import WireIdentity
from perdure.server.wire.input import MessageIn, pending_shape
from perdure.server.wire.shapes import Object, WireShape, computed, read
from perdure.server.wire.tools import WireTool, tool_shape

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

HIDDEN_TAG = "role:subagent"
"""Agents with this tag are hidden, whatever the client asks for."""

_Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\w '\-]+$")]
_WINDOW = ids.keywords(minimum=CONTEXT_WINDOW_TOKENS_MIN)
_Count = Annotated[int | None, Field(ge=0, le=2**53)]

_WIRE_FIELDS = (
    *("embedding", "embedding_config"),
    *("project_id", "template_id", "base_template_id", "enable_sleeptime"),
)
"""Fields that are only stored and returned."""

_OPTIONS = {
    "max_tokens": "max_output_tokens",
    "max_reasoning_tokens": "max_reasoning_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "max_files_open": "max_files_open",
    "per_file_view_window_char_limit": "file_view_chars",
}
"""Field -> setting. A number of 0 removes the setting."""

_UNSUPPORTED: Mapping[str, str] = {
    "from_template": "templates",
    "memory_variables": "templates",
    "include_default_source": "a default folder",
    "message_ids": "choice of the messages in context (reset-messages empties it, summarize shortens it)",
}
"""Field -> the missing feature. Without it such an agent would not work as intended, so it is not created."""
_OWN_SETTINGS = (
    *(*AUTOMATIC_SETTINGS, GUARDS, SUMMARIES, CONTEXT_ENGINE, LIMITS, UNTRUSTED_WRITES),
    *PROFILE_SETTINGS,
    *feature_settings(),
)
"""Settings that answers hold where they are set. What is empty or false removes one, but for these."""
_OF_FEATURES = {name: setting for name, (_, setting) in feature_settings().items()}
_KEPT_EMPTY = {*AUTOMATIC_SETTINGS} | {name for name, one in _OF_FEATURES.items() if one.keeps_empty}
_KEPT_FALSE = {AutoRecall.name, GUARDS} | {name for name, one in _OF_FEATURES.items() if one.keeps_false}
if TYPE_CHECKING:
    _FeatureSettings = WireRequest
else:
    _FeatureSettings = create_model(
        "_FeatureSettings",
        __base__=WireRequest,
        **{name: (feature.load(one.shape) | None, None) for name, (feature, one) in feature_settings().items()},
    )


class SecretIn(WireRequest):
    """A secret in the form in which an agent's state lists it."""

    key: str
    value: str = MASKED


SecretsIn = dict[str, str] | Sequence[SecretIn]
"""Secrets by name, as requests have them; or in the form of answers, for clients that send back what they got."""


_Limit = Annotated[int, Field(ge=1, lt=LIMIT_MAX)]
_Dollars = Annotated[float, Field(gt=0, lt=LIMIT_MAX)]


class LimitsIn(WireRequest):
    """What a key or an agent may use; a field that is missing or null is no limit. Days and minutes are those of UTC,
    costs are in US dollars, of models with a known price."""

    # A misspelt limit must not become none.
    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: _Limit | None = None
    message_chars: _Limit | None = None
    tokens_per_day: _Limit | None = None
    cost_per_day: _Dollars | None = None
    tokens_per_run: _Limit | None = None
    cost_per_run: _Dollars | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_unknown(cls, value: Any) -> Any:
        """Keep one unknown field: a body has room for millions of them, and each error takes time."""
        unknown = [name for name in value if name not in cls.model_fields][1:] if isinstance(value, dict) else ()
        return {name: value[name] for name in value.keys() - unknown} if unknown else value

    @property
    def limits(self) -> UseLimits:
        """The values, as the library takes them."""
        return UseLimits(**self.model_dump())


class AgentChangesIn(_FeatureSettings):
    """Changes of an agent. A field that is missing or null stays."""

    name: _Name | None = None
    description: str | None = None
    system: str | None = None
    metadata: ids.JsonObject | None = None
    tags: ids.Tags | None = None
    timezone: str | None = None
    hidden: bool | None = None
    model: Annotated[str, Field(pattern="^[^/]+/.+$")] | None = None
    model_settings: models.ModelSettings | None = None
    llm_config: models.LlmConfig | None = None
    context_window_limit: Annotated[int, Field(ge=1, le=2**53), _WINDOW] | None = None
    max_tokens: _Count = None
    max_reasoning_tokens: _Count = None
    parallel_tool_calls: bool | None = None
    response_format: models.ResponseFormat | None = None
    embedding: ids.Name | None = None
    embedding_config: ids.JsonObject | None = None
    compaction_settings: CompactionSettingsIn | None = None
    message_buffer_autoclear: bool | None = None
    max_files_open: _Count = None
    per_file_view_window_char_limit: _Count = None
    project_id: ids.Name | None = None
    template_id: ids.Name | None = None
    base_template_id: ids.Name | None = None
    block_ids: Annotated[list[ids.BlockIdIn], ids.MaxItems("blocks_per_agent")] | None = None
    tool_ids: Annotated[list[ids.ToolIdIn], ids.MaxItems("tools_per_agent")] | None = None
    identity_ids: Annotated[list[ids.IdentityIdIn], ids.MaxItems("identities_per_agent")] | None = None
    tool_rules: Annotated[list[dict[str, Any]], ids.MaxItems("tool_rules_per_agent")] | None = None
    # Perdure's own, beyond the wire; `false` and an empty list remove them.
    auto_recall: bool | ids.JsonObject | None = None
    auto_capture: bool | ids.JsonObject | None = None
    guards: bool | ids.JsonObject | None = None
    summaries: ids.JsonObject | None = None
    context_engine: Annotated[str, Field(max_length=NAME_CHARS)] | ids.JsonObject | None = None
    profile: Annotated[str, ids.keywords(enum=[*PROFILES])] | None = None
    offered_tools: Annotated[str, ids.keywords(enum=[*OFFERS])] | None = None
    prompt_size: Annotated[str, ids.keywords(enum=[*PROMPTS])] | None = None
    companion_passes: Annotated[str, ids.keywords(enum=[*WAKES])] | None = None
    bypass_session_patterns: ids.Items[str] | None = None
    limits: LimitsIn | None = None
    untrusted_writes: WritePolicy | None = None
    secrets: Annotated[SecretsIn, ids.MaxItems("secrets_per_owner")] | None = None
    tool_exec_environment_variables: Annotated[SecretsIn, ids.MaxItems("secrets_per_owner")] | None = None
    enable_sleeptime: bool | None = None
    # Of these only the empty forms are supported.
    folder_ids: Annotated[list[ids.FolderIdIn], ids.MaxItems("folders_per_agent")] | None = None
    source_ids: Annotated[list[ids.FolderIdIn], ids.MaxItems("folders_per_agent")] | None = None
    message_ids: ids.Items[str] | None = None

    def check_supported(self, message_ids: Sequence[str] = ()) -> None:
        """Check that nothing needs a feature that this server lacks.

        Args:
            message_ids: those of the agent, which a client may send back.
        Raises: NotSupported, naming the fields.
        """
        names = [name for name, value in self if name in _UNSUPPORTED and value]
        if self.message_ids == [*message_ids]:
            names = [name for name in names if name != "message_ids"]
        if names:
            features = ", ".join(dict.fromkeys(_UNSUPPORTED[name] for name in names))
            raise NotSupported(f"{', '.join(names)}: this server has no {features} yet; leave it out or empty")

    @property
    def secret_values(self) -> dict[str, str] | None:
        """The new secrets of the agent, name -> value; None: they stay. The newer field wins."""
        secrets = self.tool_exec_environment_variables if self.secrets is None else self.secrets
        if secrets is None or isinstance(secrets, dict):
            return secrets
        return {secret.key: secret.value for secret in secrets}

    @property
    def model_handle(self) -> str | None:
        """The handle of the model that the client names; None: it names none."""
        return self.model or (self.llm_config and self.llm_config.full_handle) or None

    def companion(self, agent_type: str) -> CompanionKind | Literal[False] | None:
        """The kind of the companion that an agent of this type is to have; False: none; None: as it is."""
        if not self.enable_sleeptime:
            return self.enable_sleeptime
        return "voice_sleeptime" if agent_type == "voice_convo_agent" else "sleeptime"

    @property
    def prompt(self) -> str | None:
        """The base prompt, None for Perdure's own: a client that sends back the prompt it got changes nothing."""
        return None if self.system in [base_prompt(one) for one in DEFAULT_TOOLS] else self.system

    def changes(self, before: core.Agent, model: str | None, *, follows_default: bool = False) -> AgentChanges:
        """The changed fields, as the library takes them; `model` is the handle of the new model."""
        settings = merged_settings(before.settings, self, model_changes=model not in (None, before.model))
        tags = before.tags if self.tags is None else tuple(dict.fromkeys(self.tags))
        hidden = before.hidden if self.hidden is None else self.hidden
        changes = self.non_null("name", "description", "timezone", "metadata")
        changes |= {"settings": settings, "tags": tags, "hidden": hidden or HIDDEN_TAG in tags}
        if model is not None:
            changes |= {"model": model, "follows_default": follows_default}
        if self.system is not None:
            changes["system"] = self.prompt
        return cast(AgentChanges, changes)

    @property
    def belongings(self) -> AgentAttachments:
        """The new blocks, tools, folders, identities and secrets of the agent."""
        folder_ids = self.source_ids if self.folder_ids is None else self.folder_ids
        folders: Mapping[str, Sequence[str]] = {} if folder_ids is None else {"folders": folder_ids}
        return AgentAttachments(
            block_ids=self.block_ids,
            tool_ids=self.tool_ids,
            identity_ids=self.identity_ids,
            secrets=self.secret_values,
            of_features=folders,
        )


class AgentIn(AgentChangesIn):
    """A new agent. Its model may be in the newer or the older form; without one it follows the default."""

    agent_type: AgentType = DEFAULT_AGENT_TYPE  # type: ignore[assignment]  # it is one of them
    memory_blocks: Annotated[list[NewWireBlock], ids.MaxItems("blocks_per_agent")] | None = None
    tools: Annotated[list[str], ids.MaxItems("tools_per_agent")] | None = None
    include_base_tools: bool | None = None
    initial_message_sequence: Annotated[list[MessageIn], ids.MaxItems("messages_per_request")] | None = None
    from_template: str | None = None
    memory_variables: ids.ItemsByName[Any] | None = None
    include_default_source: bool | None = None
    include_multi_agent_tools: bool | None = None

    def new_agent(self, name: str, model: str, *, follows_default: bool) -> NewAgent:
        """The agent, as the library takes it; `name` is used if the client sends none. Raises: FeatureMissing."""
        if self.include_multi_agent_tools and not MULTI_AGENT_TOOLS:
            raise FeatureMissing("groups", "the agent can't have tools that write to others", "leave them out")
        tags = tuple(dict.fromkeys(self.tags or ()))
        base_tools = () if self.include_base_tools is False else DEFAULT_TOOLS[self.agent_type]
        return NewAgent(
            name=self.name or name,
            model=model,
            follows_default=follows_default,
            agent_type=self.agent_type,
            system=self.prompt,
            description=self.description,
            timezone=self.timezone,
            blocks=tuple(NewBlock(**block.fields) for block in self.memory_blocks or ()),
            block_ids=tuple(self.block_ids or ()),
            optional_tools=(*base_tools, *(MULTI_AGENT_TOOLS if self.include_multi_agent_tools else ())),
            tools=tuple(self.tools or ()),
            tool_ids=self.tool_ids or (),
            tags=tags,
            metadata=self.metadata or {},
            settings=merged_settings({}, self),
            hidden=bool(self.hidden) or HIDDEN_TAG in tags,
        )

    @property
    def belongings(self) -> AgentAttachments:
        """The folders, identities and secrets of the agent; `new_agent` has the rest."""
        return AgentAttachments(
            identity_ids=self.identity_ids,
            secrets=self.secret_values,
            of_features={"folders": (*(self.folder_ids or ()), *(self.source_ids or ()))},
        )

    @property
    def first_messages(self) -> Sequence[NewMessage]:
        """The messages that the agent begins with. Raises: NotSupported: a part of one is no text."""
        refusal = "initial_message_sequence: only text can be in a message that an agent begins with"
        return [
            message.new((Text(join_texts(message.content, refusal)),))
            for message in self.initial_message_sequence or ()
        ]


def agent_type_of(agent: core.Agent) -> str:
    """The type from the client. A type without a loop of its own works as `letta_v1_agent` does."""
    agent_type: str = agent.settings.get(WIRE_SETTING, {}).get("agent_type", agent.agent_type)
    return agent_type


def merged_settings(before: Mapping[str, Any], body: AgentChangesIn, *, model_changes: bool = False) -> dict[str, Any]:
    """Return an agent's settings with the changes of a request: model options under their names in
    `core.models.ModelOptions`, the window as `context_window_tokens`, and what is only stored and returned under
    `wire`. For an option given twice the newer form counts: `model_settings`, then the field, then `llm_config`."""
    settings, wire_fields, config = dict(before), dict(before.get(WIRE_SETTING, {})), body.llm_config
    options: dict[str, Any] = config.options() if config else {}
    for field, value in body.non_null(*_OPTIONS).items():
        options[_OPTIONS[field]] = None if value == 0 and value is not False else value
    if body.response_format is not None:
        options["response_format"] = body.response_format.option()
    if body.model_settings is not None:
        own_options = body.model_settings.options()
        is_default = not isinstance(body, AgentIn) and "reasoning_effort" not in before
        if is_default and own_options.get("reasoning_effort") == "minimal":
            # Answers have this value where nothing is set. Sent back, it is no wish: many models refuse it.
            del own_options["reasoning_effort"]
        options |= own_options
        wire_fields["model_settings"] = models.extras_of(body.model_settings)
    elif model_changes:
        wire_fields.pop("model_settings", None)  # it was in the words of another provider
    settings |= options
    window = body.context_window_limit or (config and config.context_window)
    if window:
        settings["context_window_tokens"] = window
    for name, value in body.non_null(*_OWN_SETTINGS).items():
        chosen = dict(value.limits.present) if isinstance(value, LimitsIn) else value
        is_kept = chosen or (
            name in _KEPT_EMPTY if isinstance(chosen, dict) else chosen is False and name in _KEPT_FALSE
        )
        settings[name] = chosen if is_kept else None
    rules: Sequence[Mapping[str, Any]] | None = body.tool_rules
    if isinstance(body, AgentIn) and rules is None:  # those of its base tools
        rules = () if body.include_base_tools is False else DEFAULT_RULES.get(body.agent_type, ())
    if rules is not None:
        settings["tool_rules"] = rules_to_settings(rules) or None
    wire_fields |= body.non_null(*_WIRE_FIELDS, "hidden")
    if wire_fields.get("embedding_config", {}).get("handle") == NO_EMBEDDER:  # it was in an answer, and is no choice
        del wire_fields["embedding_config"]
    if body.message_buffer_autoclear is not None:
        settings[AUTOCLEAR] = body.message_buffer_autoclear or None
    if (compaction := body.compaction_settings) is not None:
        settings[COMPACTION] = compaction.values() or None
        wire_fields["compaction_settings"] = compaction.model_dump(exclude_unset=True)
    settings = {name: value for name, value in settings.items() if value is not None and name != WIRE_SETTING}
    return settings | ({WIRE_SETTING: wire_fields} if wire_fields else {})  # last, so that filters find what it holds


class WireSecret(
    WireShape,
    of=stored.Secret,
    agent_id="owner_id",
    key="name",
    unlisted=nulls("value_enc", "description", "created_by_id", "last_updated_by_id")
    | read("created_at", "updated_at"),
):
    """A secret. No answer has its value."""

    value: str = MASKED


AGENT_FIELDS: Point[[FullAgent, int, Embedder | None], Mapping[str, Any]] = Point("agent_fields")
"""Fields of an agent's shape that features fill in. Arguments: the agent, its window in tokens, the embedder."""

if TYPE_CHECKING:
    ManagedGroup = Object
    Source = Object
else:  # the document describes it as the feature does
    ManagedGroup = next(iter(Point("managed_group").functions), Object)
    Source = next(iter(Point("source_shape").functions), Object)


class WireAgent(
    WireShape,
    of=FullAgent,
    fields="created_by_id last_updated_by_id agent.created_at agent.updated_at agent.id agent.name tool_rules"
    " message_ids system agent_type llm_config embedding_config agent.model embedding model_settings"
    " compaction_settings response_format agent.description agent.metadata memory blocks tools sources"
    " agent.tags tool_exec_environment_variables secrets project_id template_id base_template_id deployment_id"
    " entity_id identity_ids identities pending_approval message_buffer_autoclear enable_sleeptime"
    " multi_agent_group managed_group last_run_completion last_run_duration_ms last_stop_reason agent.timezone"
    " max_files_open per_file_view_window_char_limit hidden",
    created_by_id="agent.created_by",
    last_updated_by_id="agent.updated_by",
    last_run_completion="run.ended_at",
    last_stop_reason="run.stop_reason",
    unlisted=nulls("compaction_settings", "tool_exec_environment_variables", "project_id", "template_id")
    | nulls("base_template_id", "deployment_id", "entity_id", "identity_ids", "identities", "message_buffer_autoclear")
    | nulls("enable_sleeptime"),
):
    """An agent with everything that belongs to it. `multi_agent_group` is the older name of `managed_group`."""

    agent_type: str
    system: str
    model_settings: Object
    llm_config: Object
    embedding: str | None
    embedding_config: Object
    response_format: Object | None
    memory: WireMemory
    blocks: list[WireBlock]
    tools: list[WireTool] = computed(lambda state: [tool_shape(tool, state.codes.get(tool.id)) for tool in state.tools])
    tool_rules: list[Object]
    sources: list[Source] = computed(lambda state: [])
    secrets: list[WireSecret]
    pending_approval: Object | None = computed(lambda state: pending_shape(state.pending))
    last_run_duration_ms: int | None = computed(lambda state: _duration_ms(state.run))
    max_files_open: int | None = None
    per_file_view_window_char_limit: int | None = None
    hidden: bool | None
    managed_group: ManagedGroup | None = None
    multi_agent_group: ManagedGroup | None = None


def agent_shape(state: FullAgent, facts: models.WireModelFacts, embedder: Embedder | None) -> WireAgent:
    """The agent with all fields of the wire. Relations are always included: all clients accept them."""
    agent, settings = state.agent, state.agent.settings
    wire_fields = settings.get(WIRE_SETTING, {})
    agent_type = agent_type_of(agent)
    blocks = [WireBlock.make(block) for block in state.blocks]
    secrets = [WireSecret.make(secret) for secret in state.secrets]
    feature_fields: Object = {"enable_sleeptime": False} if "enable_sleeptime" in wire_fields else {}
    for shown in AGENT_FIELDS(state, facts.window_of(settings), embedder):
        feature_fields |= shown
    return WireAgent.make(
        state,
        system=base_prompt(agent.agent_type) if agent.system is None else agent.system,
        agent_type=agent_type,
        llm_config=models.llm_config_shape(agent.model, facts, settings),
        embedding_config=wire_fields.get("embedding_config") or filled_embedding_config(embedder),
        model_settings=models.model_settings_shape(agent.model, facts, settings),
        compaction_settings=compaction_settings_shape(agent.model, wire_fields.get("compaction_settings", {})),
        response_format=settings.get("response_format"),
        memory=WireMemory.make(None, agent_type=agent_type, git_enabled=GIT_TAG in agent.tags, blocks=blocks),
        blocks=blocks,
        tool_rules=list(settings.get("tool_rules", ())),
        tool_exec_environment_variables=secrets,
        secrets=secrets,
        **{name: wire_fields.get(name) for name in ("embedding", "project_id", "template_id", "base_template_id")},
        identity_ids=[one.identity.id for one in state.identities],
        identities=[WireIdentity.make(identity) for identity in state.identities],
        message_buffer_autoclear=settings.get(AUTOCLEAR, False),
        hidden=True if agent.hidden else wire_fields.get("hidden"),
        # Only where they are set: Letta's clients don't expect them.
        **{name: settings[name] for name in _OWN_SETTINGS if settings.get(name) is not None},
        **feature_fields,
    )


def _duration_ms(run: Run | None) -> int | None:
    if run is None or run.ended_at is None:
        return None
    began: datetime = run.started_at or run.created_at
    return max(0, round((run.ended_at - began).total_seconds() * 1000))
