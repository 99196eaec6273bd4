"""An agent's tool rules: which tool comes first, which may follow which, and what ends a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.app import App
from perdure.core.ids import AgentId
from perdure.core.tools.rule_check import rules_to_settings
from perdure.core.tools.rules import ToolRule, rules_of
from perdure.domain.agents.units import update_agent
from perdure.domain.tools.specs import CONTEXT_TOOL_SPECS
from perdure.library.checks import USER
from perdure.storage.tx import Tx

__all__ = ["AsyncAgentRules"]


class AsyncAgentRules:
    """The rules of one agent. They hold from its next answer on."""

    def __init__(self, app: App, agent_id: AgentId) -> None:
        self._app, self._agent_id = app, agent_id

    async def list(self) -> Sequence[ToolRule]:
        """In the order they were given. Raises: NotFound."""
        return await self._app.store.read(lambda tx: rules_of(tx.agents.get(self._agent_id).settings).rules)

    async def missing(self) -> Sequence[str]:
        """The tools that rules name and the agent has not got: these rules sleep until it has. Raises: NotFound."""

        def read(tx: Tx) -> Sequence[str]:
            rules = rules_of(tx.agents.get(self._agent_id).settings)
            there = {tool.spec.name for tool in tx.tools.of_agent(self._agent_id)} | {*CONTEXT_TOOL_SPECS}
            return [name for name in rules.names if name not in there]

        return await self._app.store.read(read)

    async def set(self, rules: Iterable[ToolRule | Mapping[str, Any]]) -> Sequence[ToolRule]:
        """These in place of all that there are; an empty list takes them away.

        Raises: ToolRulesInvalid: one can't be read, two contradict each other, its arguments don't fit the tool, and
            nothing was changed; NotFound.
        """
        kept = rules_to_settings(rules)
        now = self._app.ports.clock.now()

        def change(tx: Tx) -> Sequence[ToolRule]:
            tx.agents.lock(self._agent_id)
            settings = {**tx.agents.get(self._agent_id).settings, "tool_rules": kept}
            return rules_of(
                update_agent(tx, self._agent_id, {"settings": settings}, author=USER, at=now).settings
            ).rules

        return await self._app.store.write(change)
