"""Memory edits from outside, told to the model as they are first seen.

An agent's own edit needs no delta: its tool's result shows the new value. An edit by anybody else (a person, another
agent that shares the block) becomes one small message in each conversation's log, before that conversation's next model
call, and changes no byte that was already sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.context.sections.envelopes import envelope
from perdure.core.blocks import Block

__all__ = ["memory_deltas", "versions_of"]


def versions_of(blocks: Sequence[Block]) -> dict[str, int]:
    """Block id -> version, for the blocks of an agent."""
    return {block.id: block.version for block in blocks}


def memory_deltas(
    seen: Mapping[str, int],
    blocks: Sequence[Block],
    *,
    labels: Mapping[str, str] | None = None,
    folded: bool = False,
) -> tuple[str, ...]:
    """The texts of the delta messages that bring a log from the versions it has `seen` to these blocks.

    One for each block that is new or changed, in the order of the blocks, with its description and whole new value;
    then one for each block that is gone. Empty when nothing changed.

    Args:
        labels: the labels under which the log has seen changed and gone blocks, as far as they are known: a renamed
            block is told with its old label too, a gone one by its label.
        folded: the memory section shows the new values already, so it is only said that they count now.
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
    gone = [
        envelope("memory_delta", label=labels.get(block_id), op="detached", block=block_id)
        for block_id in seen
        if block_id not in now
    ]
    return (*changed, *gone)
