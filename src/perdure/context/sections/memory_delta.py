"""Delta messages about memory edits from outside.

An agent's own edit needs none: its tool's result shows the new value. An edit by anybody else (a person, another agent
that shares the block) becomes a message in each conversation's log before its next model call. So no byte of the
request that was already sent changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.context.sections.envelopes import envelope
from perdure.core.blocks import Block


def versions_of(blocks: Sequence[Block]) -> dict[str, int]:
    """Return block id -> version, for the blocks of an agent."""
    return {block.id: block.version for block in blocks}


def memory_deltas(
    seen: Mapping[str, int],
    blocks: Sequence[Block],
    *,
    labels: Mapping[str, str] | None = None,
    folded: bool = False,
) -> tuple[str, ...]:
    """Build the delta messages between the versions `seen` by a log and these blocks.

    One for each new or changed block, in order, with its description and whole new value; then one for each detached
    block. Empty when nothing changed.

    Args:
        labels: block id -> label that the log has seen, for renamed and detached blocks.
        folded: the memory section shows the new values already, so the message only refers to it.
    """
    now = versions_of(blocks)
    if now == seen:
        return ()
    labels = labels or {}
    changed = [
        envelope(
            "memory_delta",
            label=block.label,
            op="edited" if block.id in seen else "attached",
            renamed_from=labels.get(block.id) if labels.get(block.id, block.label) != block.label else None,
            description=block.description or None,
            version=block.version,
            chars_limit=block.limit_chars,
            read_only=block.read_only or None,
            value=None if folded else block.value,
            value_in="memory_blocks" if folded else None,
        )
        for block in blocks
        if seen.get(block.id) != block.version
    ]
    detached = [
        envelope("memory_delta", label=labels.get(block_id), op="detached", block=block_id)
        for block_id in seen
        if block_id not in now
    ]
    return (*changed, *detached)
