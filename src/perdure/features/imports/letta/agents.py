"""An agent as Letta's API shows it, turned into one to make here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from perdure.core.errors import InvalidInput, ModelNotFound
from perdure.core.ids import BlockId
from perdure.domain.agents.units import NewAgent
from perdure.domain.blocks.units import NewBlock
from perdure.domain.conversations.agent_copies import settings_of_copy
from perdure.features.agent_files.importing import NAME_MAX, NOT_IN_A_NAME
from perdure.features.agent_files.writing import AGENT_COLUMNS, AGENT_FIELDS
from perdure.features.imports.letta.client import Object
from perdure.features.imports.letta.context import LettaContext, reason_of
from perdure.features.imports.letta.values import LettaReport
from perdure.features.imports.sources.plain import list_in, object_in, text_in
from perdure.library.agents.agents import CompanionKind
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.agents import AgentIn
from perdure.server.wire.blocks import LIMIT_CHARS, NewWireBlock

WAITS = "letta tool "
"""Begins the key of a tool that an agent gets once a person has reviewed it."""
SLEEPTIME_KINDS = ("sleeptime", "voice_sleeptime")

_FIELDS = (*AGENT_COLUMNS, "agent_type", "tool_rules", "embedding_config", "embedding")
_SETTINGS = tuple({*AGENT_FIELDS, "max_tokens", "parallel_tool_calls"} - {*_FIELDS, "enable_sleeptime"})
"""The fields of an agent that a new one takes. Answers have values of settings also where none is set."""


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """An agent to create, with its companion and the notes to store about it."""

    new: NewAgent
    companion: CompanionKind | None
    notes: Mapping[str, str]


async def plan_agent(
    library: AsyncPerdure, state: Object, own: Object | None, tools: Mapping[str, str], report: LettaReport
) -> AgentPlan:
    """Plan an agent without its blocks.

    Args:
        own: what another Perdure server says of it in a file: the settings that it has itself; None: that is not known.
        tools: name -> "here" or "review" of those that can be taken.
        report: takes what can't be taken.
    Raises: InvalidInput.
    """
    names = [text_in(object_in(one).get("name")) for one in list_in(state.get("tools"))]
    here = [name for name in names if tools.get(name) == "here"]
    waits = [name for name in names if tools.get(name) == "review"]
    fields = (*_FIELDS, *(_SETTINGS if own is None else ()))
    body = {name: state[name] for name in fields if state.get(name) is not None}
    label = repr(text_in(state.get("name")) or "Agent")
    if (
        own is None and object_in(body.get("llm_config")).get("reasoning_effort") is None
    ):  # answers have a value where none is set
        body["model_settings"] = {**object_in(body.get("model_settings")), "reasoning": None}
    body |= {
        "name": NOT_IN_A_NAME.sub("_", text_in(state.get("name")) or "Agent")[:NAME_MAX],
        "include_base_tools": False,
        "include_multi_agent_tools": False,
        "tool_rules": list_in(state.get("tool_rules")),  # those of a tool that waits have no effect before it is there
        "tools": [*dict.fromkeys(here)],
    }
    group = object_in(state.get("managed_group") or state.get("multi_agent_group"))
    if state.get("enable_sleeptime") or group.get("manager_type") in SLEEPTIME_KINDS:
        body["enable_sleeptime"] = True
    request = _parse(body, label, report)
    models, handle = library.handles, None if own is not None and "model" not in own else request.model_handle
    try:
        model = await models.resolve(handle)
    except ModelNotFound:
        report.leave_out(f"models of agents, which follow the default here, because there is no {handle!r:.100}")
        handle, model = None, await models.resolve(None)
    new = request.new_agent(request.name or "", model, follows_default=models.means_default(handle))
    if own is not None:
        settings = {**settings_of_copy(object_in(own.get("settings"))), **new.settings}
        settings.pop("approval_waived", None)  # a person decides that anew, for the tools of this store
        new = replace(new, settings=settings)
    notes = dict.fromkeys((WAITS + name for name in waits), "")
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
        raise InvalidInput(f"block {fields.get('label')!r:.80}: {reason_of(error):.200}") from error


def kept_blocks(state: Object, here: Collection[BlockId], context: LettaContext) -> Mapping[BlockId, NewBlock | None]:
    """Return the blocks of an agent for `make_agent`; `here`: the ids of those that are in the store."""
    found: dict[BlockId, NewBlock | None] = {}
    for one in blocks_of(state):
        there = next((id_ for id_ in context.candidates("block", one["id"]) if id_ in here), None)
        found[BlockId(there or context.id_of("block", one["id"]))] = None if there else new_block(one)
    return found
