"""The built-in memory tools that run inside the transaction that stores their result. `engine.search.tools` searches.

So an edit happens exactly once: the result is in the log and the edit in the block, or neither. A tool that raises
changes nothing, because its transaction is rolled back before the error becomes the call's result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from perdure.core.blocks import MemoryEdit, append_text, insert_lines, replace_text, rewrite
from perdure.core.ids import ArchiveId
from perdure.core.tools.spec import ToolOutcome
from perdure.domain.archives.passages import NewPassage, insert_passage, own_archive
from perdure.domain.blocks.memory_files import run_memory_command
from perdure.domain.blocks.patches import apply_patch
from perdure.domain.files.tools import open_files
from perdure.domain.tools.calls import MemoryCall, edit_own_block
from perdure.domain.tools.context_tools import context_expand, context_grep
from perdure.storage.tx import Tx


def _result(edit: MemoryEdit) -> ToolOutcome:
    """Build the result of an edit: the block's new value, which shows the edit to the model."""
    return ToolOutcome(text=edit.block.value, edits=(edit,) if edit.diff else ())


def _core_memory_append(tx: Tx, call: MemoryCall, label: str, content: str) -> ToolOutcome:
    return _result(edit_own_block(tx, call, label, lambda block: append_text(block, content)))


def _core_memory_replace(tx: Tx, call: MemoryCall, label: str, old_content: str, new_content: str) -> ToolOutcome:
    return _result(edit_own_block(tx, call, label, lambda block: replace_text(block, old_content, new_content)))


def _memory_replace(tx: Tx, call: MemoryCall, label: str, old_string: str, new_string: str) -> ToolOutcome:
    return _result(edit_own_block(tx, call, label, lambda block: replace_text(block, old_string, new_string)))


def _memory_insert(tx: Tx, call: MemoryCall, label: str, new_string: str, insert_line: int = -1) -> ToolOutcome:
    return _result(edit_own_block(tx, call, label, lambda block: insert_lines(block, new_string, line=insert_line)))


def _memory_rethink(tx: Tx, call: MemoryCall, label: str, new_memory: str) -> ToolOutcome:
    return _result(edit_own_block(tx, call, label, lambda block: rewrite(block, new_memory)))


def _memory_apply_patch(tx: Tx, call: MemoryCall, label: str, patch: str) -> ToolOutcome:
    return _result(edit_own_block(tx, call, label, lambda block: rewrite(block, apply_patch(block.value, patch))))


def _memory_finish_edits(tx: Tx, call: MemoryCall) -> ToolOutcome:
    return ToolOutcome(text="Done.")


def _archival_memory_insert(tx: Tx, call: MemoryCall, content: str, tags: list[str] | None = None) -> ToolOutcome:
    archive = own_archive(tx, call.agent.id, ArchiveId(call.ids.new("archive")), at=call.now)
    source = {"agent_id": call.agent.id, "run_id": call.run.id, "message_id": call.message_id}
    new = NewPassage(text=content, tags=tags or (), source=source)
    passage = insert_passage(tx, archive.id, new, ids=call.ids, at=call.now)
    return ToolOutcome(text=json.dumps({"id": passage.id, "archived_chars": len(content), "tags": list(passage.tags)}))


MEMORY_TOOLS: Mapping[str, Callable[..., ToolOutcome]] = {
    "core_memory_append": _core_memory_append,
    "core_memory_replace": _core_memory_replace,
    "memory_replace": _memory_replace,
    "memory_insert": _memory_insert,
    "memory_rethink": _memory_rethink,
    "memory_apply_patch": _memory_apply_patch,
    "memory_finish_edits": _memory_finish_edits,
    "memory": run_memory_command,
    "archival_memory_insert": _archival_memory_insert,
    "open_files": open_files,
    "context_expand": context_expand,
    "context_grep": context_grep,
}
"""Name -> function `(tx, call, **checked_arguments)`.

Raises: ToolError, InvalidInput, Conflict: texts for the model; the caller must then roll the transaction back.
"""
