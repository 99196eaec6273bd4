"""Tools with code from a server, which no agent can use before a person has read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.core.agents import Agent
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId
from perdure.domain.tools.units import update_tool
from perdure.engine.ports import Ports
from perdure.features.imports.common.tables import ImportedItems
from perdure.features.imports.letta.agents import WAITS
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


def list_unreviewed(tx: Tx, agent_id: AgentId | None = None) -> Sequence[UnreviewedTool]:
    """Return the tools that wait for a review, sorted by name; with `agent_id` those that this agent gets then."""
    found = []
    for tool in (one for one in tx.tools.list() if UNREVIEWED in one.tags):
        code, agents = tx.tools.code(tool.id), _waiting_agents(tx, tool.spec.name)
        if code is not None and (agent_id is None or agent_id in [agent.id for agent in agents]):
            found.append(UnreviewedTool(tool.spec.name, code.source, [agent.name for agent in agents]))
    return sorted(found, key=lambda one: one.name)


def approve_tool(tx: Tx, name: str, ports: Ports, at: datetime) -> UnreviewedTool:
    """Give a reviewed tool to the agents that had it; return it. Raises: NotFound: no tool of this name waits."""
    found = next((one for one in list_unreviewed(tx) if one.name == name), None)
    tool = tx.tools.find(name)
    if found is None or tool is None:
        raise NotFound("tool", name, hint="`perdure tool review` lists those that wait for a review")
    tags = [tag for tag in tool.tags if tag != UNREVIEWED]
    update_tool(tx, tool.id, {"tags": tags}, cipher=ports.cipher, at=at)
    for agent in _waiting_agents(tx, name):
        tx.tools.attach(agent.id, name)
        tx.of(ImportedItems).put(agent.id, {WAITS + name: GIVEN})
    return found


def _waiting_agents(tx: Tx, name: str) -> Sequence[Agent]:
    """Return the agents that get a tool once it is reviewed, oldest first."""
    key, found = WAITS + name, tx.of(ImportedItems)
    waiting: list[AgentId] = [owner for owner in found.owners(key) if found.find(owner, [key])[key] != GIVEN]
    return [tx.agents.get(one) for one in waiting]
