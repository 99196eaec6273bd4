"""Create and change agents: the row, its conversation, blocks and tools, all in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypedDict

from perdure.core.agents import AUTOCLEAR, DEFAULT_AGENT_TYPE, GUARDS, Agent, GuardSettings, check_name
from perdure.core.blocks import Author
from perdure.core.conversations import COMPACTION, SUMMARIES
from perdure.core.errors import InvalidArguments, InvalidInput, ToolRulesInvalid
from perdure.core.features import Point, feature_settings, find_features
from perdure.core.ids import AgentId, BlockId, ConversationId, Ids, ToolId
from perdure.core.incoming.zones import check_zone
from perdure.core.models import ModelOptions
from perdure.core.specs import Tool
from perdure.core.tools.arguments import fit_arguments
from perdure.core.tools.engine_specs import DEFAULT_TOOLS
from perdure.core.tools.rule_check import rules_to_settings
from perdure.core.tools.rules import ChildTools, RunFirst, rules_in
from perdure.domain.agents.automatic import AUTOMATIC_SETTINGS, AutoCapture, check_automatic, find_automatic
from perdure.domain.agents.options import (
    CONTEXT_ENGINE,
    LIMITS,
    check_compaction,
    check_limits,
    check_options,
    check_summaries,
    engine_choice,
)
from perdure.domain.agents.profile import PROFILE_SETTINGS, check_profile
from perdure.domain.blocks.units import NewBlock, create_block
from perdure.domain.provenance.policy import UNTRUSTED_WRITES, check_policy
from perdure.domain.values import as_tags, check_fields, check_item_limits, check_json, check_range, read_object
from perdure.storage.tx import Tx

_MOST = {"failed_repeats": 100, "stalled_steps": 1_000, "ask_steps": 10_000, "turn_steps": 10_000, "recent_steps": 50}


def check_guards(settings: Mapping[str, Any]) -> None:
    """Check an agent's setting `guards`. Raises: InvalidInput, naming field and value."""
    if isinstance(settings.get(GUARDS), bool):
        return
    if (guards := read_object(GUARDS, settings, GuardSettings, ", true for all, or false for none")) is None:
        return
    check_range(f"{GUARDS}.memory_pressure", guards.memory_pressure, 0, 1, whole=False)
    for name, most in _MOST.items():
        check_range(f"{GUARDS}.{name}", getattr(guards, name), 0, most)


CONTEXT_WINDOW_TOKENS_MIN = 1_000
"""A smaller window can't hold a base prompt and a message."""

COMPANIONS: Point[[Tx, AgentId], Sequence[AgentId]] = Point("companions")
"""The agents that keep the memory of one, and have copies of what was said to it."""

_OF_FEATURES = [name for feature in find_features() for name in feature.own_settings]
_SETTINGS = (
    *_OF_FEATURES,
    *AUTOMATIC_SETTINGS,
    AUTOCLEAR,
    COMPACTION,
    CONTEXT_ENGINE,
    SUMMARIES,
    "context_window_tokens",
    "file_view_chars",
    GUARDS,
    LIMITS,
    "max_files_open",
    *PROFILE_SETTINGS,
    "tool_rules",
    UNTRUSTED_WRITES,
    *feature_settings(),
)
KNOWN_SETTINGS = {*_SETTINGS, *ModelOptions.__slots__, "approval_waived"} - {*_OF_FEATURES}
"""The settings that people may change. Agents may have others, which their model's provider knows."""
_WIRE_NAMES = {"compaction_settings": [COMPACTION]}
"""Names that Letta's API has for settings of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAgent:
    """The values of a new agent.

    Args:
        follows_default: whether its model follows the default.
        block_ids: existing blocks to share.
        optional_tools: names of tools, of which those that exist come first.
        timezone: its IANA name; None: UTC, unless a caller fills in the setting's.
        tools: names of tools that have to exist; None: the defaults of the agent type.
        tool_ids: ids of more tools.
        hidden: whether filtered lists leave it out.
    """

    name: str
    model: str
    follows_default: bool = False
    agent_type: str = DEFAULT_AGENT_TYPE
    system: str | None = None
    description: str | None = None
    timezone: str | None = None
    blocks: tuple[NewBlock, ...] = ()
    block_ids: tuple[BlockId, ...] = ()
    optional_tools: Sequence[str] = ()
    tools: tuple[str, ...] | None = None
    tool_ids: Sequence[ToolId] = ()
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    hidden: bool = False


class AgentChanges(TypedDict, total=False):
    """The fields of an agent that can change. A missing field stays; None removes a prompt or description.

    A new `model` is pinned, unless `follows_default` says otherwise; the library takes None for the default.
    """

    name: str
    model: str | None
    follows_default: bool
    system: str | None
    description: str | None
    timezone: str
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    settings: Mapping[str, Any]
    hidden: bool


_AGENT_FIELDS = ("agent_type", *AgentChanges.__annotations__)


def create_agent(tx: Tx, new: NewAgent, *, ids: Ids, author: Author, at: datetime) -> Agent:
    """Create an agent. Raises: InvalidInput, NotFound: a tool or block; AlreadyExists, BlockLimitExceeded."""
    values = {name: getattr(new, name) for name in _AGENT_FIELDS}
    values |= {"settings": _keep_own({}, new.settings), "timezone": new.timezone or "UTC"}
    if new.agent_type == "workflow_agent" and isinstance(values["settings"], dict):
        values["settings"][AUTOCLEAR] = True  # such an agent can't do without
    stamps: dict[str, Any] = {"created_at": at, "updated_at": at, "created_by": author.id, "updated_by": author.id}
    agent = Agent(id=AgentId(ids.new("agent")), org_id=tx.org_id, **values, **stamps)
    tool_names = _tool_names(tx, new)
    agent = tx.agents.add(_check_agent(tx, agent, lambda: filter(None, map(tx.tools.find, tool_names))))
    check_item_limits(
        tx.limits, tags=agent.tags, description=agent.description, metadata=agent.metadata, settings=agent.settings
    )
    tx.limits.check("tool_rules_per_agent", len(agent.settings.get("tool_rules", ())))
    _check_archive(tx, agent)
    tx.conversations.add(agent.id, ConversationId(ids.new("conversation")), at=at)
    tx.limits.check("blocks_per_agent", len(new.blocks) + len(new.block_ids))
    blocks = [create_block(tx, BlockId(ids.new("block")), block, author=author, at=at) for block in new.blocks]
    tx.blocks.attach(agent.id, *(block.id for block in blocks), *new.block_ids)
    tx.tools.attach(agent.id, *tool_names)
    check_rule_arguments(tx, agent.id, agent.settings)
    return tx.agents.get(agent.id)


def _tool_names(tx: Tx, new: NewAgent) -> Sequence[str]:
    """Return the names of the tools that a new agent gets. Raises: NotFound: there is no tool with such an id."""
    there = tx.tools.find_named(new.optional_tools)
    names = dict.fromkeys(name for name in new.optional_tools if name in there)
    names |= dict.fromkeys(DEFAULT_TOOLS[new.agent_type] if new.tools is None else new.tools)
    names |= dict.fromkeys(tx.tools.names(new.tool_ids))
    return tuple(names)


def update_agent(tx: Tx, agent_id: AgentId, changes: AgentChanges, *, author: Author, at: datetime) -> Agent:
    """Change an agent and return it. Raises: NotFound, NameInvalid; InvalidInput: an invalid value or field."""
    check_fields("an agent", changes, AgentChanges.__annotations__)
    tx.agents.lock(agent_id)
    before = tx.agents.get(agent_id)
    values: dict[str, Any] = {**changes}
    if "settings" in values:
        values["settings"] = _keep_own(before.settings, values["settings"])
    if "model" in values:
        values.setdefault("follows_default", False)
    if "tags" in values:
        values["tags"] = as_tags(values["tags"])
    load_tools = partial(tx.tools.list_by_agent, agent_id)
    after = _check_agent(tx, replace(before, **values), load_tools, before=before.settings)
    check_item_limits(
        tx.limits, tags=after.tags, description=after.description, metadata=after.metadata, settings=after.settings
    )
    if after.settings != before.settings:
        tx.limits.check("tool_rules_per_agent", len(after.settings.get("tool_rules", ())))
        _check_archive(tx, after)
        check_rule_arguments(tx, agent_id, after.settings)
    return before if after == before else tx.agents.put(replace(after, updated_at=at, updated_by=author.id))


def _keep_own(before: Mapping[str, Any], settings: Any) -> Any:
    """Return new settings of an agent, but those that only features may change are taken from `before`."""
    if not isinstance(settings, Mapping):  # it is refused below
        return settings
    return {**without_own(settings), **{name: before[name] for name in _OF_FEATURES if name in before}}


def without_own(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an agent without those that only features may change."""
    return {name: value for name, value in settings.items() if name not in _OF_FEATURES}


def _check_agent(
    tx: Tx, agent: Agent, load_tools: Callable[[], Iterable[Tool]], *, before: Mapping[str, Any] | None = None
) -> Agent:
    """Return `agent` with its tool rules in stored form, after checking all its fields.

    Args:
        load_tools: returns the agent's tools, which its rules may call by their names at MCP servers.
        before: the stored settings; names and tool rules that equal them are not checked again.
    Raises: NameInvalid, InvalidInput.
    """
    before = before or {}
    for name in ("name", "model", "timezone", "system", "description"):
        value = getattr(agent, name)
        if not isinstance(value, str) and (value is not None or name not in ("system", "description")):
            raise InvalidInput(f"{name} is {value!r:.80}: give a text")
    for name in ("hidden", "follows_default"):
        if not isinstance(value := getattr(agent, name), bool):
            raise InvalidInput(f"{name} is {value!r:.80}: give True or False")
    for name in ("metadata", "settings"):
        check_json(name, getattr(agent, name))
    check_name(agent.name)
    check_zone(agent.timezone)
    if agent.agent_type not in DEFAULT_TOOLS:
        raise InvalidInput(f"agent type {agent.agent_type!r:.80} is not known: use {', '.join(DEFAULT_TOOLS)}")
    if (window := agent.settings.get("context_window_tokens")) is not None:
        check_window(window)
    _check_names(agent.settings.keys() - before.keys())
    for name in ("max_files_open", "file_view_chars"):
        if (value := agent.settings.get(name)) is not None and (type(value) is not int or value < 1):
            raise InvalidInput(f"{name} is {value!r:.80}: give a whole number from 1 on, or leave it out")
    check_automatic(agent.settings)
    check_profile(agent.settings)
    check_compaction(agent.settings)
    check_summaries(agent.settings)
    engine_choice(agent.settings)
    check_guards(agent.settings)
    check_policy(agent.settings)
    check_limits(agent.settings)
    for name, (feature, setting) in feature_settings().items():
        if agent.settings.get(name) is not None:
            feature.load(setting.check)(agent.settings)
    check_options(agent.settings, before)
    tools = agent.settings.get("approval_waived") or []
    if not isinstance(tools, list) or not all(isinstance(tool, str) for tool in tools):
        raise InvalidInput(f"approval_waived is {tools!r:.80}: give a list of tool ids")
    old_rules = before.get("tool_rules")
    if (new_rules := agent.settings.get("tool_rules")) is not None and new_rules != old_rules:
        names = {one.own_name: one.spec.name for one in tx.tools.with_own_names([*load_tools()]) if one.own_name}
        stored_rules = rules_to_settings(new_rules, before=old_rules or (), names=names)
        settings = {name: value for name, value in agent.settings.items() if name != "tool_rules"}
        agent = replace(agent, settings=settings | ({"tool_rules": stored_rules} if stored_rules else {}))
    return agent


def check_window(tokens: Any) -> int:
    """Return the size of a context window after checking it. Raises: InvalidInput."""
    if type(tokens) is not int or tokens < CONTEXT_WINDOW_TOKENS_MIN:
        raise InvalidInput(
            f"the context window is {tokens!r:.80}: give a whole number of tokens,"
            f" at least {CONTEXT_WINDOW_TOKENS_MIN:,}"
        )
    return tokens


def _check_names(names: Iterable[str]) -> None:
    """Check that no setting is a misspelt one of ours. Other names are settings of the model. Raises: InvalidInput."""
    known = (*_SETTINGS, *ModelOptions.__slots__)
    for name in [one for one in names if one not in known]:
        from difflib import get_close_matches

        if near := _WIRE_NAMES.get(name) or get_close_matches(str(name)[:80], known, n=1, cutoff=0.9):
            raise InvalidInput(f"there is no setting {str(name)!r:.80}: is it {near[0]!r}?")


def check_rule_arguments(tx: Tx, agent_id: AgentId, settings: Mapping[str, Any]) -> None:
    """Check arguments in tool rules by the agent's tools; those of missing tools pass. Raises: ToolRulesInvalid."""
    arguments: list[tuple[str, Mapping[str, Any]]] = []
    for rule in rules_in(settings).rules:
        if isinstance(rule, RunFirst) and rule.args:
            arguments.append((rule.tool_name, rule.args))
        elif isinstance(rule, ChildTools):
            arguments += rule.child_args.items()
    if not arguments:
        return
    tools = {tool.spec.name: tool.spec for tool in tx.tools.list_by_agent(agent_id)}
    for name, args in arguments:
        if (spec := tools.get(name)) is None:
            continue
        schema = {**spec.parameters, "required": [], "additionalProperties": False}
        try:
            fit_arguments(name, schema, args)
        except InvalidArguments as error:
            raise ToolRulesInvalid(f"tool_rules: the arguments for {name} don't fit it: {error}") from error


def _check_archive(tx: Tx, agent: Agent) -> None:
    """Check that the archive of the capture setting exists. Raises: NotFound."""
    capture = find_automatic(AutoCapture, agent.settings)
    if capture is not None and capture.archive is not None:
        tx.archives.get(capture.archive)
