"""What a custom tool made of the agent's blocks, as ordinary edits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from perdure.core.blocks import rewritten
from perdure.core.errors import VersionConflict
from perdure.core.tools import BlockChange
from perdure.core.tx import Tx
from perdure.memory.blocks import find_block
from perdure.memory.calls import MemoryCall, MemoryEdit, edited

__all__ = ["change_blocks"]


def change_blocks(tx: Tx, call: MemoryCall, changes: Sequence[BlockChange]) -> tuple[MemoryEdit, ...]:
    """The edits, by the agent, of blocks that are still as the tool was given them.

    Raises: VersionConflict, BlockNotFound, BlockReadOnly, BlockLimitExceeded: none of them then holds, because the
        caller's transaction ends.
    """
    edits: list[MemoryEdit] = []
    for change in changes:
        before = find_block(tx, call.agent.id, change.label)
        if before.version != change.version:
            raise VersionConflict(f"block {change.label!r}", expected=change.version, found=before.version)
        edits.append(edited(tx, call, change.label, partial(rewritten, value=change.value)))
    return tuple(edits)
