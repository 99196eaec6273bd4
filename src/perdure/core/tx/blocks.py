"""`tx.blocks`: the verbs of memory blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from perdure.core.blocks import Author, Block, BlockVersion
from perdure.core.ids import AgentId, BlockId

__all__ = ["Blocks"]


class Blocks(Protocol):
    def add(self, block: Block, *, author: Author) -> Block:
        """The block at version 0, with its version row. Raises: AlreadyExists."""
        ...

    def get(self, block_id: BlockId) -> Block:
        """Raises: NotFound."""
        ...

    def put(self, block: Block, *, expected: int, author: Author, at: datetime) -> Block:
        """The block at version `expected + 1`, with its version row. Raises: VersionConflict, NotFound."""
        ...

    def delete(self, block_id: BlockId) -> None:
        """Raises: NotFound."""
        ...

    def list(self, *, label: str | None = None, limit: int = 50, after: BlockId | None = None) -> Sequence[Block]:
        """Oldest first."""
        ...

    def attach(self, agent_id: AgentId, block_id: BlockId) -> None:
        """Raises: NotFound; AlreadyExists: the agent has another block of that label."""
        ...

    def detach(self, agent_id: AgentId, block_id: BlockId) -> None:
        """Raises: NotFound: it is not attached."""
        ...

    def of_agent(self, agent_id: AgentId) -> Sequence[Block]:
        """In the order they were attached."""
        ...

    def current(self, agent_id: AgentId) -> Mapping[BlockId, int]:
        """Block id -> version, of the agent's blocks: enough to know whether anything changed."""
        ...

    def find(self, agent_id: AgentId, label: str) -> Block | None: ...

    def agents_of(self, block_id: BlockId) -> Sequence[AgentId]: ...

    def versions(self, block_id: BlockId, *, limit: int = 100, before: int | None = None) -> Sequence[BlockVersion]:
        """Newest first."""
        ...

    def version(self, block_id: BlockId, version: int) -> BlockVersion:
        """Raises: NotFound."""
        ...
