"""`tx.blocks`: the verbs of memory blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from perdure.core.blocks import Author, Block, BlockVersion
from perdure.core.ids import AgentId, BlockId

__all__ = ["BlockFilter", "Blocks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFilter:
    """Which blocks: all conditions hold.

    `label` is the whole label; `label_text`, `value_text` and `description_text` are parts, in any case. `all_tags`:
    every tag is needed, not only one of them. `agents_min` and `agents_max` are how many agents have it, both ends
    included; `agents_in` are the numbers that will do. `holding` is a name and a value of its metadata, at any depth.
    """

    label: str | None = None
    label_text: str | None = None
    value_text: str | None = None
    description_text: str | None = None
    tags: tuple[str, ...] = ()
    all_tags: bool = False
    templates_only: bool = False
    agents_min: int | None = None
    agents_max: int | None = None
    agents_in: tuple[int, ...] = ()
    holding: tuple[str, str] | None = None
    hidden: bool | None = None


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

    def page(
        self,
        *,
        where: BlockFilter,
        ascending: bool = True,
        limit: int = 50,
        after: BlockId | None = None,
        before: BlockId | None = None,
    ) -> Sequence[Block]:
        """A page in order of creation: the first ones behind `after`, or with `before` alone the last ones in front of
        it. Raises: NotFound: there is no such block to begin at."""
        ...

    def count(self, where: BlockFilter) -> int: ...

    def attach(self, agent_id: AgentId, *block_ids: BlockId) -> None:
        """Attaching twice is no error. Raises: NotFound, TooMany; AlreadyExists: the agent has another block of that
        label."""
        ...

    def detach(self, agent_id: AgentId, block_id: BlockId) -> None:
        """Raises: NotFound: it is not attached."""
        ...

    def of_agent(self, agent_id: AgentId) -> Sequence[Block]:
        """In the order they were attached."""
        ...

    def size(self, agent_id: AgentId) -> int:
        """How many characters the values of the agent's blocks have."""
        ...

    def find(self, agent_id: AgentId, label: str) -> Block | None: ...

    def agents_of(self, block_id: BlockId) -> Sequence[AgentId]: ...

    def versions(self, block_id: BlockId, *, limit: int = 100, before: int | None = None) -> Sequence[BlockVersion]:
        """Newest first."""
        ...

    def version(self, block_id: BlockId, version: int) -> BlockVersion:
        """Raises: NotFound."""
        ...
