"""The memory section of the prompt: blocks as XML, with what the model must know to edit them."""

from __future__ import annotations

from collections.abc import Sequence, Set

from perdure.core.blocks import Block
from perdure.core.text.markup import escape_tags


def blocks_xml(blocks: Sequence[Block]) -> str:
    """The blocks in their order, each with description, `chars_current` and `chars_limit`; empty for no blocks."""
    if not blocks:
        return ""
    labels = frozenset(block.label for block in blocks)
    rendered = "\n\n".join(_block_xml(block, labels) for block in blocks)
    return f"<memory_blocks>\nThese blocks are your core memory, always in view:\n\n{rendered}\n</memory_blocks>"


def blocks_in_words(blocks: Sequence[Block]) -> str:
    """The blocks that hold something, each as its label and its text; empty for none."""
    # Indented, so that no value can begin another note.
    values = ((block.label, block.value.strip().replace("\n", "\n  ")) for block in blocks)
    notes = "\n".join(f"{label}: {value}" for label, value in values if value)
    return f"Your notes:\n{notes}" if notes else ""


def _block_xml(block: Block, labels: Set[str]) -> str:
    """Render one block; `labels` are those of all blocks, whose tags no text may hold."""
    metadata = [f"- chars_current={len(block.value)}", f"- chars_limit={block.limit_chars}"]
    if block.read_only:
        metadata.insert(0, "- read_only=true")
    description = escape_tags(block.description or f"What belongs under {block.label}.", labels)
    value = escape_tags(block.value, labels)
    return "\n".join(
        (
            f"<{block.label}>",
            "<description>",
            description,
            "</description>",
            "<metadata>",
            *metadata,
            "</metadata>",
            "<value>",
            value,
            "</value>",
            f"</{block.label}>",
        )
    )
