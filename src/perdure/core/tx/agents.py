"""`tx.agents`: the verbs of agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perdure.core.agents import Agent
from perdure.core.ids import AgentId

__all__ = ["Agents"]


class Agents(Protocol):
    def add(self, agent: Agent) -> Agent:
        """The agent with its number. Raises: AlreadyExists."""
        ...

    def get(self, agent_id: AgentId) -> Agent:
        """Raises: NotFound."""
        ...

    def model(self, agent_id: AgentId) -> str:
        """The handle of the agent's model, and nothing else of it. Raises: NotFound."""
        ...

    def lock(self, agent_id: AgentId) -> None:
        """Make other transactions that lock the agent wait for this one's end, where they run side by side."""
        ...

    def find_by_name(self, name: str) -> Agent | None: ...

    def list(self, *, limit: int = 50, after: AgentId | None = None) -> Sequence[Agent]:
        """Newest first; `after` is the last agent of the page before."""
        ...

    def last_used(self) -> Agent | None:
        """The agent with the newest run; without any run, the newest agent."""
        ...

    def put(self, agent: Agent) -> Agent:
        """The agent as changed; its settings revision grows if its type, model, prompt or settings did. Raises:
        NotFound."""
        ...

    def delete(self, agent_id: AgentId) -> None:
        """Remove the agent and all its children, the only way a log is ever removed. Raises: NotFound."""
        ...
