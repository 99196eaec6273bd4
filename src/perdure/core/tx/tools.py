"""`tx.tools`: the verbs of tools."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from perdure.core.ids import AgentId, ToolId
from perdure.core.tools import Tool

__all__ = ["Tools"]


class Tools(Protocol):
    def put(self, tool: Tool, *, at: datetime) -> Tool:
        """Create the tool, or change the one of that name; the stored one. The settings revision of agents that have it
        grows when it changes."""
        ...

    def get(self, tool_id: ToolId) -> Tool:
        """Raises: NotFound."""
        ...

    def find_by_name(self, name: str) -> Tool | None: ...

    def list(self, *, limit: int = 200) -> Sequence[Tool]: ...

    def attach(self, agent_id: AgentId, name: str) -> None:
        """Raises: NotFound. Attaching twice is no error."""
        ...

    def detach(self, agent_id: AgentId, name: str) -> None: ...

    def of_agent(self, agent_id: AgentId) -> Sequence[Tool]:
        """Sorted by name."""
        ...
