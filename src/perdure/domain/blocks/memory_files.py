"""The `memory` tool: blocks as files under /memories, for models that were trained to work that way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perdure.core.blocks import Author, Block, MemoryEdit, check_label, inserted, replaced
from perdure.core.errors import BlockReadOnly, InvalidArguments
from perdure.core.ids import BlockId
from perdure.core.tools.spec import ToolOutcome
from perdure.domain.blocks.units import create_block, edit_block, find_block
from perdure.domain.tools.calls import MemoryCall, edited
from perdure.storage.tx import Tx

__all__ = ["run_memory_command"]

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
    """What came of one command. Raises: InvalidArguments: an argument that the command needs is missing; as the edits
    do."""
    match command:
        case "view":
            return _view(tx, call, path or ROOT)
        case "create":
            label = _label(path, "path")
            block = create_block(
                tx,
                BlockId(call.ids.new("block")),
                label,
                file_text or "",
                author=call.author,
                at=call.now,
                description=description,
                agent_id=call.agent.id,
            )
            return _result(f"Created memory block {label!r}.", MemoryEdit.of(None, block), always=True)
        case "str_replace":
            old, new = _needed(old_string, "old_string"), new_string or ""
            edit = edited(tx, call, _label(path, "path"), lambda block: replaced(block, old, new))
            return _result(f"Edited memory block {edit.block.label!r}.", edit)
        case "insert":
            text = _needed(insert_text, "insert_text")
            edit = edited(tx, call, _label(path, "path"), lambda block: inserted(block, text, line=insert_line))
            return _result(f"Edited memory block {edit.block.label!r}.", edit)
        case "delete":
            return _delete(tx, call, _label(path, "path"))
        case _:
            return _rename(tx, call, _label(old_path or path, "old_path"), new_path, description)


def _view(tx: Tx, call: MemoryCall, path: str) -> ToolOutcome:
    if path.rstrip("/") == ROOT:
        lines = [
            f"{ROOT}/{block.label} ({len(block.value)} of {block.limit_chars} characters): {block.description or ''}"
            for block in tx.blocks.of_agent(call.agent.id)
        ]
        return ToolOutcome(text="\n".join(lines) or "There are no memory blocks.")
    return ToolOutcome(text=find_block(tx, call.agent.id, _label(path, "path")).value)


def _delete(tx: Tx, call: MemoryCall, label: str) -> ToolOutcome:
    block = find_block(tx, call.agent.id, label)
    if block.read_only:
        raise BlockReadOnly(label)
    # The block goes out of this agent's memory. It and its history stay: others may share it, and people can restore
    # it.
    tx.blocks.detach(call.agent.id, block.id)
    return ToolOutcome(text=f"Deleted memory block {label!r} from your memory.", edits=(MemoryEdit.of(block, None),))


def _rename(tx: Tx, call: MemoryCall, label: str, new_path: str | None, description: str | None) -> ToolOutcome:
    if new_path is None and description is None:
        raise InvalidArguments("memory", "rename needs 'new_path', 'description' or both")
    new_label = label if new_path is None else check_label(_label(new_path, "new_path"))

    def rename(block: Block) -> Block:
        if block.read_only:
            raise BlockReadOnly(label)
        return replace(block, label=new_label, description=block.description if description is None else description)

    author: Author = call.author
    before = find_block(tx, call.agent.id, label)
    block = edit_block(tx, call.agent.id, label, rename, author=author, at=call.now)
    return _result(
        f"Memory block {label!r} is now {new_label!r}.",
        MemoryEdit.of(before, block),
        always=block.version != before.version,
    )


def _result(text: str, edit: MemoryEdit, *, always: bool = False) -> ToolOutcome:
    """The block after a command. One that left the text as it was is no edit, unless `always`: it changed a field."""
    return ToolOutcome(text=f"{text} It now holds:\n{edit.block.value}", edits=(edit,) if always or edit.diff else ())


def _label(path: str | None, argument: str) -> str:
    """The block's label: the path without /memories/."""
    label = _needed(path, argument).strip()
    return f"{label}/".removeprefix(f"{ROOT}/").strip("/") if label.startswith("/") else label


def _needed(value: Any, argument: str) -> str:
    if not isinstance(value, str) or (argument != "insert_text" and not value):
        raise InvalidArguments("memory", f"this command needs {argument!r}")
    return value
