"""The `memory` tool: blocks as files under /memories, the form that some models are trained on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perdure.core.blocks import Block, MemoryEdit, check_label, insert_lines, replace_text
from perdure.core.errors import BlockReadOnly, InvalidArguments
from perdure.core.ids import BlockId
from perdure.core.tools.spec import ToolOutcome
from perdure.domain.blocks.units import NewBlock, create_block, detach_block
from perdure.domain.tools.calls import MemoryCall, edit_own_block, find_own_block
from perdure.storage.tx import Tx

ROOT = "/memories"


def run_memory_command(
    tx: Tx,
    call: MemoryCall,
    command: str,
    path: str | None = None,
    file_text: str | None = None,
    description: str | None = None,
    old_string: str | None = None,
    new_string: str | None = None,
    insert_line: int = -1,
    insert_text: str | None = None,
    old_path: str | None = None,
    new_path: str | None = None,
) -> ToolOutcome:
    """Run one command. Raises: InvalidArguments: a missing argument; the errors of the edits."""
    match command:
        case "view":
            return _view(tx, call, path or ROOT)
        case "create":
            new_block = NewBlock(label=_label(path, "path"), value=file_text or "", description=description)
            block_id = BlockId(call.ids.new("block"))
            block = create_block(
                tx,
                block_id,
                new_block,
                author=call.author,
                at=call.now,
                agent_id=call.agent.id,
                conversation_seq=call.run.conversation_seq,
            )
            return _result(
                f"Successfully created memory block {block.label!r}.", MemoryEdit.between(None, block), always=True
            )
        case "str_replace":
            old, new = _require(old_string, "old_string"), new_string or ""
            edit = edit_own_block(tx, call, _label(path, "path"), lambda block: replace_text(block, old, new))
            return _result(f"Successfully edited memory block {edit.block.label!r}.", edit)
        case "insert":
            text = _require(insert_text, "insert_text")
            edit = edit_own_block(
                tx, call, _label(path, "path"), lambda block: insert_lines(block, text, line=insert_line)
            )
            return _result(f"Successfully edited memory block {edit.block.label!r}.", edit)
        case "delete":
            return _delete(tx, call, _label(path, "path"))
        case _:
            return _rename(tx, call, _label(old_path or path, "old_path"), new_path, description)


def _view(tx: Tx, call: MemoryCall, path: str) -> ToolOutcome:
    """Show one block, or the list of blocks for the root."""
    if path.rstrip("/") == ROOT:
        lines = [
            f"{ROOT}/{block.label} ({len(block.value)} of {block.limit_chars} characters): {block.description or ''}"
            for block in tx.blocks.list_by_agent(call.agent.id, call.run.conversation_seq)
        ]
        return ToolOutcome(text="\n".join(lines) or "There are no memory blocks.")
    return ToolOutcome(text=find_own_block(tx, call, _label(path, "path")).value)


def _delete(tx: Tx, call: MemoryCall, label: str) -> ToolOutcome:
    """Take a block out of memory. Raises: BlockNotFound, BlockReadOnly."""
    block = find_own_block(tx, call, label)
    if block.read_only:
        raise BlockReadOnly(label)
    # Only detached if it is the agent's: others may share it, and people can restore it.
    detach_block(tx, call.agent.id, block, call.run.conversation_seq)
    return ToolOutcome(text=f"Successfully deleted memory block {label!r}.", edits=(MemoryEdit.between(block, None),))


def _rename(tx: Tx, call: MemoryCall, label: str, new_path: str | None, description: str | None) -> ToolOutcome:
    """Change a block's label or description. Raises: BlockNotFound, BlockReadOnly, InvalidArguments."""
    if new_path is None and description is None:
        raise InvalidArguments("memory", "rename needs 'new_path', 'description' or both")
    new_label = label if new_path is None else check_label(_label(new_path, "new_path"))

    def rename(block: Block) -> Block:
        if block.read_only:
            raise BlockReadOnly(label)
        return replace(block, label=new_label, description=block.description if description is None else description)

    before = find_own_block(tx, call, label)
    block = rename(before)
    if block != before:
        block = tx.blocks.put(block, expected=before.version, author=call.author, at=call.now)
    done = f"renamed memory block {label!r} to {new_label!r}"
    if new_label == label:
        done = f"changed the description of memory block {label!r}"
    edit = MemoryEdit.between(before, block)
    return _result(f"Successfully {done}.", edit, always=block.version != before.version)


def _result(text: str, edit: MemoryEdit, *, always: bool = False) -> ToolOutcome:
    """Build the result of a command. An unchanged text is no edit, unless `always`: another field changed."""
    return ToolOutcome(text=f"{text} It now holds:\n{edit.block.value}", edits=(edit,) if always or edit.diff else ())


def _label(path: str | None, argument: str) -> str:
    """Return the block's label: the path without /memories/."""
    label = _require(path, argument).strip()
    return f"{label}/".removeprefix(f"{ROOT}/").strip("/") if label.startswith("/") else label


def _require(value: Any, argument: str) -> str:
    """Return an argument that the command needs. Raises: InvalidArguments: it is missing."""
    if not isinstance(value, str) or (argument != "insert_text" and not value):
        raise InvalidArguments("memory", f"this command needs {argument!r}")
    return value
