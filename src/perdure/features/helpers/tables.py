"""`tx.of(HelperAgents)`: which hidden agents work for an agent, by the names of their definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perdure.core.ids import AgentId
from perdure.storage.tables.table import OWN_AGENT, OWN_AGENT_OF, Table, own_agent


class HelperAgent(NamedTuple):
    """The hidden agent of a helper. `digest`: of all that it was made from."""

    helper_id: AgentId
    digest: str


class HelperAgents(Table):
    """The helpers of agents."""

    def list(self, agent_id: AgentId) -> Mapping[str, HelperAgent]:
        """Name of a definition -> its agent, of those that this agent has called."""
        sql = f"SELECT name, helper_id, digest FROM helpers WHERE agent_id = :agent_id AND {OWN_AGENT} ORDER BY name"
        return {row[0]: HelperAgent(AgentId(row[1]), row[2]) for row in self._rows(sql, agent_id=agent_id)}

    def list_of_plugin(self, plugin: str) -> Sequence[tuple[AgentId, str, AgentId]]:
        """(agent that calls, name of the definition, the helper's agent) of all helpers of a plug-in."""
        sql = (
            "SELECT h.agent_id, h.name, h.helper_id FROM helpers h"
            f" WHERE substr(h.name, 1, :size) = :start AND {OWN_AGENT_OF.format('h')} ORDER BY h.agent_id, h.name"
        )
        start = f"{plugin}:"
        return [(AgentId(row[0]), row[1], AgentId(row[2])) for row in self._rows(sql, start=start, size=len(start))]

    def delete(self, agent_id: AgentId, name: str) -> None:
        """Forget which agent the helper of this name is; nothing where there is none."""
        self._run(
            f"DELETE FROM helpers WHERE agent_id = :agent_id AND name = :name AND {OWN_AGENT}",
            agent_id=agent_id,
            name=name,
        )

    def put(self, agent_id: AgentId, name: str, helper: HelperAgent) -> None:
        """Store the agent of a helper. Raises: NotFound: there is no such calling agent."""
        self._run(
            "INSERT INTO helpers (agent_id, name, helper_id, digest) VALUES (:agent_id, :name, :helper_id, :digest)"
            " ON CONFLICT (agent_id, name) DO UPDATE SET helper_id = :helper_id, digest = :digest",
            agent_id=own_agent(self._db, self._org_id, agent_id),
            name=name,
            **helper._asdict(),
        )
