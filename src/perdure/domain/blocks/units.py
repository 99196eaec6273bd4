"""Core memory: units of work on blocks, for agents' tools and for people alike.

A unit runs inside one transaction. `expected` is the version the caller has seen; without one, the edit is made on
whatever the block holds when the transaction reads it, which the database makes one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.blocks import DEFAULT_LIMIT_CHARS, Author, Block, check_label, checked
from perdure.core.errors import BlockNotFound, InvalidInput, NotFound, VersionConflict
from perdure.core.ids import AgentId, BlockId
from perdure.domain.values import as_tags, check_json, check_kept
from perdure.storage.tx import Tx

__all__ = [
    "BLOCK_FIELDS",
    "DEFAULT_DESCRIPTIONS",
    "LIMIT_CHARS_MAX",
    "create_block",
    "edit_block",
    "find_block",
    "restore_block",
    "update_block",
]

DEFAULT_DESCRIPTIONS = {
    "persona": "Who you are: your name, character, way of speaking and working. Keep it true to how you act.",
    "human": "What you know of the person you talk with: name, place, likes, work, wishes. One fact a line.",
}
"""What a block is for, when its creator does not say."""

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
"""What may be changed of a block; all else is its identity and its history."""

LIMIT_CHARS_MAX = 1_000_000_000
"""More than any context window; it fits an INTEGER column of either database."""


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
    """A new block, attached to `agent_id` if there is one.

    Raises: InvalidInput: a field that can't be used; BlockLimitExceeded; AlreadyExists: the agent has a block of that
        label; NotFound.
    """
    fields = _usable(
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
    block = checked(
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
    """The agent's block of this label. Raises: BlockNotFound, naming those that are there."""
    block = tx.blocks.find(agent_id, label)
    if block is None:
        raise BlockNotFound(label, known=[known.label for known in tx.blocks.of_agent(agent_id)])
    return block


def edit_block(
    tx: Tx, agent_id: AgentId, label: str, edit: Callable[[Block], Block], *, author: Author, at: datetime
) -> Block:
    """The agent's block after `edit`, a pure function such as those of `core.blocks`; unchanged if the edit changes
    nothing.

    Raises: BlockNotFound; what `edit` raises.
    """
    block = find_block(tx, agent_id, label)
    edited = edit(block)
    if edited == block:
        return block
    return tx.blocks.put(edited, expected=block.version, author=author, at=at)


def update_block(
    tx: Tx, block_id: BlockId, changes: Mapping[str, Any], *, author: Author, at: datetime, expected: int | None = None
) -> Block:
    """The block with other values of some of `BLOCK_FIELDS`.

    `read_only` binds the agents' tools, not people: this edits such blocks too.

    Raises: NotFound, VersionConflict, BlockLimitExceeded, AlreadyExists; InvalidInput: no such field, or a value it
        can't have.
    """
    if unknown := [name for name in changes if name not in BLOCK_FIELDS]:
        raise InvalidInput(f"a block has no field {', '.join(unknown)} to change: there are {', '.join(BLOCK_FIELDS)}")
    fields = _usable(changes)
    _check_size(tx, fields)
    block = tx.blocks.get(block_id)
    if expected is not None and expected != block.version:
        raise VersionConflict(f"block {block.label!r}", expected=expected, found=block.version)
    edited = checked(replace(block, **fields))
    if edited == block:
        return block
    return tx.blocks.put(edited, expected=block.version, author=author, at=at)


def restore_block(
    tx: Tx, block_id: BlockId, version: int, *, author: Author, at: datetime, expected: int | None = None
) -> Block:
    """The block with the value it had at `version`, as a new version: history goes on, nothing of it is lost.

    Raises: NotFound: no such block or version; VersionConflict; BlockLimitExceeded: the limit is lower now.
    """
    newest = tx.blocks.get(block_id)
    if not 0 <= version <= newest.version:
        there = f"the versions 0 to {newest.version}" if newest.version else "version 0 only"
        raise NotFound("block version", str(version), hint=f"block {newest.label!r} has {there}")
    value = tx.blocks.version(block_id, version).value
    return update_block(tx, block_id, {"value": value}, author=author, at=at, expected=expected)


def _usable(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a block as they are kept. Raises: InvalidInput, naming the field, its value and what would do."""
    usable = dict(fields)
    for name, value in fields.items():
        match name:
            case "label" | "value":
                _check(name, value, isinstance(value, str), "a text")
            case "description":
                _check(name, value, value is None or isinstance(value, str), "a text, or None for no description")
            case "limit_chars":
                fits = type(value) is int and 1 <= value <= LIMIT_CHARS_MAX
                _check(name, value, fits, f"a whole number from 1 to {LIMIT_CHARS_MAX:,}")
            case "metadata":
                check_json(name, value)
            case "tags":
                usable[name] = as_tags(value)
            case _:
                _check(name, value, isinstance(value, bool), "True or False")
    if "label" in fields:
        check_label(fields["label"])
    return usable


def _check_size(tx: Tx, fields: Mapping[str, Any]) -> None:
    tx.limits.check("block_limit_chars", len(fields.get("value", "")))
    check_kept(tx.limits, tags=fields.get("tags", ()), metadata=fields.get("metadata"))


def _check(name: str, value: Any, can_be_used: bool, wanted: str) -> None:
    if not can_be_used:
        raise InvalidInput(f"{name} of a block is {value!r:.80}: give {wanted}")
