"""`tx.tools`: the verbs of tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from perdure.core.ids import AgentId, ToolId
from perdure.core.tools.spec import Tool, ToolCode

__all__ = ["ToolFilter", "Tools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFilter:
    """Which tools: all conditions hold; None is no condition, an empty tuple lets nothing through.

    `names` and `ids` are whole ones, `text` a part of the name in any case. `types` are the wire's names of kinds,
    `not_types` those that are left out; `letta` those that begin with `letta_`, or the others. `tags`: one is enough.
    """

    names: tuple[str, ...] | None = None
    ids: tuple[ToolId, ...] | None = None
    types: tuple[str, ...] | None = None
    not_types: tuple[str, ...] = ()
    letta: bool | None = None
    text: str | None = None
    tags: tuple[str, ...] | None = None
    agent_id: AgentId | None = None


class Tools(Protocol):
    def add(self, tool: Tool, *, code: ToolCode | None = None, at: datetime) -> Tool:
        """A new tool, with the source that it runs. Raises: AlreadyExists: its name, or its id."""
        ...

    def put(self, tool: Tool, *, at: datetime) -> Tool:
        """Create the tool, or change the one of that name, which then runs no source of its own; the stored one. The
        settings revision of agents that have it grows when it changes."""
        ...

    def update(self, tool: Tool, *, code: ToolCode | None = None, at: datetime) -> Tool:
        """Change the tool of this id, its name too, and all of its code: the stored one. The settings revision of
        agents that have it grows when the tool changes; its code alone is nothing that a model is told.

        Raises: NotFound; AlreadyExists: another one has the name.
        """
        ...

    def delete(self, tool_id: ToolId) -> None:
        """Take it from all agents, whose settings revision grows, and remove it. Raises: NotFound."""
        ...

    def get(self, tool_id: ToolId) -> Tool:
        """Raises: NotFound."""
        ...

    def find_by_name(self, name: str) -> Tool | None: ...

    def code(self, tool_id: ToolId) -> ToolCode | None:
        """What a custom tool runs; None: this tool runs no source. Raises: NotFound."""
        ...

    def codes(self, tool_ids: Sequence[ToolId]) -> dict[ToolId, ToolCode]:
        """Those of several tools; tools that run no source are left out."""
        ...

    def list(self, *, limit: int = 200) -> Sequence[Tool]:
        """In order of their names."""
        ...

    def page(
        self,
        *,
        where: ToolFilter,
        ascending: bool = False,
        limit: int = 50,
        after: ToolId | None = None,
        before: ToolId | None = None,
    ) -> Sequence[Tool]:
        """Tools in order of creation: those that follow `after`, which need not be one of those looked for, or lead up
        to `before`. Raises: NotFound: there is no such tool to begin at."""
        ...

    def count(self, where: ToolFilter) -> int: ...

    def attach(self, agent_id: AgentId, *names: str) -> None:
        """Raises: NotFound, TooMany. Attaching twice is no error."""
        ...

    def detach(self, agent_id: AgentId, name: str) -> None:
        """Raises: NotFound: it has no such tool."""
        ...

    def of_agent(self, agent_id: AgentId) -> Sequence[Tool]:
        """Sorted by name."""
        ...

    def agents_of(self, tool_id: ToolId, *, limit: int = 100) -> Sequence[AgentId]:
        """Who has it, sorted by id. Raises: NotFound."""
        ...
