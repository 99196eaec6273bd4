"""Tools with plain calls; every method is the asynchronous one's of `library.tools`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from perdure.core.tools.spec import Tool, ToolCode, ToolOutcome
from perdure.domain.tools.search import ToolHit
from perdure.domain.tools.units import ToolChanges
from perdure.library.portal import Portal
from perdure.library.tools import AsyncAgentTools, AsyncTools, ToolOptions

__all__ = ["AgentTools", "Tools"]


class Tools:
    """All tools of the store; see `AsyncTools`."""

    def __init__(self, portal: Portal, inner: AsyncTools) -> None:
        self._portal, self._inner = portal, inner

    def create(self, source: str | Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
        """A new tool of a source; it runs in the sandbox."""
        return self._portal.run(self._inner.create(source, **options))

    def upsert(self, source: str | Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
        """The tool of this name, made or changed to what is given."""
        return self._portal.run(self._inner.upsert(source, **options))

    def get(self, name_or_id: str) -> Tool:
        """The tool of this name or id."""
        return self._portal.run(self._inner.get(name_or_id))

    def code(self, name_or_id: str) -> ToolCode | None:
        """What a custom tool runs; None: this tool is made of no source."""
        return self._portal.run(self._inner.code(name_or_id))

    def list(
        self, *, text: str | None = None, types: Sequence[str] | None = None, limit: int = 200, after: str | None = None
    ) -> Sequence[Tool]:
        """Newest first."""
        return self._portal.run(self._inner.list(text=text, types=types, limit=limit, after=after))

    def search(self, query: str, *, limit: int = 10) -> Sequence[ToolHit]:
        """The tools whose name, tags or description have the words, best first."""
        return self._portal.run(self._inner.search(query, limit=limit))

    def update(self, name_or_id: str, **changes: Unpack[ToolChanges]) -> Tool:
        """The tool as changed."""
        return self._portal.run(self._inner.update(name_or_id, **changes))

    def delete(self, name_or_id: str) -> None:
        """Take the tool from all agents and remove it."""
        self._portal.run(self._inner.delete(name_or_id))

    def test(
        self,
        name_or_id: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> ToolOutcome:
        """What a tool does with these arguments."""
        return self._portal.run(self._inner.test(name_or_id, arguments, progress=progress))

    def test_source(
        self,
        source: str | Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: Callable[[str], None] | None = None,
        **options: Unpack[ToolOptions],
    ) -> ToolOutcome:
        """What a source does with these arguments; nothing is stored."""
        return self._portal.run(self._inner.test_source(source, arguments, progress=progress, **options))


class AgentTools:
    """The tools of one agent; see `AsyncAgentTools`."""

    def __init__(self, portal: Portal, inner: AsyncAgentTools) -> None:
        self._portal, self._inner = portal, inner

    def list(self) -> Sequence[Tool]:
        """Sorted by name."""
        return self._portal.run(self._inner.list())

    def attach(self, name_or_id: str) -> Tool:
        """Give the agent a tool."""
        return self._portal.run(self._inner.attach(name_or_id))

    def detach(self, name_or_id: str) -> None:
        """Take a tool away from the agent."""
        self._portal.run(self._inner.detach(name_or_id))

    def run(self, name_or_id: str, arguments: Mapping[str, Any] | None = None) -> ToolOutcome:
        """What a tool does for this agent."""
        return self._portal.run(self._inner.run(name_or_id, arguments))
