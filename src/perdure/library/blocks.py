"""Blocks as people and programs work on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.app import App
from perdure.core.blocks import DEFAULT_LIMIT_CHARS, Block, BlockVersion, appended
from perdure.core.ids import AgentId, BlockId
from perdure.core.tx import Tx
from perdure.domain.blocks.units import create_block, edit_block, find_block, restore_block, update_block
from perdure.engine.conversations.reset import delete
from perdure.library.checks import USER, check_limit, check_number, check_text

__all__ = ["AsyncAgentBlocks", "AsyncBlocks"]


class AsyncBlocks:
    """All blocks of the store, by id: for those that several agents share."""

    def __init__(self, app: App) -> None:
        self._app = app

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
        ports = self._app.ports
        return await ports.store.write(
            create_block,
            BlockId(ports.ids.new("block")),
            label,
            value,
            author=USER,
            at=ports.clock.now(),
            limit_chars=limit_chars,
            description=description,
            read_only=read_only,
            metadata=metadata,
            tags=tags,
            is_template=is_template,
        )

    async def get(self, block_id: BlockId) -> Block:
        """Raises: NotFound."""
        check_text("block_id", block_id)
        return await self._app.store.read(lambda tx: tx.blocks.get(block_id))

    async def list(self, *, label: str | None = None, limit: int = 50, after: BlockId | None = None) -> Sequence[Block]:
        """Oldest first; `after` is the last one of the page before.

        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no block `after`.
        """
        check_limit(limit)
        for name, value in (("label", label), ("after", after)):
            if value is not None:
                check_text(name, value)

        def page(tx: Tx) -> Sequence[Block]:
            if after is not None:
                tx.blocks.get(after)  # a block that is gone has no place in the list any more
            return tx.blocks.list(label=label, limit=limit, after=after)

        return await self._app.store.read(page)

    async def update(self, block_id: BlockId, *, expected: int | None = None, **changes: Any) -> Block:
        """The block with other fields. Raises: NotFound, VersionConflict, BlockLimitExceeded, InvalidInput."""
        check_text("block_id", block_id)
        check_number("expected", expected)
        now = self._app.ports.clock.now()
        return await self._app.store.write(update_block, block_id, changes, author=USER, at=now, expected=expected)

    async def delete(self, block_id: BlockId) -> None:
        """Remove the block with its history from every agent, however many there are. Raises: NotFound."""
        check_text("block_id", block_id)
        await delete(self._app.ports, lambda tx: tx.blocks.delete(block_id))


class AsyncAgentBlocks:
    """The blocks of one agent, by label."""

    def __init__(self, app: App, agent_id: AgentId) -> None:
        self._app, self._agent_id = app, agent_id

    async def list(self) -> Sequence[Block]:
        """In the order they were attached."""
        return await self._app.store.read(lambda tx: tx.blocks.of_agent(self._agent_id))

    async def get(self, label: str) -> Block:
        """Raises: BlockNotFound."""
        check_text("label", label)
        return await self._app.store.read(find_block, self._agent_id, label)

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
        ports = self._app.ports
        return await ports.store.write(
            create_block,
            BlockId(ports.ids.new("block")),
            label,
            value,
            author=USER,
            at=ports.clock.now(),
            limit_chars=limit_chars,
            description=description,
            read_only=read_only,
            agent_id=self._agent_id,
        )

    async def update(self, label: str, value: str, *, expected: int | None = None) -> Block:
        """The block with another value.

        Args:
            expected: the version the caller has seen; if the block has moved on since, nothing is written.
        Raises: BlockNotFound, VersionConflict, BlockLimitExceeded.
        """
        return await self._change(label, {"value": value}, expected)

    async def change(self, label: str, /, *, expected: int | None = None, **changes: Any) -> Block:
        """The block with other fields: `limit_chars`, `description`, `read_only`, `label`, `metadata`, `tags`.

        Raises: BlockNotFound, VersionConflict, BlockLimitExceeded, AlreadyExists; InvalidInput: there is no such field,
            or it can't have this value.
        """
        return await self._change(label, changes, expected)

    async def append(self, label: str, text: str) -> Block:
        """The block with a new last line. Raises: BlockNotFound, BlockReadOnly, BlockLimitExceeded."""
        check_text("label", label)
        check_text("text", text)
        now = self._app.ports.clock.now()
        return await self._app.store.write(
            edit_block, self._agent_id, label, lambda block: appended(block, text), author=USER, at=now
        )

    async def history(self, label: str, *, limit: int = 100) -> Sequence[BlockVersion]:
        """Every version: value, diff, author, run and message. Newest first. Raises: BlockNotFound, InvalidInput."""
        check_limit(limit)
        check_text("label", label)

        def versions(tx: Tx) -> Sequence[BlockVersion]:
            return tx.blocks.versions(find_block(tx, self._agent_id, label).id, limit=limit)

        return await self._app.store.read(versions)

    async def restore(self, label: str, version: int) -> Block:
        """The value of an earlier version, as a new version. Raises: BlockNotFound, NotFound, BlockLimitExceeded."""
        check_text("label", label)
        check_number("version", version)
        now = self._app.ports.clock.now()

        def restore(tx: Tx) -> Block:
            return restore_block(tx, find_block(tx, self._agent_id, label).id, version, author=USER, at=now)

        return await self._app.store.write(restore)

    async def attach(self, block_id: BlockId) -> None:
        """Share an existing block. Raises: NotFound, AlreadyExists."""
        check_text("block_id", block_id)
        await self._app.store.write(lambda tx: tx.blocks.attach(self._agent_id, block_id))

    async def detach(self, label: str) -> None:
        """Take a block out of this agent's memory; the block itself stays. Raises: BlockNotFound."""
        check_text("label", label)

        def detach(tx: Tx) -> None:
            tx.blocks.detach(self._agent_id, find_block(tx, self._agent_id, label).id)

        await self._app.store.write(detach)

    async def _change(self, label: str, changes: Mapping[str, Any], expected: int | None) -> Block:
        check_text("label", label)
        check_number("expected", expected)
        now = self._app.ports.clock.now()

        def change(tx: Tx) -> Block:
            block = find_block(tx, self._agent_id, label)
            return update_block(tx, block.id, changes, author=USER, at=now, expected=expected)

        return await self._app.store.write(change)
