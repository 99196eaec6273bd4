"""An agent's tool rules: which tool comes first, which may follow which, and what ends a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.core.ids import AgentId
from perdure.core.tools.rules import ToolRule
from perdure.library.services import Services


class AsyncAgentRules:
    """The rules of one agent. They hold from its next answer on."""

    def __init__(self, services: Services, agent_id: AgentId) -> None:
        self._service, self._agent_id = services.agents, agent_id

    async def list(self) -> Sequence[ToolRule]:
        """In the order they were given. Raises: NotFound."""
        return await self._service.list_rules(self._agent_id)

    async def missing(self) -> Sequence[str]:
        """The tools that rules name and the agent has not got: these rules sleep until it has. Raises: NotFound."""
        return await self._service.list_missing_tools(self._agent_id)

    async def set(self, rules: Iterable[ToolRule | Mapping[str, Any]]) -> Sequence[ToolRule]:
        """These in place of all that there are; an empty list takes them away.

        Raises: ToolRulesInvalid: one can't be read, two contradict each other, its arguments don't fit the tool, and
            nothing was changed; NotFound.
        """
        return await self._service.set_rules(self._agent_id, rules)
