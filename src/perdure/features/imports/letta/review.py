"""Tools with code from a server, which no agent can use before a person has read it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId
from perdure.core.tools.rule_check import rules_to_settings
from perdure.domain.agents.units import update_agent
from perdure.domain.tools.units import update_tool
from perdure.engine.ports import Ports
from perdure.features.imports.common.tables import ImportedItems
from perdure.features.imports.common.values import AUTHOR
from perdure.features.imports.letta.agents import RULES, WAITS, tools_of
from perdure.features.imports.letta.shared import UNREVIEWED
from perdure.storage.tx import Tx

GIVEN = "given"
"""What is noted of a tool that waited, once its agent has got it."""


@dataclass(frozen=True, slots=True)
class UnreviewedTool:
    """A tool that waits for a review, with its code and the names of the agents that get it then."""

    name: str
    source: str
    agents: Sequence[str]


def list_unreviewed(tx: Tx) -> Sequence[UnreviewedTool]:
    """Return the tools that wait for a review, sorted by name."""
    found = []
    for tool in tx.tools.list():
        code = tx.tools.code(tool.id) if UNREVIEWED in tool.tags else None
        if code is not None:
            names = [agent.name for agent in _waiting_agents(tx, tool.spec.name)]
            found.append(UnreviewedTool(tool.spec.name, code.source, names))
    return sorted(found, key=lambda one: one.name)


def approve_tool(tx: Tx, name: str, ports: Ports, at: datetime) -> UnreviewedTool:
    """Give a tool that a person has read to the agents that had it, with its rules; return it. Raises: NotFound: no
    tool of this name waits."""
    found = next((one for one in list_unreviewed(tx) if one.name == name), None)
    tool = tx.tools.find(name)
    if found is None or tool is None:
        raise NotFound("tool", name, hint="`perdure tool review` lists those that wait for a review")
    tags = [tag for tag in tool.tags if tag != UNREVIEWED]
    update_tool(tx, tool.id, {"tags": tags}, cipher=ports.cipher, at=at)
    for agent in _waiting_agents(tx, name):
        tx.tools.attach(agent.id, name)
        _restore_rules(tx, agent, at)
        tx.of(ImportedItems).put(agent.id, {WAITS + name: GIVEN})
    return found


def _waiting_agents(tx: Tx, name: str) -> Sequence[Agent]:
    """Return the agents that get a tool once it is reviewed, oldest first."""
    key, found = WAITS + name, tx.of(ImportedItems)
    waiting: list[AgentId] = [one for one in found.owners(key) if found.find(one, [key])[key] != GIVEN]
    return [tx.agents.get(one) for one in waiting]


def _restore_rules(tx: Tx, agent: Agent, at: datetime) -> None:
    """Give an agent those of its rules at the server for which it has all tools now. Raises: InvalidInput."""
    stored = [*agent.settings.get("tool_rules", ())]
    noted = tx.of(ImportedItems).find(agent.id, [RULES]).get(RULES, "[]")
    names = {tool.spec.name for tool in tx.tools.list_by_agent(agent.id)}
    rules = rules_to_settings([one for one in json.loads(noted) if tools_of(one) <= names])
    if missing := [one for one in rules if one not in stored]:
        settings = {**agent.settings, "tool_rules": [*stored, *missing]}
        with suppress(InvalidInput):  # somebody has changed the rules since, and these contradict them
            update_agent(tx, agent.id, {"settings": settings}, author=AUTHOR, at=at)
