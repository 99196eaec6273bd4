"""Blocks on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from perdure.core import blocks as core
from perdure.core.errors import InvalidInput
from perdure.domain.blocks.units import LIMIT_CHARS_MAX
from perdure.server.wire.base import WIRE_FIELDS, WireRequest, own_metadata, with_wire_fields
from perdure.server.wire.fields import JsonObject, Label, Name, Tags
from perdure.server.wire.shapes import Object, WireShape, computed, wire_field

LIMIT_CHARS = 100_000
"""The limit of a block that a client makes without one."""

_TEMPLATE_FIELDS = ("template_id", "base_template_id", "deployment_id", "entity_id")
_WIRE_FIELDS = ("project_id", "template_name", *_TEMPLATE_FIELDS, "preserve_on_migration")
"""Fields that only the wire has; they are stored in the metadata."""

_Limit = Annotated[int | None, Field(ge=1, le=LIMIT_CHARS_MAX)]


class BlockChanges(WireRequest):
    """Changes of a block. A field that is missing or null stays."""

    value: str | None = None
    label: Label | None = None
    limit: _Limit = None
    description: str | None = None
    read_only: bool | None = None
    metadata: JsonObject | None = None
    tags: Tags | None = None
    is_template: bool | None = None
    hidden: bool | None = None
    project_id: Name | None = None
    template_name: Name | None = None
    template_id: Name | None = None
    base_template_id: Name | None = None
    deployment_id: Name | None = None
    entity_id: Name | None = None
    preserve_on_migration: bool | None = None

    def changes(self, before: core.Block) -> dict[str, Any]:
        """New values for `before`. Raises: InvalidInput: the value is longer than the limit."""
        changes = self._library_fields(before.metadata)
        value = changes.get("value", before.value)
        if "value" in changes or self.limit is not None:
            _check_limit(changes.get("label", before.label), value, changes.get("limit_chars", before.limit_chars))
        if changes["metadata"] == before.metadata:
            del changes["metadata"]
        return changes

    def _library_fields(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that the client sends, as the library takes them. `metadata`: those stored before."""
        fields = self.non_null()
        if "limit" in fields:
            fields["limit_chars"] = fields.pop("limit")
        wire_fields = {name: fields.pop(name) for name in _WIRE_FIELDS if name in fields}
        wire_fields = metadata.get(WIRE_FIELDS, {}) | wire_fields
        return fields | {"metadata": with_wire_fields(fields.get("metadata", metadata), wire_fields)}


class NewWireBlock(BlockChanges):
    """A new block, by itself or with an agent."""

    label: Label
    value: str

    @property
    def fields(self) -> dict[str, Any]:
        """The values of `NewBlock`. Raises: InvalidInput: the value is longer than the limit."""
        fields = {"limit_chars": max(LIMIT_CHARS, len(self.value)), **self._library_fields({})}
        _check_limit(self.label, self.value, fields["limit_chars"])
        return fields


def _check_limit(label: str, value: str, limit_chars: int) -> None:
    """Raises: InvalidInput: the value is longer than the limit."""
    if len(value) > limit_chars:
        raise InvalidInput(
            f"body.value: block {label!r} would hold {len(value):,} characters, its limit is {limit_chars:,}:"
            " give a higher limit with it, or a shorter value"
        )


class WireBlock(
    WireShape,
    of=core.Block,
    fields="value limit project_id template_name is_template template_id base_template_id deployment_id entity_id"
    " preserve_on_migration label read_only description metadata hidden id created_by_id last_updated_by_id tags",
    limit="limit_chars",
    created_by_id="created_by",
    last_updated_by_id="updated_by",
    unlisted={name: wire_field(name) for name in _WIRE_FIELDS}
    | {"preserve_on_migration": wire_field("preserve_on_migration", False)},
):
    """A memory block; `limit` in characters."""

    metadata: Object = computed(lambda block: own_metadata(block.metadata))
    hidden: bool | None = computed(lambda block: block.hidden or None)


GIT_TAG = "git-memory-enabled"
"""The tag by which Letta's clients know an agent whose memory they use as a git repository."""


class WireMemory(
    WireShape,
    fields="agent_type git_enabled blocks file_blocks prompt_template",
    unlisted={"file_blocks": [], "prompt_template": ""},
):
    """The memory of an agent; `git_enabled`: clients use it as a git repository."""

    agent_type: str
    git_enabled: bool
    blocks: list[WireBlock]
