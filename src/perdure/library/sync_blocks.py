"""Blocks with plain calls; every method is the asynchronous one's of `library.blocks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.core.blocks import DEFAULT_LIMIT_CHARS, Block, BlockVersion
from perdure.core.ids import BlockId
from perdure.library.blocks import AsyncAgentBlocks, AsyncBlocks
from perdure.library.portal import Portal

__all__ = ["AgentBlocks", "Blocks"]


class AgentBlocks:
    """The blocks of one agent, by label; see `AsyncAgentBlocks`."""

    def __init__(self, portal: Portal, inner: AsyncAgentBlocks) -> None:
        self._portal, self._inner = portal, inner

    def list(self) -> Sequence[Block]:
        """In the order they were attached."""
        return self._portal.run(self._inner.list())

    def get(self, label: str) -> Block:
        return self._portal.run(self._inner.get(label))

    def create(
        self,
        label: str,
        value: str = "",
        *,
        limit_chars: int = DEFAULT_LIMIT_CHARS,
        description: str | None = None,
        read_only: bool = False,
    ) -> Block:
        """A new block of this agent."""
        return self._portal.run(
            self._inner.create(label, value, limit_chars=limit_chars, description=description, read_only=read_only)
        )

    def update(self, label: str, value: str, *, expected: int | None = None) -> Block:
        """The block with another value."""
        return self._portal.run(self._inner.update(label, value, expected=expected))

    def change(self, label: str, /, *, expected: int | None = None, **changes: Any) -> Block:
        """The block with other fields."""
        return self._portal.run(self._inner.change(label, expected=expected, **changes))

    def append(self, label: str, text: str) -> Block:
        """The block with a new last line."""
        return self._portal.run(self._inner.append(label, text))

    def history(self, label: str, *, limit: int = 100) -> Sequence[BlockVersion]:
        """Every version, newest first."""
        return self._portal.run(self._inner.history(label, limit=limit))

    def restore(self, label: str, version: int) -> Block:
        """The value of an earlier version, as a new version."""
        return self._portal.run(self._inner.restore(label, version))

    def attach(self, block_id: BlockId) -> None:
        """Share an existing block."""
        self._portal.run(self._inner.attach(block_id))

    def detach(self, label: str) -> None:
        """Take a block out of this agent's memory."""
        self._portal.run(self._inner.detach(label))


class Blocks:
    """All blocks of the store, by id; see `AsyncBlocks`."""

    def __init__(self, portal: Portal, inner: AsyncBlocks) -> None:
        self._portal, self._inner = portal, inner

    def create(self, label: str, value: str = "", **fields: Any) -> Block:
        """A new block that no agent has yet."""
        return self._portal.run(self._inner.create(label, value, **fields))

    def get(self, block_id: BlockId) -> Block:
        return self._portal.run(self._inner.get(block_id))

    def list(self, *, label: str | None = None, limit: int = 50, after: BlockId | None = None) -> Sequence[Block]:
        """Oldest first."""
        return self._portal.run(self._inner.list(label=label, limit=limit, after=after))

    def update(self, block_id: BlockId, *, expected: int | None = None, **changes: Any) -> Block:
        """The block with other fields."""
        return self._portal.run(self._inner.update(block_id, expected=expected, **changes))

    def delete(self, block_id: BlockId) -> None:
        """Remove the block with its history from every agent."""
        self._portal.run(self._inner.delete(block_id))
