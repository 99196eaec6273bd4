"""The blocks of the store, and those of one agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.blocks import DEFAULT_LIMIT_CHARS, Block, BlockFilter, BlockVersion
from perdure.core.ids import AgentId, BlockId
from perdure.core.provenance.sources import RevertResult, SourceSummary, WriteText
from perdure.core.text.reprs import short_repr
from perdure.domain.blocks.units import NewBlock
from perdure.library.checks import Page
from perdure.library.services import Services


class AsyncBlocks:
    """All blocks of the store, by id: for those that several agents share."""

    def __init__(self, services: Services) -> None:
        self._service = services.blocks

    async def create(
        self,
        label: str,
        value: str = "",
        *,
        limit_chars: int = DEFAULT_LIMIT_CHARS,
        description: str | None = None,
        read_only: bool = False,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        is_template: bool = False,
    ) -> Block:
        """A new block that no agent has yet. Raises: InvalidInput, BlockLimitExceeded."""
        new = NewBlock(
            label=label,
            value=value,
            limit_chars=limit_chars,
            description=description,
            read_only=read_only,
            metadata={} if metadata is None else metadata,
            tags=tags,
            is_template=is_template,
        )
        return await self._service.create(new)

    async def get(self, block_id: BlockId) -> Block:
        """The block of this id. Raises: NotFound."""
        return await self._service.get(block_id)

    async def list(self, *, label: str | None = None, limit: int = 50, after: BlockId | None = None) -> Sequence[Block]:
        """A page of the blocks, oldest first; `after` is the last one of the page before.

        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no block `after`.
        """
        return await self._service.list(BlockFilter(label=label), Page(limit, ascending=True, after=after))

    async def update(self, block_id: BlockId, *, expected: int | None = None, **changes: Any) -> Block:
        """Change fields of a block. Raises: NotFound, VersionConflict, BlockLimitExceeded, InvalidInput."""
        return await self._service.update(block_id, changes, expected=expected)

    async def delete(self, block_id: BlockId) -> None:
        """Remove the block with its history from every agent, however many there are. Raises: NotFound."""
        await self._service.delete(block_id)


class AsyncAgentBlocks:
    """The blocks of one agent, by label. Every method raises NotFound when the agent is gone."""

    __repr__ = short_repr("_agent_id")

    def __init__(self, services: Services, agent_id: AgentId) -> None:
        self._service, self._corrections, self._agent_id = services.blocks, services.corrections, agent_id

    async def list(self) -> Sequence[Block]:
        """The blocks, in the order in which they were attached."""
        return await self._service.list_of_agent(self._agent_id)

    async def get(self, label: str) -> Block:
        """The block of this label. Raises: BlockNotFound."""
        return await self._service.get_of_agent(self._agent_id, label)

    async def create(
        self,
        label: str,
        value: str = "",
        *,
        limit_chars: int = DEFAULT_LIMIT_CHARS,
        description: str | None = None,
        read_only: bool = False,
    ) -> Block:
        """A new block of this agent. Raises: InvalidInput, BlockLimitExceeded, AlreadyExists."""
        new = NewBlock(label=label, value=value, limit_chars=limit_chars, description=description, read_only=read_only)
        return await self._service.create(new, agent_id=self._agent_id)

    async def update(self, label: str, value: str, *, expected: int | None = None) -> Block:
        """The block with another value.

        Args:
            expected: the version the caller has seen; if the block has changed since, nothing is written.
        Raises: BlockNotFound, VersionConflict, BlockLimitExceeded.
        """
        return await self._service.update_of_agent(self._agent_id, label, {"value": value}, expected=expected)

    async def change(self, label: str, /, *, expected: int | None = None, **changes: Any) -> Block:
        """The block with other fields: `limit_chars`, `description`, `read_only`, `label`, `metadata`, `tags`.

        Raises: BlockNotFound, VersionConflict, BlockLimitExceeded, AlreadyExists; InvalidInput: there is no such field,
            or it can't have this value.
        """
        return await self._service.update_of_agent(self._agent_id, label, changes, expected=expected)

    async def append(self, label: str, text: str) -> Block:
        """The block with a new last line. Raises: BlockNotFound, BlockReadOnly, BlockLimitExceeded."""
        return await self._service.append(self._agent_id, label, text)

    async def replace_line(self, label: str, line: int | str, text: str) -> Block:
        """The block with another text in place of a line; the agent's `undo` takes it back.

        Args:
            line: its number from 1, or what it says.
        Raises: BlockNotFound, BlockLimitExceeded; InvalidInput: there is no such line.
        """
        return await self._corrections.replace_line(self._agent_id, label, line, text)

    async def delete_line(self, label: str, line: int | str) -> Block:
        """The block without a line: its number from 1, or what it says. The agent's `undo` takes it back.

        Raises: BlockNotFound; InvalidInput: there is no such line.
        """
        return await self._corrections.replace_line(self._agent_id, label, line, None)

    async def history(self, label: str, *, limit: int = 100) -> Sequence[BlockVersion]:
        """Every version: value, diff, author, run and message; of agents also `agent_name`, and the `reason` that they
        gave for their edits. Newest first. Raises: BlockNotFound, InvalidInput."""
        return await self._service.list_versions(self._agent_id, label, limit=limit)

    async def restore(self, label: str, version: int) -> Block:
        """The value of an earlier version, as a new version. Raises: BlockNotFound, NotFound, BlockLimitExceeded."""
        return await self._service.restore(self._agent_id, label, version)

    async def attach(self, block_id: BlockId) -> None:
        """Share an existing block. Raises: NotFound, AlreadyExists."""
        await self._service.attach(self._agent_id, block_id)

    async def detach(self, label: str) -> None:
        """Take a block out of this agent's memory; the block itself stays. Raises: BlockNotFound."""
        await self._service.detach_label(self._agent_id, label)


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
