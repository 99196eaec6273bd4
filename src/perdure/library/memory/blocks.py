"""The blocks of the store, by id, and those of one agent, by label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict, TypeVar, Unpack

from perdure.core.blocks import Author, Block, BlockFilter, BlockVersion, append_text
from perdure.core.blocks import check_limit as check_block_limit
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.features import Point
from perdure.core.ids import AgentId, BlockId, RunId
from perdure.core.messages import Message
from perdure.core.text.line_diff import unified_diff
from perdure.core.tools.arguments import read_json
from perdure.core.tools.engine_specs import FINISH_TOOLS
from perdure.domain.blocks.units import (
    BLOCKS_CHANGED,
    NewBlock,
    create_block,
    edit_block,
    find_block,
    restore_block,
    update_block,
)
from perdure.domain.corrections import put_block_value, record, tell_agents
from perdure.engine.conversations.reset import delete
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.library.parts.checks import Page, check_limit, check_number, check_page, check_text, outside
from perdure.library.parts.part import AsyncPart, reads, writes
from perdure.storage.tx import Tx

T = TypeVar("T")

VERSION_REASONS: Point[[Tx, BlockId, Sequence[int]], Mapping[int, str]] = Point("version_reasons")
"""Version of a block -> why a person wrote it, where a feature knows."""

Changes = Mapping[str, Any] | Callable[[Block], Mapping[str, Any]]
"""New values of some fields, or a function that builds them from the current block."""


class BlockFields(TypedDict, total=False):
    """What a new block may have beside label and value."""

    limit_chars: int
    description: str | None
    read_only: bool


class AsyncBlocks(AsyncPart):
    """All blocks of the store, by id, for shared ones. `author`: who changes one, for its history."""

    async def create(
        self,
        label: str,
        value: str = "",
        *,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        is_template: bool = False,
        **fields: Unpack[BlockFields],
    ) -> Block:
        """A new block that no agent has yet, with `BlockFields`. Raises: InvalidInput, BlockLimitExceeded."""
        own: dict[str, Any] = {"metadata": metadata or {}, "tags": tags, "is_template": is_template}
        return await self.add(NewBlock(label=label, value=value, **fields, **own))

    async def add(self, new: NewBlock, *, author: Author | None = None) -> Block:
        """A new block that no agent has yet. Raises: as `create`."""
        block_id = BlockId(self._ports.ids.new("block"))
        return await self._ports.store.write(
            create_block, block_id, new, author=author or outside(), at=self._ports.clock.now()
        )

    async def get(self, block_id: BlockId) -> Block:
        """The block of this id. Raises: NotFound."""
        check_text("block_id", block_id)
        return await self._ports.store.read(lambda tx: tx.blocks.get(block_id))

    async def list(self, *, label: str | None = None, limit: int = 50, after: BlockId | None = None) -> Sequence[Block]:
        """A page of the blocks, oldest first; `after` is the last one of the page before.

        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no block `after`.
        """
        return await self.page(BlockFilter(label=label), Page(limit, ascending=True, after=after))

    async def page(self, where: BlockFilter, page: Page) -> Sequence[Block]:
        """A page of blocks. Raises: InvalidInput; NotFound: the page begins at no block; the filter's agent."""
        check_page(page, label=where.label)
        return await self._ports.store.read(lambda tx: tx.blocks.page(where=where, **page.arguments))

    async def count(self, where: BlockFilter) -> int:
        """How many blocks the filter lets through."""
        return await self._ports.store.read(lambda tx: tx.blocks.count(where))

    async def update(self, block_id: BlockId, *, expected: int | None = None, **changes: Any) -> Block:
        """Change fields of a block of which the caller has seen the version `expected`, and return it. Raises:
        NotFound, VersionConflict, BlockLimitExceeded, InvalidInput."""
        return await self.edit(block_id, changes, expected=expected)

    @writes
    def edit(
        self, tx: Tx, block_id: BlockId, changes: Changes, *, expected: int | None = None, author: Author | None = None
    ) -> Block:
        """Change fields of a block for all agents; return it. `expected`: the version seen. Raises: as `update`."""
        check_text("block_id", block_id)
        check_number("expected", expected)
        by, now = author or outside(), self._ports.clock.now()
        block = _update(tx, tx.blocks.get(block_id), changes, expected=expected, author=by, at=now)
        tell_agents(tx, "blocks", block_id)
        return block

    @reads
    def history(self, tx: Tx, block_id: BlockId, *, limit: int = 100) -> Sequence[BlockVersion]:
        """As `agent.blocks.history`, of any block by its id. Raises: NotFound, InvalidInput."""
        check_limit(limit)
        return with_reasons(tx, tx.blocks.versions(tx.blocks.get(block_id).id, limit=limit))

    async def delete(self, block_id: BlockId) -> None:
        """Remove the block with its history from every agent, however many there are. Raises: NotFound."""
        check_text("block_id", block_id)

        def unit(tx: Tx) -> None:
            """Delete the block, and note that its agents' memory changed."""
            tell_agents(tx, "blocks", block_id)
            tx.blocks.delete(block_id)

        await delete(self._ports, unit)


class AsyncAgentBlocks(AsyncPart):
    """The blocks of one agent, by label. Every method raises NotFound when the agent is gone."""

    @reads
    def list(self, tx: Tx) -> Sequence[Block]:
        """The blocks, in the order in which they were attached."""
        tx.agents.model(self._id)
        return tx.blocks.list_by_agent(self._id)

    async def get(self, label: str) -> Block:
        """The block of this label. Raises: BlockNotFound."""
        return await self._ports.store.read(_find_block, self._id, label)

    async def create(self, label: str, value: str = "", **fields: Unpack[BlockFields]) -> Block:
        """A new block of this agent, with `BlockFields`. Raises: InvalidInput, BlockLimitExceeded, AlreadyExists."""
        return await self.add(NewBlock(label=label, value=value, **fields))

    async def add(self, new: NewBlock, *, author: Author | None = None) -> Block:
        """A new block of this agent. Raises: as `create`."""
        block_id, by = BlockId(self._ports.ids.new("block")), author or outside()
        return await self._write(lambda tx, at: create_block(tx, block_id, new, author=by, at=at, agent_id=self._id))

    async def update(self, label: str, value: str, *, expected: int | None = None) -> Block:
        """Change the value of a block, and return the block.

        Args:
            expected: the version the caller has seen; if the block has changed since, nothing is written.
        Raises: BlockNotFound, VersionConflict, BlockLimitExceeded.
        """
        return await self.edit(label, {"value": value}, expected=expected)

    async def change(self, label: str, /, *, expected: int | None = None, **changes: Any) -> Block:
        """Change `limit_chars`, `description`, `read_only`, `label`, `metadata` or `tags` of a block, and return it.

        Raises: BlockNotFound, VersionConflict, BlockLimitExceeded, AlreadyExists; InvalidInput: there is no such field,
            or it can't have this value.
        """
        return await self.edit(label, changes, expected=expected)

    async def edit(
        self, label: str, changes: Changes, *, expected: int | None = None, author: Author | None = None
    ) -> Block:
        """Change fields of a block, and return it; `expected`: the version seen. Raises: as `change`."""
        check_number("expected", expected)
        by = author or outside()
        return await self._write(
            lambda tx, at: _update(tx, _find_block(tx, self._id, label), changes, expected=expected, author=by, at=at)
        )

    async def append(self, label: str, text: str, *, author: Author | None = None) -> Block:
        """Add a last line to a block, and return it. Raises: BlockNotFound, BlockReadOnly, BlockLimitExceeded."""
        check_text("label", label)
        check_text("text", text)
        by = author or outside()
        return await self._write(
            lambda tx, at: edit_block(tx, self._id, label, lambda block: append_text(block, text), author=by, at=at)
        )

    @writes
    def replace_line(
        self, tx: Tx, label: str, line: int | str, text: str | None, *, author: Author | None = None
    ) -> Block:
        """Replace a line of a block, or with None remove it; return the block; `undo` takes it back.

        Args:
            line: its number from 1, or what it says.
        Raises: BlockNotFound, BlockLimitExceeded; InvalidInput: there is no such line, or several.
        """
        check_text("label", label)
        if text is not None:
            check_text("text", text)
        inputs = self._ports.inputs()
        tx.agents.lock(self._id)
        block = find_block(tx, self._id, label)
        lines = block.value.split("\n")
        place = _find_line(block, lines, line)
        value = "\n".join([*lines[:place], *([] if text is None else [text]), *lines[place + 1 :]])
        check_block_limit(replace(block, value=value))
        item = put_block_value(tx, block.id, value, author=author or outside(), at=inputs.now)
        what = f"line {place + 1} of block {block.label}: {lines[place]}"
        record(tx, self._id, "block", what, [item], at=inputs.now)
        renew_system_message(tx, self._id, 0, inputs)
        return tx.blocks.get(block.id)

    async def delete_line(self, label: str, line: int | str) -> Block:
        """Remove a line of a block, by its number from 1 or what it says, and return the block; `undo` takes it back.
        Raises: BlockNotFound; InvalidInput: there is no such line."""
        return await self.replace_line(label, line, None)

    @reads
    def history(self, tx: Tx, label: str, *, limit: int = 100) -> Sequence[BlockVersion]:
        """Every version: value, diff, author, run and message; of agents also `agent_name`, and the `reason` that they
        gave for their edits. Newest first. Raises: BlockNotFound, InvalidInput."""
        check_limit(limit)
        return with_reasons(tx, tx.blocks.versions(_find_block(tx, self._id, label).id, limit=limit))

    @reads
    def compare(self, tx: Tx, label: str, old: int, new: int) -> str:
        """The unified difference of two versions. Raises: BlockNotFound, NotFound."""
        check_number("version", old)
        check_number("version", new)
        block_id = _find_block(tx, self._id, label).id
        before, after = (tx.blocks.version(block_id, version).value for version in (old, new))
        return unified_diff(before, after)

    async def restore(self, label: str, version: int, *, author: Author | None = None) -> Block:
        """Restore an earlier value as a new version. Raises: BlockNotFound, NotFound, BlockLimitExceeded."""
        check_number("version", version)
        by = author or outside()
        return await self._write(
            lambda tx, at: restore_block(tx, _find_block(tx, self._id, label).id, version, author=by, at=at)
        )

    async def attach(self, block_id: BlockId) -> None:
        """Share an existing block; twice is no error. Raises: NotFound, AlreadyExists."""
        check_text("block_id", block_id)
        await self._write(lambda tx, at: tx.blocks.attach(self._id, block_id))

    async def detach(self, label: str) -> None:
        """Take a block out of this agent's memory; the block itself stays. Raises: BlockNotFound."""
        await self._write(lambda tx, at: tx.blocks.detach(self._id, _find_block(tx, self._id, label).id))

    async def detach_block(self, block_id: BlockId) -> None:
        """Take the block of this id out of the agent's memory. Raises: NotFound."""

        def detach(tx: Tx, at: datetime) -> None:
            tx.agents.model(self._id)
            tx.blocks.detach(self._id, block_id)

        await self._write(detach)

    @writes
    def _write(self, tx: Tx, change: Callable[[Tx, datetime], T]) -> T:
        """What `change` returns; it changes the agent's memory at a time. The prompt that clients are shown follows."""
        inputs = self._ports.inputs()
        result = change(tx, inputs.now)
        BLOCKS_CHANGED(tx, self._id)
        renew_system_message(tx, self._id, 0, inputs)
        return result


def reason_in(messages: Sequence[Message]) -> str:
    """Return the reason that an agent gave for the edits of a run, with the call that ends them; else an empty text."""
    for message in reversed(messages):
        for call in reversed(message.calls):
            if call.name in FINISH_TOOLS:
                with suppress(ValueError):
                    arguments = read_json(call.own_arguments)
                    if isinstance(arguments, dict) and isinstance(reason := arguments.get("reason"), str):
                        return reason.strip()
                return ""
    return ""


def with_reasons(tx: Tx, versions: Sequence[BlockVersion]) -> Sequence[BlockVersion]:
    """These versions of one block, with names of agents, the reasons that they gave, and sources, as far as known."""
    names: dict[AgentId, str] = {}
    reasons: dict[RunId, str] = {}
    for author in {version.author for version in versions if version.author.agent_id is not None}:
        if author.agent_id is not None and author.agent_id not in names:
            with suppress(NotFound):
                names[author.agent_id] = tx.agents.get(author.agent_id).name
        if author.run_id is not None and author.run_id not in reasons:
            with suppress(NotFound):
                reasons[author.run_id] = reason_in(tx.messages.list_by_run(tx.runs.get(author.run_id), reset=True))
    refs = [str(version.version) for version in versions]
    writes = tx.sources.list_by_refs(versions[0].block_id, refs) if versions else ()
    sources = {write.ref: write.sources for write in writes}
    numbers = [version.version for version in versions]
    known = VERSION_REASONS(tx, versions[0].block_id, numbers) if versions else ()
    given = {number: why for reasons_of in known for number, why in reasons_of.items()}
    return [
        replace(
            version,
            author=replace(version.author, sources=sources.get(str(version.version), ())),
            agent_name=names.get(version.author.agent_id or AgentId(""), ""),
            reason=given.get(version.version) or reasons.get(version.author.run_id or RunId(""), ""),
        )
        for version in versions
    ]


def _update(tx: Tx, block: Block, changes: Changes, *, expected: int | None, author: Author, at: datetime) -> Block:
    """Change fields of a block: new values, or a function that makes them of it. Raises: as `update_block`."""
    fields = changes(block) if callable(changes) else changes
    return update_block(tx, block.id, fields, author=author, at=at, expected=expected)


def _find_block(tx: Tx, agent_id: AgentId, label: str) -> Block:
    """The agent's block of this label. Raises: NotFound: there is no such agent; BlockNotFound."""
    check_text("label", label)
    tx.agents.model(agent_id)
    return find_block(tx, agent_id, label)


def _find_line(block: Block, lines: Sequence[str], line: int | str) -> int:
    """Return the index of a block's line, given by its number from 1 or its text. Raises: InvalidInput."""
    if isinstance(line, str):
        places = [place for place, one in enumerate(lines) if one.strip() == line.strip()]
        if len(places) != 1:
            raise InvalidInput(
                f"block {block.label!r} has {len(places) or 'no'} such line{'s' if places else ''} {line!r:.120}:"
                f" give the number of one, from 1 to {len(lines)}"
            )
        return places[0]
    if type(line) is not int or not 1 <= line <= len(lines):
        raise InvalidInput(f"line is {line!r:.80}: block {block.label!r} has the lines 1 to {len(lines)}")
    return line - 1
