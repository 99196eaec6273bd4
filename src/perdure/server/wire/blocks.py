"""Blocks as the wire shows and takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from perdure.core.blocks import Block
from perdure.domain.blocks.units import LIMIT_CHARS_MAX
from perdure.server.limits import Tags
from perdure.server.wire.base import WireRequest
from perdure.server.wire.values import JsonObject, Label

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

    def changes(self, before: Block) -> dict[str, Any]:
        """New values for `before`. The wire enforces no limit: a longer value raises it."""
        fields = self._own_fields
        length = len(fields.get("value", before.value))
        if length > fields.get("limit_chars", before.limit_chars):
            fields["limit_chars"] = length
        metadata = self._stored_metadata(fields.pop("metadata", before.metadata), before.metadata)
        return fields if metadata == before.metadata else fields | {"metadata": metadata}

    @property
    def _own_fields(self) -> dict[str, Any]:
        """What the client sends, under the names of our own blocks."""
        fields = {name: value for name, value in self if value is not None and name not in _KEPT_FIELDS}
        if "limit" in fields:
            fields["limit_chars"] = fields.pop("limit")
        return fields

    def _stored_metadata(self, metadata: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        """`metadata` together with the fields that only the wire knows, the newly sent over those of `before`."""
        sent = {name: value for name, value in self if value is not None and name in _KEPT_FIELDS}
        kept = {**before.get(_KEPT, {}), **sent}
        own = {name: value for name, value in metadata.items() if name != _KEPT}
        return own | ({_KEPT: kept} if kept else {})


class NewWireBlock(BlockChanges):
    """A block to be made, by itself or with an agent."""

    label: Label
    value: str

    @property
    def fields(self) -> dict[str, Any]:
        """The values of `NewBlock`. A value over the limit raises the limit."""
        fields = self._own_fields
        fields["limit_chars"] = max(fields.get("limit_chars", LIMIT_CHARS), len(self.value), 1)
        fields["metadata"] = self._stored_metadata(fields.get("metadata", {}), {})
        return fields


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
