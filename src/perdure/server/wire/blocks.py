"""Blocks as the wire shows and takes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from perdure.core.blocks import Author, Block
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, BlockId
from perdure.core.ports import Ids
from perdure.core.tx import Tx
from perdure.domain.blocks.units import LIMIT_CHARS_MAX, create_block, update_block
from perdure.server.limits import Tags
from perdure.server.wire.base import WIRE_AUTHOR, WireRequest
from perdure.server.wire.values import JsonObject, Label

__all__ = [
    "LIMIT_CHARS",
    "BlockChanges",
    "NewWireBlock",
    "add_block",
    "block_of_label",
    "block_shape",
    "change_block",
    "memory_shape",
]

LIMIT_CHARS = 100_000
"""The limit of a block that a client makes without one."""

# What the wire gives a block beyond ours stands in its metadata under this name, which no reply shows.
_KEPT = "perdure:wire"
_KEPT_FIELDS = (
    "project_id",
    "template_name",
    "template_id",
    "base_template_id",
    "deployment_id",
    "entity_id",
    "preserve_on_migration",
)

_Limit = Annotated[int | None, Field(ge=1, le=LIMIT_CHARS_MAX)]


class BlockChanges(WireRequest):
    """What may be changed of a block. What is missing or null stays as it is."""

    value: str | None = None
    label: Label | None = None
    limit: _Limit = None
    description: str | None = None
    read_only: bool | None = None
    metadata: JsonObject | None = None
    tags: Tags | None = None
    is_template: bool | None = None
    hidden: bool | None = None
    project_id: str | None = None
    template_name: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    preserve_on_migration: bool | None = None


class NewWireBlock(BlockChanges):
    """A block to be made, by itself or with an agent."""

    label: Label
    value: str


def block_shape(block: Block) -> dict[str, Any]:
    """The block with all fields of the wire; `limit` in characters."""
    kept = block.metadata.get(_KEPT, {})
    return {
        "value": block.value,
        "limit": block.limit_chars,
        "project_id": kept.get("project_id"),
        "template_name": kept.get("template_name"),
        "is_template": block.is_template,
        "template_id": kept.get("template_id"),
        "base_template_id": kept.get("base_template_id"),
        "deployment_id": kept.get("deployment_id"),
        "entity_id": kept.get("entity_id"),
        "preserve_on_migration": kept.get("preserve_on_migration", False),
        "label": block.label,
        "read_only": block.read_only,
        "description": block.description,
        "metadata": {name: value for name, value in block.metadata.items() if name != _KEPT},
        "hidden": block.hidden or None,
        "id": block.id,
        "created_by_id": block.created_by,
        "last_updated_by_id": block.updated_by,
        "tags": list(block.tags),
    }


def memory_shape(agent_type: str, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """The memory of an agent, the older way to show its blocks."""
    return {
        "agent_type": agent_type,
        "git_enabled": False,
        "blocks": blocks,
        "file_blocks": [],
        "prompt_template": "",
    }


def add_block(
    tx: Tx, new: NewWireBlock, *, ids: Ids, at: datetime, agent_id: AgentId | None = None, author: Author = WIRE_AUTHOR
) -> Block:
    """A new block, attached to `agent_id` if there is one. A value over the limit raises the limit.

    Raises: InvalidInput, AlreadyExists, NotFound.
    """
    fields = _fields(new)
    limit = max(fields.pop("limit_chars", LIMIT_CHARS), len(new.value), 1)
    hidden = fields.pop("hidden", False)
    metadata = _with_kept(fields.pop("metadata", {}), {}, new)
    block = create_block(
        tx,
        BlockId(ids.new("block")),
        **fields,
        author=author,
        at=at,
        limit_chars=limit,
        metadata=metadata,
        agent_id=agent_id,
    )
    return update_block(tx, block.id, {"hidden": True}, author=author, at=at) if hidden else block


def change_block(
    tx: Tx, block_id: BlockId, changes: BlockChanges, *, at: datetime, author: Author = WIRE_AUTHOR
) -> Block:
    """The block as changed. The wire enforces no limit: a value that is longer raises it.

    Raises: NotFound, InvalidInput, AlreadyExists.
    """
    before = tx.blocks.get(block_id)
    fields = _fields(changes)
    length = len(fields.get("value", before.value))
    if length > fields.get("limit_chars", before.limit_chars):
        fields["limit_chars"] = length
    metadata = _with_kept(fields.get("metadata", before.metadata), before.metadata, changes)
    if metadata != before.metadata:
        fields["metadata"] = metadata
    return update_block(tx, block_id, fields, author=author, at=at)


def block_of_label(tx: Tx, agent_id: AgentId, label: str) -> Block:
    """The agent's block of this label. Raises: NotFound: no such agent, no such block."""
    tx.agents.model(agent_id)
    block = tx.blocks.find(agent_id, label)
    if block is None:
        known = ", ".join(repr(known.label) for known in tx.blocks.of_agent(agent_id))
        raise NotFound("block with label", label, hint=f"the agent has {known or 'none'}")
    return block


def _fields(changes: BlockChanges) -> dict[str, Any]:
    """What was given, under the names of our own blocks."""
    given = {name: value for name, value in changes if value is not None and name not in _KEPT_FIELDS}
    if "limit" in given:
        given["limit_chars"] = given.pop("limit")
    return given


def _with_kept(metadata: Mapping[str, Any], before: Mapping[str, Any], changes: BlockChanges) -> dict[str, Any]:
    given = {name: value for name, value in changes if value is not None and name in _KEPT_FIELDS}
    kept = {**before.get(_KEPT, {}), **given}
    own = {name: value for name, value in metadata.items() if name != _KEPT}
    return own | ({_KEPT: kept} if kept else {})
