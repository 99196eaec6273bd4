"""Block changes of custom tools, stored as ordinary edits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from perdure.core.blocks import Author, MemoryEdit, rewrite
from perdure.core.errors import VersionConflict
from perdure.core.ids import AgentId
from perdure.core.tools.spec import BlockChange
from perdure.domain.blocks.units import edit_block, find_block
from perdure.storage.tx import Tx


def change_blocks(
    tx: Tx, agent_id: AgentId, changes: Sequence[BlockChange], *, author: Author, at: datetime
) -> tuple[MemoryEdit, ...]:
    """Store a tool's changes of blocks whose version is still the one that the tool read.

    Raises: VersionConflict, BlockNotFound, BlockReadOnly, BlockLimitExceeded. The caller's transaction then rolls all
        changes back.
    """
    edits: list[MemoryEdit] = []
    for change in changes:
        before = find_block(tx, agent_id, change.label)
        if before.version != change.version:
            raise VersionConflict(f"block {change.label!r}", expected=change.version, found=before.version)
        after = edit_block(tx, agent_id, change.label, partial(rewrite, value=change.value), author=author, at=at)
        edits.append(MemoryEdit.of(before, after))
    return tuple(edits)
