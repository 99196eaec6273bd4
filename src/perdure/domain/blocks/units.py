"""Core memory: units of work on blocks, for agents' tools and for people.

`expected` is the version that the caller read; without it, an edit applies to the newest version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.blocks import DEFAULT_LIMIT_CHARS, Author, Block, check_label, check_limit
from perdure.core.errors import BlockNotFound, InvalidInput, NotFound, VersionConflict
from perdure.core.ids import AgentId, BlockId
from perdure.domain.values import as_tags, check_fields, check_item_limits, check_json
from perdure.storage.tx import Tx

DEFAULT_DESCRIPTIONS = {
    "persona": "Who you are: your name, character, way of speaking and working. Keep it true to how you act.",
    "human": "What you know of the person you talk with: name, place, likes, work, wishes. One fact a line.",
}
"""Label -> description of a block that is created without one."""

BLOCK_FIELDS = (
    "value",
    "label",
    "limit_chars",
    "description",
    "read_only",
    "metadata",
    "tags",
    "is_template",
    "hidden",
)
"""The fields of a block that can change."""

LIMIT_CHARS_MAX = 1_000_000_000
"""More than any context window holds; it fits an INTEGER column of both databases."""


def create_block(
    tx: Tx,
    block_id: BlockId,
    label: str,
    value: str = "",
    *,
    author: Author,
    at: datetime,
    limit_chars: int = DEFAULT_LIMIT_CHARS,
    description: str | None = None,
    read_only: bool = False,
    metadata: Mapping[str, Any] | None = None,
    tags: Sequence[str] = (),
    is_template: bool = False,
    hidden: bool = False,
    agent_id: AgentId | None = None,
) -> Block:
    """Create a block and attach it to `agent_id`, if there is one.

    Raises: InvalidInput; BlockLimitExceeded; AlreadyExists: the agent has a block with that label; NotFound.
    """
    fields = _check_fields(
        {
            "label": label,
            "value": value,
            "limit_chars": limit_chars,
            "description": description,
            "read_only": read_only,
            "metadata": {} if metadata is None else metadata,
            "tags": tags,
            "is_template": is_template,
            "hidden": hidden,
        }
    )
    if description is None:
        fields["description"] = DEFAULT_DESCRIPTIONS.get(label)
    _check_size(tx, fields)
    block = check_limit(
        Block(
            id=block_id,
            org_id=tx.org_id,
            created_at=at,
            updated_at=at,
            created_by=author.id,
            updated_by=author.id,
            **fields,
        )
    )
    block = tx.blocks.add(block, author=author)
    if agent_id is not None:
        tx.blocks.attach(agent_id, block.id)
    return block


def find_block(tx: Tx, agent_id: AgentId, label: str) -> Block:
    """Return the agent's block with this label. Raises: BlockNotFound, naming the agent's labels."""
    block = tx.blocks.find(agent_id, label)
    if block is None:
        raise BlockNotFound(label, known=[known.label for known in tx.blocks.of_agent(agent_id)])
    return block


def edit_block(
    tx: Tx, agent_id: AgentId, label: str, edit: Callable[[Block], Block], *, author: Author, at: datetime
) -> Block:
    """Apply `edit`, a pure function such as those of `core.blocks`, and return the block.

    Raises: BlockNotFound; what `edit` raises.
    """
    block = find_block(tx, agent_id, label)
    changed = edit(block)
    if changed == block:
        return block
    return tx.blocks.put(changed, expected=block.version, author=author, at=at)


def update_block(
    tx: Tx, block_id: BlockId, changes: Mapping[str, Any], *, author: Author, at: datetime, expected: int | None = None
) -> Block:
    """Change some of `BLOCK_FIELDS` and return the block.

    `read_only` binds the agents' tools, not people: this edits read-only blocks too.
    Raises: NotFound, VersionConflict, BlockLimitExceeded, AlreadyExists; InvalidInput: an invalid value or field.
    """
    check_fields("a block", changes, BLOCK_FIELDS)
    fields = _check_fields(changes)
    _check_size(tx, fields)
    block = tx.blocks.get(block_id)
    if expected is not None and expected != block.version:
        raise VersionConflict(f"block {block.label!r}", expected=expected, found=block.version)
    changed = check_limit(replace(block, **fields))
    if changed == block:
        return block
    return tx.blocks.put(changed, expected=block.version, author=author, at=at)


def restore_block(
    tx: Tx, block_id: BlockId, version: int, *, author: Author, at: datetime, expected: int | None = None
) -> Block:
    """Store the value of an old version as a new version and return the block.

    Raises: NotFound: no such block or version; VersionConflict; BlockLimitExceeded: the limit is lower now.
    """
    newest = tx.blocks.get(block_id)
    if not 0 <= version <= newest.version:
        versions = f"the versions 0 to {newest.version}" if newest.version else "version 0 only"
        raise NotFound("block version", str(version), hint=f"block {newest.label!r} has {versions}")
    value = tx.blocks.version(block_id, version).value
    return update_block(tx, block_id, {"value": value}, author=author, at=at, expected=expected)


def _check_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in stored form. Raises: InvalidInput, naming the field, its value and what would do."""
    values = dict(fields)
    for name, value in fields.items():
        match name:
            case "label" | "value":
                _check_field(name, value, isinstance(value, str), "a text")
            case "description":
                _check_field(name, value, value is None or isinstance(value, str), "a text, or None for no description")
            case "limit_chars":
                fits = type(value) is int and 1 <= value <= LIMIT_CHARS_MAX
                _check_field(name, value, fits, f"a whole number from 1 to {LIMIT_CHARS_MAX:,}")
            case "metadata":
                check_json(name, value)
            case "tags":
                values[name] = as_tags(value)
            case _:
                _check_field(name, value, isinstance(value, bool), "True or False")
    if "label" in fields:
        check_label(fields["label"])
    return values


def _check_size(tx: Tx, fields: Mapping[str, Any]) -> None:
    tx.limits.check("block_limit_chars", len(fields.get("value", "")))
    check_item_limits(tx.limits, tags=fields.get("tags", ()), metadata=fields.get("metadata"))


def _check_field(name: str, value: Any, valid: bool, hint: str) -> None:
    if not valid:
        raise InvalidInput(f"{name} of a block is {value!r:.80}: give {hint}")
