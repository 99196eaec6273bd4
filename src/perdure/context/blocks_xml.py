"""The memory section of the prompt: blocks as XML, with what the model must know to edit them."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.blocks import Block

__all__ = ["blocks_xml"]


def blocks_xml(blocks: Sequence[Block]) -> str:
    """The blocks in their order, each with description, `chars_current` and `chars_limit`; empty for no blocks."""
    if not blocks:
        return ""
    rendered = "\n\n".join(map(_block_xml, blocks))
    return f"<memory_blocks>\nThese blocks are your core memory, always in view:\n\n{rendered}\n</memory_blocks>"


def _block_xml(block: Block) -> str:
    metadata = [f"- chars_current={len(block.value)}", f"- chars_limit={block.limit_chars}"]
    if block.read_only:
        metadata.insert(0, "- read_only=true")
    description = _harmless(block.description or f"What belongs under {block.label}.")
    value = _harmless(block.value)
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


def _harmless(text: str) -> str:
    """The text without the section's own closing tags. Any other markup stays: a block may hold some, and the model has
    to be able to quote it exactly when it edits."""
    for tag in ("value", "description", "memory_blocks"):
        text = text.replace(f"</{tag}>", f"<\\/{tag}>")
    return text
