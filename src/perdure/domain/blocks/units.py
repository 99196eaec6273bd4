"""Core memory: units of work on blocks, for agents' tools and for people.

`expected` is the version that the caller read; without it, an edit applies to the newest version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import partial
from typing import Any

from perdure.core.blocks import (
    DEFAULT_LIMIT_CHARS,
    WORKING_CHECKPOINT,
    Author,
    Block,
    MemoryEdit,
    check_author,
    check_label,
    check_limit,
    rewrite,
)
from perdure.core.errors import AlreadyExists, BlockNotFound, InvalidInput, NotFound, VersionConflict
from perdure.core.features import Point
from perdure.core.ids import AgentId, BlockId, Ids
from perdure.core.sources import WriteSource
from perdure.core.specs import BlockChange
from perdure.domain.provenance.context import sources_of_block
from perdure.domain.values import as_tags, check_fields, check_item_limits, check_json
from perdure.storage.tx import Tx

BLOCKS_CHANGED: Point[[Tx, AgentId], None] = Point("blocks_changed")
"""An agent may have other blocks now."""

DEFAULT_DESCRIPTIONS = {
    "persona": "Who you are: your name, character, way of speaking and working. Keep it true to how you act.",
    "human": "What you know of the person you talk with: name, place, likes, work, wishes. One fact a line.",
}
"""Label -> description of a block that is created without one."""

LIMIT_CHARS_MAX = 1_000_000_000
"""More than any context window holds; it fits an INTEGER column of both databases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBlock:
    """The values of a new block. Without a description it gets that of its label in `DEFAULT_DESCRIPTIONS`, if any."""

    label: str
    value: str = ""
    limit_chars: int = DEFAULT_LIMIT_CHARS
    description: str | None = None
    read_only: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    is_template: bool = False
    hidden: bool = False


BLOCK_FIELDS = tuple(field.name for field in fields(NewBlock))
"""The fields of a block that can change."""


def create_block(
    tx: Tx,
    block_id: BlockId,
    new: NewBlock,
    *,
    author: Author,
    at: datetime,
    agent_id: AgentId | None = None,
    conversation_seq: int = 0,
) -> Block:
    """Create a block, and attach it to `agent_id` if that is given. Where the conversation `conversation_seq` has
    blocks of its own for this label (`isolate_blocks`), only this conversation gets it.

    Raises: InvalidInput; BlockLimitExceeded; AlreadyExists: the agent has a block with that label; NotFound.
    """
    values = _check_fields({name: getattr(new, name) for name in BLOCK_FIELDS})
    if new.description is None:
        values["description"] = DEFAULT_DESCRIPTIONS.get(new.label)
    _check_size(tx, values)
    stamps: dict[str, Any] = {"created_at": at, "updated_at": at, "created_by": author.id, "updated_by": author.id}
    block = tx.blocks.add(check_limit(Block(id=block_id, org_id=tx.org_id, **values, **stamps)), author=author)
    if agent_id is None:
        return block
    if conversation_seq and tx.blocks.find(agent_id, block.label, conversation_seq) is not None:
        raise AlreadyExists("block with label", block.label)
    isolated = tx.blocks.list_isolated(agent_id, conversation_seq)
    if block.label in isolated and isolated[block.label] is None:
        tx.blocks.isolate(agent_id, conversation_seq, block.label, block.id)
    else:
        tx.blocks.attach(agent_id, block.id)
    return block


def isolate_blocks(
    tx: Tx, agent_id: AgentId, conversation_seq: int, labels: Sequence[str], ids: Ids, *, author: Author, at: datetime
) -> None:
    """Give the conversation copies of the agent's blocks with these labels. Raises: BlockNotFound."""
    for label in dict.fromkeys(labels):
        copy = _copy_block(tx, find_block(tx, agent_id, label), ids, author=author, at=at)
        tx.blocks.isolate(agent_id, conversation_seq, label, copy.id)


def copy_isolated(
    tx: Tx, agent_id: AgentId, source_seq: int, conversation_seq: int, ids: Ids, *, author: Author, at: datetime
) -> Mapping[str, BlockId]:
    """Copy the blocks that only the conversation `source_seq` has to another one; return id -> id of the copy."""
    copies: dict[str, BlockId] = {}
    for label, block_id in tx.blocks.list_isolated(agent_id, source_seq).items():
        copy = None
        if block_id is not None:
            copies[block_id] = copy = _copy_block(tx, tx.blocks.get(block_id), ids, author=author, at=at).id
        tx.blocks.isolate(agent_id, conversation_seq, label, copy)
    return copies


def detach_block(tx: Tx, agent_id: AgentId, block: Block, conversation_seq: int = 0, *, author: Author) -> None:
    """Detach a block from the agent; delete it if only this conversation has it. Raises: BlockProtected."""
    check_author(block, author)
    labels = {block_id: label for label, block_id in tx.blocks.list_isolated(agent_id, conversation_seq).items()}
    if block.id in labels:
        tx.blocks.isolate(agent_id, conversation_seq, labels[block.id], None)
    else:
        tx.blocks.detach(agent_id, block.id)


def find_block(tx: Tx, agent_id: AgentId, label: str, conversation_seq: int = 0) -> Block:
    """Return the block with this label that the agent has in this conversation. Raises: BlockNotFound."""
    block = tx.blocks.find(agent_id, label, conversation_seq)
    if block is None:
        known = tx.blocks.list_by_agent(agent_id, conversation_seq)
        raise BlockNotFound(label, known=[one.label for one in known])
    return block


def edit_block(
    tx: Tx,
    agent_id: AgentId,
    label: str,
    edit: Callable[[Block], Block],
    *,
    author: Author,
    at: datetime,
    conversation_seq: int = 0,
) -> Block:
    """Apply `edit`, a function such as those of `core.blocks`; return the block. Raises: BlockNotFound; as `edit`."""
    block = find_block(tx, agent_id, label, conversation_seq)
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
    values = _check_fields(changes)
    _check_size(tx, values)
    block = tx.blocks.get(block_id)
    if expected is not None and expected != block.version:
        raise VersionConflict(f"block {block.label!r}", expected=expected, found=block.version)
    changed = check_limit(replace(block, **values))
    if changed == block:
        return block
    return tx.blocks.put(changed, expected=block.version, author=author, at=at)


def restore_block(tx: Tx, block_id: BlockId, version: int, *, author: Author, at: datetime) -> Block:
    """Store the value of an old version as a new one; return the block. Raises: NotFound, BlockLimitExceeded."""
    newest = tx.blocks.get(block_id)
    if not 0 <= version <= newest.version:
        versions = f"the versions 0 to {newest.version}" if newest.version else "version 0 only"
        raise NotFound("block version", str(version), hint=f"block {newest.label!r} has {versions}")
    return update_block(tx, block_id, {"value": tx.blocks.version(block_id, version).value}, author=author, at=at)


def change_blocks(
    tx: Tx,
    agent_id: AgentId,
    changes: Sequence[BlockChange],
    *,
    author: Author,
    at: datetime,
    conversation_seq: int = 0,
) -> tuple[MemoryEdit, ...]:
    """Store a custom tool's changes of blocks whose version is still the one that the tool read.

    Raises: VersionConflict, BlockNotFound, BlockReadOnly, BlockLimitExceeded. The caller's transaction then rolls all
        changes back.
    """
    edits: list[MemoryEdit] = []
    for change in changes:
        before = find_block(tx, agent_id, change.label, conversation_seq)
        if before.version != change.version:
            raise VersionConflict(f"block {change.label!r}", expected=change.version, found=before.version)
        edit = partial(rewrite, value=change.value)
        after = edit_block(tx, agent_id, change.label, edit, author=author, at=at, conversation_seq=conversation_seq)
        edits.append(MemoryEdit.between(before, after))
    return tuple(edits)


def _copy_block(tx: Tx, block: Block, ids: Ids, *, author: Author, at: datetime) -> Block:
    """Create a block with the same values and return it."""
    new = NewBlock(**{name: getattr(block, name) for name in BLOCK_FIELDS})
    if block.label == WORKING_CHECKPOINT:  # reading it brings its sources, unlike that of other blocks
        author = replace(author, sources=tuple(map(WriteSource, sources_of_block(tx, block))))
    return create_block(tx, BlockId(ids.new("block")), new, author=author, at=at)


def _check_fields(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a block in stored form. Raises: InvalidInput, naming the field, its value and what to give."""
    values = dict(changes)
    for name, value in changes.items():
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
    if "label" in values:
        values["label"] = check_label(values["label"])
    return values


def _check_size(tx: Tx, values: Mapping[str, Any]) -> None:
    """Check the size of these fields of a block. Raises: TooMany."""
    tx.limits.check("block_limit_chars", len(values.get("value", "")))
    about = {name: values.get(name) for name in ("description", "metadata")}
    check_item_limits(tx.limits, tags=values.get("tags", ()), **about)


def _check_field(name: str, value: Any, valid: bool, hint: str) -> None:
    """Raise InvalidInput with `hint`, what to give instead, unless the value is valid."""
    if not valid:
        raise InvalidInput(f"{name} of a block is {value!r:.80}: give {hint}")
