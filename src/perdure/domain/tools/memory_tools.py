"""The built-in memory tools that run inside the transaction that stores their result. `engine.search.tools` searches.

So an edit happens exactly once: the result is in the log and the edit in the block, or neither. A tool that raises
changes nothing, because its transaction is rolled back before the error becomes the call's result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from perdure.core.blocks import Block, append_text, check_no_line_numbers, insert_lines, replace_text, rewrite
from perdure.core.ids import ArchiveId
from perdure.core.tools.spec import ToolOutcome
from perdure.domain.archives.passages import NewPassage, insert_passage, own_archive
from perdure.domain.blocks.memory_files import run_memory_command
from perdure.domain.blocks.patches import apply_patch
from perdure.domain.files.tools import open_files
from perdure.domain.tools.calls import MemoryCall, edit_own_block
from perdure.domain.tools.context_tools import context_expand, context_grep
from perdure.domain.tools.voice_tools import rethink_user_memory, store_memories
from perdure.storage.tx import Tx


def _editing(edit: Callable[..., Block]) -> Callable[..., ToolOutcome]:
    """The tool that changes one of the agent's blocks by `edit`, a function `(block, **arguments)`.

    Its result is the block's new value, which shows the edit to the model.
    """

    def edit_block(tx: Tx, call: MemoryCall, label: str, **arguments: Any) -> ToolOutcome:
        done = edit_own_block(tx, call, label, partial(edit, **arguments))
        return ToolOutcome(text=done.block.value, edits=(done,) if done.diff else ())

    return edit_block


def _archival_memory_insert(tx: Tx, call: MemoryCall, content: str, tags: list[str] | None = None) -> ToolOutcome:
    """Store a text in the agent's own archive."""
    archive = own_archive(tx, call.agent.id, ArchiveId(call.ids.new("archive")), at=call.now)
    source: dict[str, str] = {"agent_id": call.agent.id}
    if call.person is None:
        source |= {"run_id": call.run.id, "message_id": call.message_id}
    new = NewPassage(text=content, tags=tags or (), source=source)
    passage = insert_passage(tx, archive.id, new, ids=call.ids, at=call.now)
    return ToolOutcome(text=json.dumps({"id": passage.id, "archived_chars": len(content), "tags": list(passage.tags)}))


MEMORY_TOOLS: Mapping[str, Callable[..., ToolOutcome]] = {
    # The call itself is the message: clients are shown it in the agent's words.
    "send_message": lambda tx, call, message: ToolOutcome(text="Sent message successfully."),
    "core_memory_append": _editing(lambda block, content: append_text(block, content)),
    "core_memory_replace": _editing(
        lambda block, old_content, new_content: replace_text(block, old_content, new_content)
    ),
    "memory_replace": _editing(
        lambda block, old_string, new_string: replace_text(
            check_no_line_numbers(block, old_string=old_string, new_string=new_string), old_string, new_string
        )
    ),
    "memory_insert": _editing(
        lambda block, new_string, insert_line=-1: insert_lines(
            check_no_line_numbers(block, new_string=new_string), new_string, line=insert_line
        )
    ),
    "memory_rethink": _editing(
        lambda block, new_memory: rewrite(check_no_line_numbers(block, new_memory=new_memory), new_memory)
    ),
    "memory_apply_patch": _editing(lambda block, patch: rewrite(block, apply_patch(block.value, patch))),
    "memory_finish_edits": lambda tx, call: ToolOutcome(text="Done."),
    "memory": run_memory_command,
    "rethink_user_memory": rethink_user_memory,
    "finish_rethinking_memory": lambda tx, call: ToolOutcome(text="Done."),
    "store_memories": store_memories,
    "archival_memory_insert": _archival_memory_insert,
    "open_files": open_files,
    "context_expand": context_expand,
    "context_grep": context_grep,
}
"""Name -> function `(tx, call, **checked_arguments)`.

Raises: ToolError, InvalidInput, Conflict: texts for the model; the caller must then roll the transaction back.
"""
