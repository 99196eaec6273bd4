"""The service of memory blocks: of the store by id, and of an agent by label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from perdure.app import App
from perdure.core.blocks import Author, Block, BlockFilter, BlockVersion, append_text
from perdure.core.errors import NotFound
from perdure.core.groups.group import reason_in
from perdure.core.ids import AgentId, BlockId, ConversationId, RunId
from perdure.core.text.line_diff import unified_diff
from perdure.domain.blocks.units import NewBlock, create_block, edit_block, find_block, restore_block, update_block
from perdure.domain.companions.units import follow_blocks
from perdure.engine.conversations.reset import delete
from perdure.engine.run.system_messages import renew_system_message
from perdure.library.checks import Page, check_limit, check_number, check_page, check_text, outside
from perdure.library.services.conversations import find_conversation
from perdure.storage.tx import Tx

T = TypeVar("T")

Changes = Mapping[str, Any] | Callable[[Block], Mapping[str, Any]]
"""New values of some fields, or a function that builds them from the current block."""


class BlockService:
    """The operations on blocks. `author` is who changes one, for its history."""

    def __init__(self, app: App) -> None:
        self._ports = app.ports

    async def create(self, new: NewBlock, *, agent_id: AgentId | None = None, author: Author | None = None) -> Block:
        """A new block, attached to `agent_id` if there is one. Raises: as `create_block`."""
        block_id = BlockId(self._ports.ids.new("block"))
        if agent_id is None:
            return await self._ports.store.write(
                create_block, block_id, new, author=author or outside(), at=self._ports.clock.now()
            )

        def create(tx: Tx, at: datetime) -> Block:
            return create_block(tx, block_id, new, author=author or outside(), at=at, agent_id=agent_id)

        return await self._write(agent_id, create)

    async def get(self, block_id: BlockId) -> Block:
        """The block of this id. Raises: NotFound."""
        check_text("block_id", block_id)
        return await self._ports.store.read(lambda tx: tx.blocks.get(block_id))

    async def list(self, where: BlockFilter, page: Page) -> Sequence[Block]:
        """A page of blocks. Raises: InvalidInput; NotFound: the page begins at no block; the filter's agent."""
        check_page(page, label=where.label)
        return await self._ports.store.read(lambda tx: tx.blocks.page(where=where, **page.arguments))

    async def count(self, where: BlockFilter) -> int:
        """How many blocks the filter lets through."""
        return await self._ports.store.read(lambda tx: tx.blocks.count(where))

    async def update(
        self, block_id: BlockId, changes: Changes, *, expected: int | None = None, author: Author | None = None
    ) -> Block:
        """Change fields of a block for all agents and return it; `expected` is the version that the caller has seen."""
        check_text("block_id", block_id)
        check_number("expected", expected)
        now = self._ports.clock.now()
        return await self._ports.store.write(
            lambda tx: _update(
                tx, tx.blocks.get(block_id), changes, expected=expected, author=author or outside(), at=now
            )
        )

    async def delete(self, block_id: BlockId) -> None:
        """Remove the block with its history from every agent. Raises: NotFound."""
        check_text("block_id", block_id)
        await delete(self._ports, lambda tx: tx.blocks.delete(block_id))

    async def list_of_agent(self, agent_id: AgentId) -> Sequence[Block]:
        """The agent's blocks, in the order in which they were attached. Raises: NotFound."""

        def select(tx: Tx) -> Sequence[Block]:
            tx.agents.model(agent_id)
            return tx.blocks.list_by_agent(agent_id)

        return await self._ports.store.read(select)

    async def list_isolated(self, agent_id: AgentId, conversation: ConversationId) -> Sequence[Block]:
        """The blocks that a conversation of the agent has for itself, in the order of the agent's. Raises: NotFound."""

        def read(tx: Tx) -> Sequence[Block]:
            found = find_conversation(tx, agent_id, conversation)
            isolated = tx.blocks.list_isolated(agent_id, found.seq).values()
            return [tx.blocks.get(block_id) for block_id in isolated if block_id is not None]

        return await self._ports.store.read(read)

    async def get_of_agent(self, agent_id: AgentId, label: str) -> Block:
        """The agent's block of this label. Raises: NotFound, BlockNotFound."""
        check_text("label", label)
        return await self._ports.store.read(_find_block, agent_id, label)

    async def update_of_agent(
        self,
        agent_id: AgentId,
        label: str,
        changes: Changes,
        *,
        expected: int | None = None,
        author: Author | None = None,
    ) -> Block:
        """Change fields of the agent's block of this label and return it. Raises: BlockNotFound; as `update`."""
        check_text("label", label)
        check_number("expected", expected)

        def update(tx: Tx, at: datetime) -> Block:
            return _update(
                tx, _find_block(tx, agent_id, label), changes, expected=expected, author=author or outside(), at=at
            )

        return await self._write(agent_id, update)

    async def append(self, agent_id: AgentId, label: str, text: str, *, author: Author | None = None) -> Block:
        """Add a line to the agent's block and return it. Raises: BlockNotFound, BlockReadOnly, BlockLimitExceeded."""
        check_text("label", label)
        check_text("text", text)

        def append(tx: Tx, at: datetime) -> Block:
            return edit_block(
                tx, agent_id, label, lambda block: append_text(block, text), author=author or outside(), at=at
            )

        return await self._write(agent_id, append)

    async def list_versions(self, agent_id: AgentId, label: str, *, limit: int) -> Sequence[BlockVersion]:
        """The versions of the agent's block, newest first, with who wrote each and why. Raises: BlockNotFound,
        InvalidInput."""
        check_limit(limit)
        check_text("label", label)
        return await self._ports.store.read(
            lambda tx: _with_reasons(tx, tx.blocks.versions(_find_block(tx, agent_id, label).id, limit=limit))
        )

    async def compare(self, agent_id: AgentId, label: str, old: int, new: int) -> str:
        """The unified difference of two versions of the agent's block. Raises: BlockNotFound, NotFound."""
        check_number("version", old)
        check_number("version", new)

        def compare(tx: Tx) -> str:
            block_id = _find_block(tx, agent_id, label).id
            before, after = (tx.blocks.version(block_id, version).value for version in (old, new))
            return unified_diff(before, after)

        return await self._ports.store.read(compare)

    async def restore(self, agent_id: AgentId, label: str, version: int, *, author: Author | None = None) -> Block:
        """Write the value of an earlier version of the agent's block as a new version, and return the block."""
        check_text("label", label)
        check_number("version", version)

        def restore(tx: Tx, at: datetime) -> Block:
            return restore_block(tx, _find_block(tx, agent_id, label).id, version, author=author or outside(), at=at)

        return await self._write(agent_id, restore)

    async def attach(self, agent_id: AgentId, block_id: BlockId) -> None:
        """Give the agent a block, which it may share with others; twice is no error."""
        check_text("block_id", block_id)
        await self._write(agent_id, lambda tx, at: tx.blocks.attach(agent_id, block_id))

    async def detach(self, agent_id: AgentId, block_id: BlockId) -> None:
        """Take a block out of the agent's memory; the block itself stays. Raises: NotFound."""

        def detach(tx: Tx, at: datetime) -> None:
            tx.agents.model(agent_id)
            tx.blocks.detach(agent_id, block_id)

        await self._write(agent_id, detach)

    async def detach_label(self, agent_id: AgentId, label: str) -> None:
        """Take the block of this label out of the agent's memory. Raises: BlockNotFound."""
        check_text("label", label)
        await self._write(agent_id, lambda tx, at: tx.blocks.detach(agent_id, _find_block(tx, agent_id, label).id))

    async def _write(self, agent_id: AgentId, change: Callable[[Tx, datetime], T]) -> T:
        """Change the agent's memory, and what clients are shown of its prompt."""
        inputs = self._ports.inputs()

        def write(tx: Tx) -> T:
            result = change(tx, inputs.now)
            follow_blocks(tx, agent_id)
            renew_system_message(tx, agent_id, 0, inputs)
            return result

        return await self._ports.store.write(write)


def _with_reasons(tx: Tx, versions: Sequence[BlockVersion]) -> Sequence[BlockVersion]:
    """The versions with the names of agents and the reasons that they gave, as far as the log still has them."""
    names: dict[AgentId, str] = {}
    reasons: dict[RunId, str] = {}
    for author in {version.author for version in versions if version.author.agent_id is not None}:
        if author.agent_id is not None and author.agent_id not in names:
            with suppress(NotFound):
                names[author.agent_id] = tx.agents.get(author.agent_id).name
        if author.run_id is not None and author.run_id not in reasons:
            with suppress(NotFound):
                reasons[author.run_id] = reason_in(tx.messages.list_by_run(tx.runs.get(author.run_id), reset=True))
    refs = {version.block_id: [str(one.version) for one in versions] for version in versions[:1]}
    sources = {write.ref: write.sources for id_, some in refs.items() for write in tx.sources.list_by_refs(id_, some)}
    return [
        replace(
            version,
            author=replace(version.author, sources=sources.get(str(version.version), ())),
            agent_name=names.get(version.author.agent_id or AgentId(""), ""),
            reason=reasons.get(version.author.run_id or RunId(""), ""),
        )
        for version in versions
    ]


def _update(tx: Tx, block: Block, changes: Changes, *, expected: int | None, author: Author, at: datetime) -> Block:
    """Change a block. Raises: as `update_block`."""
    fields = changes(block) if callable(changes) else changes
    return update_block(tx, block.id, fields, author=author or outside(), at=at, expected=expected)


def _find_block(tx: Tx, agent_id: AgentId, label: str) -> Block:
    """The agent's block of this label. Raises: NotFound: there is no such agent; BlockNotFound."""
    tx.agents.model(agent_id)
    return find_block(tx, agent_id, label)
