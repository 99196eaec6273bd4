"""An agent as Letta's API shows it, turned into one to make here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from perdure.core.errors import InvalidInput, ModelNotFound
from perdure.core.ids import BlockId
from perdure.domain.agents.units import NewAgent
from perdure.domain.blocks.units import NewBlock
from perdure.features.agent_files.importing import NAME_MAX, NOT_IN_A_NAME
from perdure.features.imports.letta.client import Object
from perdure.features.imports.letta.values import LettaReport
from perdure.features.imports.sources.plain import list_in, object_in, text_in
from perdure.library.agents.agents import CompanionKind
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.agents import AgentIn
from perdure.server.wire.blocks import LIMIT_CHARS, NewWireBlock

RULES = "letta rules"
"""The key under which an agent's rules are noted as they were, for those of tools that wait for a review."""
WAITS = "letta tool "
"""Begins the key of a tool that an agent gets once a person has reviewed it."""
SLEEPTIME_KINDS = ("sleeptime", "voice_sleeptime")

_FIELDS = (
    *("name", "system", "agent_type", "description", "metadata", "tags", "tool_rules", "llm_config", "model"),
    *("embedding_config", "embedding", "model_settings", "compaction_settings", "response_format", "timezone"),
    *("message_buffer_autoclear", "max_files_open", "per_file_view_window_char_limit", "hidden"),
    *("max_tokens", "parallel_tool_calls", "auto_recall", "auto_capture", "facts", "guards", "summaries"),
    *("tool_output", "context_engine", "limits", "untrusted_writes", "bypass_session_patterns"),
)
"""The fields of an agent that a new one takes; the last two lines are Perdure's own."""


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """An agent to make, with the companion that it gets and what is to be noted of it."""

    new: NewAgent
    companion: CompanionKind | None
    notes: Mapping[str, str]


async def plan_agent(library: AsyncPerdure, state: Object, tools: Mapping[str, str], report: LettaReport) -> AgentPlan:
    """Plan an agent without its blocks. `tools`: name -> "here" or "review" of those that can be taken; what can't goes
    into `report`. Raises: InvalidInput."""
    names = [text_in(object_in(one).get("name")) for one in list_in(state.get("tools"))]
    here = [name for name in names if tools.get(name) == "here"]
    waits = [name for name in names if tools.get(name) == "review"]
    rules = [one for one in list_in(state.get("tool_rules")) if isinstance(one, dict)]
    body = {name: state[name] for name in _FIELDS if state.get(name) is not None}
    label = repr(text_in(state.get("name")) or "Agent")
    if object_in(body.get("llm_config")).get("reasoning_effort") is None:  # answers have a value where none is set
        body["model_settings"] = {**object_in(body.get("model_settings")), "reasoning": None}
    body |= {
        "name": NOT_IN_A_NAME.sub("_", text_in(state.get("name")) or "Agent")[:NAME_MAX],
        "include_base_tools": False,
        "include_multi_agent_tools": False,
        "tool_rules": [one for one in rules if tools_of(one) <= {*here}],
        "tools": [*dict.fromkeys(here)],
    }
    group = object_in(state.get("managed_group") or state.get("multi_agent_group"))
    if state.get("enable_sleeptime") or group.get("manager_type") in SLEEPTIME_KINDS:
        body["enable_sleeptime"] = True
    request = _parse(body, label, report)
    models, handle = library.handles, request.model_handle
    try:
        model = await models.resolve(handle)
    except ModelNotFound:
        report.leave_out(f"models of agents, which follow the default here, because there is no {handle!r:.100}")
        handle, model = None, await models.resolve(None)
    new = request.new_agent(request.name or "", model, follows_default=models.means_default(handle))
    notes = dict.fromkeys((WAITS + name for name in waits), "")
    notes |= {RULES: json.dumps(rules)} if waits and rules else {}
    return AgentPlan(new, request.companion(request.agent_type) or None, notes)


def _parse(body: dict[str, Any], label: str, report: LettaReport) -> AgentIn:
    """Parse the body of a new agent; fields that can't be used here are left out. Raises: InvalidInput."""
    while True:
        try:
            return AgentIn.model_validate(body)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            field = str(problem["loc"][0])
            if body.pop(field, None) is None or field == "name":
                raise InvalidInput(f"agent {label}: {field}: {problem['msg']:.200}") from error
            report.leave_out(f"settings {field!r} of agents, which this version does not know as they are there")


def tools_of(rule: Mapping[str, Any]) -> set[str]:
    """Return the names of all tools that a rule is about."""
    mapping = object_in(rule.get("child_output_mapping"))
    children = [one.get("name") if isinstance(one, dict) else one for one in list_in(rule.get("children"))]
    return {str(one) for one in (rule.get("tool_name"), rule.get("default_child"), *children, *mapping.values()) if one}


def blocks_of(state: Object) -> Sequence[Object]:
    """Return the blocks of an agent, each with its id."""
    found = list_in(state.get("blocks")) or list_in(object_in(state.get("memory")).get("blocks"))
    return [one for one in found if isinstance(one, dict) and isinstance(one.get("id"), str)]


def new_block(fields: Object) -> NewBlock:
    """Return a block of the server as one to make. Raises: InvalidInput."""
    value = str(fields.get("value") or "")
    limit = fields.get("limit")
    known = {name: one for name, one in fields.items() if one is not None}
    size = max(limit if isinstance(limit, int) and limit > 0 else LIMIT_CHARS, len(value))
    try:
        return NewBlock(**NewWireBlock.model_validate({**known, "value": value, "limit": size}).fields)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise InvalidInput(f"block {fields.get('label')!r:.80}: {where}: {problem['msg']:.200}") from error


def kept_blocks(
    state: Object, here: Mapping[str, BlockId], ids: Mapping[str, Sequence[str]], number: int
) -> Sequence[tuple[BlockId, NewBlock | None]]:
    """Return the blocks of an agent for `make_agent`. `here`: those that are in the store, by their ids here; `ids`: id
    at the server -> the ids that it may have here, of which a new one gets the one with this number."""
    found: list[tuple[BlockId, NewBlock | None]] = []
    for one in blocks_of(state):
        there = next((here[id_] for id_ in ids[one["id"]] if id_ in here), None)
        if there is not None:
            found.append((there, None))
        else:
            found.append((BlockId(ids[one["id"]][min(number, len(ids[one["id"]]) - 1)]), new_block(one)))
    return found
