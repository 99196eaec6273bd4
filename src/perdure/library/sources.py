"""The sources of an agent's memory."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.ids import AgentId
from perdure.core.provenance.sources import RevertResult, SourceSummary, WriteText
from perdure.library.services import Services


class AsyncSources:
    """What an agent's memory came from: web pages, files, MCP servers, tools, other agents, imports, and the agent.

    A source is named by its label and name, such as `web:https://example.com/page`; a run, by its id, stands for all
    that was written in it.
    """

    def __init__(self, services: Services, agent_id: AgentId) -> None:
        self._service, self._agent_id = services.sources, agent_id

    async def list(self, *, limit: int = 100) -> Sequence[SourceSummary]:
        """The sources, the one with the newest write first. Raises: NotFound, InvalidInput."""
        return await self._service.list(self._agent_id, limit=limit)

    async def show(self, source: str, *, limit: int = 100) -> Sequence[WriteText]:
        """The writes that came from a source or run, the newest first. Raises: NotFound, InvalidInput."""
        return await self._service.show(self._agent_id, source, limit=limit)

    async def revert(self, source: str, *, dry_run: bool = False) -> RevertResult:
        """Take back all writes that came from a source or run; `agent.undo(result.correction)` brings them back.

        Args:
            dry_run: only say what that would do.
        Raises: NotFound, ConversationBusy, InvalidInput.
        """
        return await self._service.revert(self._agent_id, source, dry_run=dry_run)

    async def revert_writes(self, write_ids: Sequence[str], *, dry_run: bool = False) -> RevertResult:
        """Take back these writes: versions of blocks as `block-…@3`, passages and episodes by their ids.

        Args:
            dry_run: only say what that would do.
        Raises: NotFound, ConversationBusy, InvalidInput.
        """
        return await self._service.revert_writes(self._agent_id, write_ids, dry_run=dry_run)
