"""What all parts of an agent's class share: its values, and the services."""

from __future__ import annotations

from perdure.core.agents import Agent
from perdure.core.ids import AgentId
from perdure.library.services import Services


class AsyncAgentBase:
    """The values of an agent; `AsyncAgent` has these properties."""

    def __init__(self, services: Services, agent: Agent) -> None:
        self._services, self._info = services, agent

    @property
    def info(self) -> Agent:
        """The agent's values when it was looked up: model, system prompt, tags, settings."""
        return self._info

    @property
    def id(self) -> AgentId:
        """The agent's id."""
        return self._info.id

    @property
    def name(self) -> str:
        """The agent's name when it was looked up."""
        return self._info.name
