"""`tx.agents`: the verbs of agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from perdure.core.agents import Agent
from perdure.core.ids import AgentId, BlockId
from perdure.core.runs import StopReason

__all__ = ["AgentFilter", "AgentOrder", "Agents"]

AgentOrder = Literal["created", "updated", "used"]
"""By what agents are sorted: when they were made, last changed, or given their last run (those without one first)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFilter:
    """Which agents: all conditions hold.

    `name` is the whole name, `text` a part of it in any case. `all_tags`: every tag is needed, not only one of them.
    `block_id`: agents that have this block. `stop_reason`: how their newest run ended.
    """

    name: str | None = None
    text: str | None = None
    tags: tuple[str, ...] = ()
    all_tags: bool = False
    block_id: BlockId | None = None
    created_by: str | None = None
    stop_reason: StopReason | None = None
    hidden: bool | None = None


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

    def tool_rules(self, agent_id: AgentId) -> Mapping[str, Any]:
        """The agent's settings if it has tool rules, nothing if it has none; what most runs ask need not be read."""
        ...

    def lock(self, agent_id: AgentId) -> None:
        """Make other transactions that lock the agent wait for this one's end, where they run side by side."""
        ...

    def find_by_name(self, name: str) -> Agent | None: ...

    def list(self, *, limit: int = 50, after: AgentId | None = None) -> Sequence[Agent]:
        """Newest first; `after` is the last agent of the page before."""
        ...

    def page(
        self,
        *,
        where: AgentFilter,
        order: AgentOrder = "created",
        ascending: bool = False,
        limit: int = 50,
        after: AgentId | None = None,
        before: AgentId | None = None,
    ) -> Sequence[Agent]:
        """A page in the asked order: the first ones behind `after`, or with `before` alone the last ones in front of
        it. Raises: NotFound: there is no such agent to begin at."""
        ...

    def count(self, where: AgentFilter) -> int: ...

    def last_used(self) -> Agent | None:
        """The agent with the newest run; without any run, the newest agent."""
        ...

    def put(self, agent: Agent) -> Agent:
        """The agent as changed; its settings revision grows if its type, model, prompt or settings did. Raises:
        NotFound."""
        ...

    def delete(self, agent_id: AgentId) -> None:
        """From now on nobody sees the agent nor anything of its own; `tx.upkeep` removes that. The only way a log is
        ever removed. Raises: NotFound."""
        ...
