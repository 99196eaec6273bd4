"""Making and changing agents: a row with its conversation, blocks and tools, all in one transaction or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypedDict

from perdure.core.agents import DEFAULT_AGENT_TYPE, Agent, check_name
from perdure.core.blocks import DEFAULT_LIMIT_CHARS, Author
from perdure.core.errors import InvalidArguments, InvalidInput, ToolRulesInvalid
from perdure.core.ids import AgentId, BlockId, ConversationId
from perdure.core.ports import Ids
from perdure.core.text.zones import is_zone
from perdure.core.tools.arguments import fit_arguments
from perdure.core.tools.rule_check import rules_to_settings
from perdure.core.tools.rules import ChildTools, RunFirst, rules_of
from perdure.domain.agents.automatic import AUTOMATIC_SETTINGS, auto_capture_of, check_automatic
from perdure.domain.blocks.units import create_block
from perdure.domain.tools.specs import DEFAULT_TOOLS
from perdure.domain.values import as_tags, check_json, check_kept
from perdure.storage.tx import Tx

__all__ = ["AgentChanges", "NewAgent", "NewBlock", "check_filled", "create_agent", "update_agent"]

CONTEXT_WINDOW_TOKENS_MIN = 1_000
"""Less does not hold a base prompt and a message."""

_OURS = (*AUTOMATIC_SETTINGS, "context_window_tokens", "file_view_chars", "max_files_open", "tool_rules")
_NOT_YET = (
    "memgpt_agent",
    "memgpt_v2_agent",
    "react_agent",
    "workflow_agent",
    "sleeptime_agent",
    "voice_convo_agent",
    "voice_sleeptime_agent",
)
"""Agent types of Letta's whose way of working is not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBlock:
    """A block to be made with an agent."""

    label: str
    value: str = ""
    limit_chars: int = DEFAULT_LIMIT_CHARS
    description: str | None = None
    read_only: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAgent:
    """What an agent is made of. `block_ids` are existing blocks that it will share; `tools` are names, None the
    defaults of its type."""

    name: str
    model: str
    agent_type: str = DEFAULT_AGENT_TYPE
    system: str | None = None
    description: str | None = None
    timezone: str = "UTC"
    blocks: tuple[NewBlock, ...] = ()
    block_ids: tuple[BlockId, ...] = ()
    tools: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


class AgentChanges(TypedDict, total=False):
    """What may be changed of an agent. What is not given stays; None takes a prompt or description away."""

    name: str
    model: str
    system: str | None
    description: str | None
    timezone: str
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    settings: Mapping[str, Any]


def create_agent(tx: Tx, new: NewAgent, *, ids: Ids, author: Author, at: datetime) -> Agent:
    """The new agent. Raises: NameInvalid, InvalidInput, NotFound: a tool or block; AlreadyExists;
    BlockLimitExceeded."""
    agent = tx.agents.add(
        _checked(
            Agent(
                id=AgentId(ids.new("agent")),
                org_id=tx.org_id,
                name=new.name,
                agent_type=new.agent_type,
                model=new.model,
                system=new.system,
                description=new.description,
                timezone=new.timezone,
                tags=new.tags,
                metadata=new.metadata,
                settings=new.settings,
                created_at=at,
                updated_at=at,
                created_by=author.id,
                updated_by=author.id,
            )
        )
    )
    check_kept(tx.limits, tags=agent.tags, metadata=agent.metadata, settings=agent.settings)
    tx.limits.check("tool_rules_per_agent", len(agent.settings.get("tool_rules", ())))
    _check_archive(tx, agent)
    tx.conversations.add(agent.id, ConversationId(ids.new("conversation")), at=at)
    tx.limits.check("blocks_per_agent", len(new.blocks) + len(new.block_ids))
    made = [
        create_block(
            tx,
            BlockId(ids.new("block")),
            block.label,
            block.value,
            author=author,
            at=at,
            limit_chars=block.limit_chars,
            description=block.description,
            read_only=block.read_only,
            metadata=block.metadata,
            tags=block.tags,
        )
        for block in new.blocks
    ]
    tx.blocks.attach(agent.id, *(block.id for block in made), *new.block_ids)
    tx.tools.attach(agent.id, *(DEFAULT_TOOLS[new.agent_type] if new.tools is None else new.tools))
    check_filled(tx, agent.id, agent.settings)
    return tx.agents.get(agent.id)


def update_agent(tx: Tx, agent_id: AgentId, changes: AgentChanges, *, author: Author, at: datetime) -> Agent:
    """The agent as changed; as it was when nothing changes.

    Raises: NotFound, NameInvalid; InvalidInput: a value that can't be used, no such field.
    """
    if unknown := [name for name in changes if name not in AgentChanges.__annotations__]:
        there = ", ".join(AgentChanges.__annotations__)
        raise InvalidInput(f"an agent has no field {', '.join(unknown)} to change: there are {there}")
    tx.agents.lock(agent_id)
    before = tx.agents.get(agent_id)
    given: dict[str, Any] = {**changes}
    if "tags" in given:
        given["tags"] = as_tags(given["tags"])
    after = _checked(replace(before, **given), before=before.settings)
    check_kept(tx.limits, tags=after.tags, metadata=after.metadata, settings=after.settings)
    if after.settings != before.settings:
        tx.limits.check("tool_rules_per_agent", len(after.settings.get("tool_rules", ())))
        _check_archive(tx, after)
        check_filled(tx, agent_id, after.settings)
    return before if after == before else tx.agents.put(replace(after, updated_at=at, updated_by=author.id))


def _checked(agent: Agent, *, before: Mapping[str, Any] | None = None) -> Agent:
    """`agent`, when all of it can be used.

    Args:
        before: the settings that it had: names and tool rules that are the same are not looked at again.
    Raises: NameInvalid, InvalidInput.
    """
    before = before or {}
    for name in ("name", "model", "timezone", "system", "description"):
        value = getattr(agent, name)
        if not isinstance(value, str) and (value is not None or name not in ("system", "description")):
            raise InvalidInput(f"{name} is {value!r:.80}: give a text")
    for name in ("metadata", "settings"):
        check_json(name, getattr(agent, name))
    check_name(agent.name)
    if not is_zone(agent.timezone):
        raise InvalidInput(f"time zone {agent.timezone!r:.80} is not known here: use a name such as 'Europe/Rome'")
    if agent.agent_type not in DEFAULT_TOOLS:
        problem = "is not supported yet" if agent.agent_type in _NOT_YET else "is not known"
        raise InvalidInput(f"agent type {agent.agent_type!r:.80} {problem}: use {', '.join(DEFAULT_TOOLS)}")
    window = agent.settings.get("context_window_tokens")
    if window is not None and (type(window) is not int or window < CONTEXT_WINDOW_TOKENS_MIN):
        raise InvalidInput(
            f"context_window_tokens is {window!r:.80}: give a whole number of tokens,"
            f" at least {CONTEXT_WINDOW_TOKENS_MIN:,}"
        )
    _check_names(agent.settings.keys() - before.keys())
    for name in ("max_files_open", "file_view_chars"):
        if (value := agent.settings.get(name)) is not None and (type(value) is not int or value < 1):
            raise InvalidInput(f"{name} is {value!r:.80}: give a whole number from 1 on, or leave it out")
    check_automatic(agent.settings)
    waived = agent.settings.get("approval_waived") or []
    if not isinstance(waived, list) or not all(isinstance(one, str) for one in waived):
        raise InvalidInput(f"approval_waived is {waived!r:.80}: give a list of tool ids")
    rules = before.get("tool_rules")
    if (given := agent.settings.get("tool_rules")) is not None and given != rules:
        kept = rules_to_settings(given, before=rules or ())
        settings = {name: value for name, value in agent.settings.items() if name != "tool_rules"}
        agent = replace(agent, settings=settings | ({"tool_rules": kept} if kept else {}))
    return agent


def _check_names(names: Iterable[str]) -> None:
    """Nothing, when no setting is one of ours misspelt. Others are the model's own. Raises: InvalidInput."""
    for name in names:
        if name in _OURS:
            continue
        from difflib import get_close_matches

        if near := get_close_matches(str(name)[:80], _OURS, n=1, cutoff=0.9):
            raise InvalidInput(f"there is no setting {str(name)!r:.80}: is it {near[0]!r}?")


def check_filled(tx: Tx, agent_id: AgentId, settings: Mapping[str, Any]) -> None:
    """Nothing, when the arguments that tool rules put in place of a model's fit the agent's tools, as far as it has
    them. Raises: ToolRulesInvalid."""
    given: list[tuple[str, Mapping[str, Any]]] = []
    for rule in rules_of(settings).rules:
        if isinstance(rule, RunFirst) and rule.args:
            given.append((rule.tool_name, rule.args))
        elif isinstance(rule, ChildTools):
            given += rule.child_args.items()
    if not given:
        return
    tools = {tool.spec.name: tool.spec for tool in tx.tools.of_agent(agent_id)}
    for name, args in given:
        if (spec := tools.get(name)) is None:
            continue
        schema = {**spec.parameters, "required": [], "additionalProperties": False}
        try:
            fit_arguments(name, schema, args)
        except InvalidArguments as error:
            raise ToolRulesInvalid(f"tool_rules: the arguments for {name} don't fit it: {error}") from error


def _check_archive(tx: Tx, agent: Agent) -> None:
    """Nothing, when what is captured of the agent has a place to go. Raises: NotFound."""
    capture = auto_capture_of(agent.settings)
    if capture is not None and capture.archive is not None:
        tx.archives.get(capture.archive)
