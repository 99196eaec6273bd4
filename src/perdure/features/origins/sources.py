"""Sources: what an agent's memory came from, and taking writes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perdure.core.blocks import Author
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ArchiveId, BlockId, PassageId, RunId, is_id
from perdure.core.sources import MemoryWrite, WriteKind, parse_source
from perdure.core.text.line_diff import diff_lines
from perdure.core.text.reprs import attributes
from perdure.domain.texts import keeper_of
from perdure.features.origins.revert import revert
from perdure.features.origins.tables import Journal
from perdure.features.origins.values import RevertResult, SourceSummary, WriteText
from perdure.library.parts.checks import check_limit, check_text, outside
from perdure.library.parts.part import AsyncPart, reads
from perdure.storage.tx import Tx

WRITES_MAX = 10_001
WRITE_IDS_MAX = 1_000
TEXT_CHARS = 4_000
"""Characters that are shown of what one write says."""


class AsyncSources(AsyncPart):
    """What the agent's memory came from; take back what came from one source.

    These are web pages, files, MCP servers, tools, other agents, imports, and the agent. A source is named by its label
    and name, such as `web:https://example.com/page`; a run, by its id, stands for all that was written in it.
    """

    @reads
    def list(self, tx: Tx, *, limit: int = 100) -> Sequence[SourceSummary]:
        """The sources, the one with the newest write first. Raises: NotFound, InvalidInput."""
        check_limit(limit)
        tx.agents.model(self._id)
        found = tx.of(Journal).summarise(self._id, limit=limit)
        agents = tx.agents.list_by_ids(
            [AgentId(summary.source.name) for summary in found if summary.source.label in ("agent", "other_agent")]
        )
        names = {str(id_): agent.name for id_, agent in agents.items()}
        return [replace(summary, title=names.get(summary.source.name, "")) for summary in found]

    @reads
    def show(self, tx: Tx, source: str, *, limit: int = 100) -> Sequence[WriteText]:
        """The writes that came from a source or run, the newest first. Raises: NotFound, InvalidInput."""
        check_limit(limit)
        check_text("source", source)
        return [_write_text(tx, write) for write in _select_writes(tx, self._id, source, limit=limit)]

    async def revert(self, source: str, *, dry_run: bool = False, author: Author | None = None) -> RevertResult:
        """Take back all writes that came from a source or run; `agent.undo(result.correction)` brings them back.

        Args:
            dry_run: only say what that would do.
        Raises: NotFound, ConversationBusy, InvalidInput.
        """
        check_text("source", source)
        writes = await self._ports.store.read(lambda tx: _select_writes(tx, self._id, source, limit=WRITES_MAX))
        return await self._revert(writes, f"all from {source}", dry_run=dry_run, author=author)

    async def revert_writes(
        self, write_ids: Sequence[str], *, dry_run: bool = False, author: Author | None = None
    ) -> RevertResult:
        """Take back these writes: versions of blocks as `block-…@3`, passages and episodes by their ids.

        Args:
            dry_run: only say what that would do.
        Raises: NotFound, ConversationBusy, InvalidInput.
        """
        if not 1 <= len(write_ids) <= WRITE_IDS_MAX:
            raise InvalidInput(f"write_ids has {len(write_ids):,} ids: give 1 to {WRITE_IDS_MAX:,}")
        for write_id in write_ids:
            check_text("write_id", write_id)
        ids = list(dict.fromkeys(write_ids))
        writes = await self._ports.store.read(lambda tx: [_find_write(tx, self._id, id_) for id_ in ids])
        title = f"write {ids[0]}" if len(ids) == 1 else f"{len(ids)} writes"
        return await self._revert(writes, title, dry_run=dry_run, author=author)

    async def _revert(
        self, writes: Sequence[MemoryWrite], title: str, *, dry_run: bool, author: Author | None
    ) -> RevertResult:
        """Undo writes, and have the changed memory read again."""
        result = await revert(self._ports, self._id, writes, title=title, author=author or outside(), dry_run=dry_run)
        if not dry_run:
            self._ports.unread.note((self._id, 0))
        return result


def _select_writes(tx: Tx, agent_id: AgentId, source: str, *, limit: int) -> Sequence[MemoryWrite]:
    """The writes of an agent's memory from a source, or in the run of this id. Raises: NotFound, InvalidInput."""
    tx.agents.model(agent_id)
    name = source.removeprefix("run:")
    if is_id("run", name):
        return tx.of(Journal).list_writes(agent_id, run_id=RunId(name), limit=limit)
    return tx.of(Journal).list_writes(agent_id, parse_source(source), limit=limit)


def _find_write(tx: Tx, agent_id: AgentId, write_id: str) -> MemoryWrite:
    """The write with this id, also without stored sources. Raises: NotFound, InvalidInput."""
    tx.agents.model(agent_id)
    kind: WriteKind = "fact"
    ref, by = write_id, dict[str, Any]()
    block_id, _, version = write_id.partition("@")
    if is_id("block", block_id):
        if not (version.isascii() and version.isdigit() and len(version) < 10):
            raise InvalidInput(f"write {write_id!r:.120} names no version: write it as {block_id}@3")
        stored = tx.blocks.version(BlockId(block_id), int(version))
        kind, owner_id, ref, at = "block", block_id, str(stored.version), stored.created_at
        by = attributes(stored.author, "agent_id", "run_id", "message_id")
    elif is_id("passage", write_id):
        passage = tx.passages.get(PassageId(write_id))
        kind, owner_id, at = "passage", passage.archive_id, passage.created_at
    elif is_id("episode", write_id):
        owner_id, at = keeper_of("fact").find_write(tx, write_id)
    else:
        raise InvalidInput(
            f"write is {write_id!r:.120}: give the id of a passage or episode, or a version of a block as block-…@3"
        )
    if owner_id not in {id_ for _, id_ in tx.owners.list(agent_id)}:
        raise NotFound("write", write_id, hint="it is not a memory of this agent")
    new = MemoryWrite(kind=kind, owner_id=owner_id, ref=ref, sources=(), created_at=at, **by)
    return next(iter(tx.sources.list_by_refs(owner_id, [ref])), new)


def _write_text(tx: Tx, write: MemoryWrite) -> WriteText:
    """A write with its name and text for people, and whether any of it is still there."""
    match write.kind:
        case "block":
            block = tx.blocks.get(BlockId(write.owner_id))
            diff = tx.blocks.version(block.id, int(write.ref)).diff
            lines = set(block.value.split("\n"))
            stands = any(mark == "+" and text in lines for mark, text in diff_lines(diff))
            name, text = block.label, diff
        case "passage":
            name = tx.archives.get(ArchiveId(write.owner_id)).name
            places = tx.passages.find_places([PassageId(write.ref)])
            text, stands = (tx.passages.get(PassageId(write.ref)).text if places else ""), bool(places)
        case "fact":
            name, text, stands = keeper_of("fact").read_write(tx, write)
    text = text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]}…"
    return WriteText(write=write, name=name, text=text, stands=stands and write.reverted_by is None)
