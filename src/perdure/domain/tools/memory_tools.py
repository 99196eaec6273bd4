"""The built-in memory tools that run inside the transaction that stores their result. `engine.search.tools` searches.

So an edit happens exactly once: the result is in the log and the edit in the block, or neither. A tool that raises
changes nothing, because its transaction is rolled back before the error becomes the call's result.

The `memory` tool has blocks as files under /memories, the form that some models are trained on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from perdure.core.blocks import (
    WORKING_CHECKPOINT,
    Block,
    MemoryEdit,
    append_text,
    check_author,
    check_label,
    check_no_line_numbers,
    insert_lines,
    replace_text,
    rewrite,
)
from perdure.core.errors import BlockReadOnly, InvalidArguments, ToolError
from perdure.core.ids import ArchiveId, BlockId
from perdure.core.specs import ToolOutcome
from perdure.core.text.credentials import without_credentials
from perdure.core.text.forms import match_form, plain_form
from perdure.core.tools.engine_specs import CHECKPOINT_TOOL, feature_tools
from perdure.domain.archives.passages import MAX_PASSAGE_CHARS, NewPassage, insert_passage, own_archive
from perdure.domain.blocks.patches import apply_patch
from perdure.domain.blocks.units import NewBlock, create_block, detach_block
from perdure.domain.tools.calls import MemoryCall, edit_own_block, find_own_block
from perdure.domain.tools.context_tools import context_expand, context_grep
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
    """Run one command of the tool `memory`. Raises: InvalidArguments: an argument is missing; the errors of edits."""
    match command:
        case "view":
            return _view(tx, call, path or ROOT)
        case "create":
            _check_new_label(tx, call, _label(path, "path"))
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


def _check_new_label(tx: Tx, call: MemoryCall, label: str) -> None:
    """Check that a new label is unlike those of read-only blocks. Raises: BlockProtected, BlockReadOnly."""
    for block in tx.blocks.list_by_agent(call.agent.id, call.run.conversation_seq):
        if block.label != label and _form(block.label) == _form(label) and call.person is None:
            check_author(block, call.author)
            if block.read_only:
                raise BlockReadOnly(block.label)


def _form(label: str) -> str:
    """Return the form of a label in which labels that look alike are equal."""
    return match_form(plain_form(label)).strip()


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
    """Take a block out of memory. Raises: BlockNotFound, BlockReadOnly, BlockProtected."""
    block = find_own_block(tx, call, label)
    if block.read_only:
        raise BlockReadOnly(label)
    # Only detached if it is the agent's: others may share it, and people can restore it.
    detach_block(tx, call.agent.id, block, call.run.conversation_seq, author=call.author)
    return ToolOutcome(text=f"Successfully deleted memory block {label!r}.", edits=(MemoryEdit.between(block, None),))


def _rename(tx: Tx, call: MemoryCall, label: str, new_path: str | None, description: str | None) -> ToolOutcome:
    """Change a block's label or description. Raises: BlockNotFound, BlockReadOnly, InvalidArguments."""
    if new_path is None and description is None:
        raise InvalidArguments("memory", "rename needs 'new_path', 'description' or both")
    new_label = label if new_path is None else check_label(_label(new_path, "new_path"))

    def rename(block: Block) -> Block:
        """The block with the new label and description. Raises: BlockReadOnly."""
        if block.read_only:
            raise BlockReadOnly(label)
        return replace(block, label=new_label, description=block.description if description is None else description)

    before = find_own_block(tx, call, label)
    block = rename(before)
    if block.label != before.label:
        _check_new_label(tx, call, block.label)
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
    """Return the label of the block in a path, the value of `argument`: the path without /memories/."""
    label = _require(path, argument).strip()
    return f"{label}/".removeprefix(f"{ROOT}/").strip("/") if label.startswith("/") else label


def _require(value: Any, argument: str) -> str:
    """Return the value of an argument that the command needs. Raises: InvalidArguments: it is missing."""
    if not isinstance(value, str) or (argument != "insert_text" and not value):
        raise InvalidArguments("memory", f"this command needs {argument!r}")
    return value


USER_BLOCK = "human"
"""The label of the block about the user."""

CHECKPOINT_CHARS = 2_000
CHECKPOINT_DESCRIPTION = "Your working notes, shown at the end of each request: goal, what is done, what comes next."

READING_TAG = "system-reminder"
"""The tag around what a companion is given to read."""
CONTINUATION = "    "
"""How the second and later lines of a message in it begin: lines with a number are not indented so far."""
_END = f"</{READING_TAG}>"
_NUMBERED = re.compile(r"\s{0,3}(?:[Ll]ine )?(\d{1,9})[.:)]\s+(.*)")


def rethink_user_memory(tx: Tx, call: MemoryCall, new_memory: str) -> ToolOutcome:
    """Rewrite the block about the user; the result is its new value. Raises: as `edit_own_block` of the whole."""
    edit = edit_own_block(tx, call, USER_BLOCK, lambda block: rewrite(block, new_memory), whole=True)
    return ToolOutcome(text=edit.block.value, edits=(edit,) if edit.diff else ())


def store_memories(tx: Tx, call: MemoryCall, chunks: Sequence[Mapping[str, Any]]) -> ToolOutcome:
    """Store parts of the transcript that the agent was given to read in its archive. `chunks` have `start_index` and
    `end_index`, line numbers of it, and a `context` to put before. Raises: ToolError: it has no such lines."""
    rows = () if call.person is not None else tx.messages.list_by_run(call.run)  # a call by hand is in no run
    texts = [row.text for row in rows if row.role in ("user", "system") and row.kind == "message"]
    lines = transcript_lines("\n".join(texts))
    if not lines:
        raise ToolError("there is no transcript to store parts of: it stands in the message that you are answering")
    archive = own_archive(tx, call.agent.id, ArchiveId(call.ids.new("archive")), at=call.now)
    for chunk in chunks:
        first, last = chunk["start_index"], chunk["end_index"]
        text = "\n".join(line for number, line in lines.items() if first <= number <= last)
        if not text:
            raise ToolError(f"no lines {first} to {last}: the transcript has {min(lines)} to {max(lines)}")
        text = "\n\n".join(filter(None, (chunk["context"].strip(), text)))
        source = {"agent_id": call.agent.id, "run_id": call.run.id, "message_id": call.message_id}
        new = NewPassage(text=text, source=source, sources=call.passage_sources)
        insert_passage(tx, archive.id, new, ids=call.ids, at=call.now)
    return ToolOutcome(text=f"Stored {len(chunks)} {'memory' if len(chunks) == 1 else 'memories'}.")


def update_working_checkpoint(tx: Tx, call: MemoryCall, key_info: str, related_skill: str | None = None) -> ToolOutcome:
    """Replace the conversation's working notes. Raises: BlockLimitExceeded, BlockReadOnly."""
    skill = (related_skill or "").strip()
    value = "\n".join(filter(None, (key_info.strip(), f"Related skill: {skill}" if skill else "")))
    agent_id, seq = call.agent.id, call.run.conversation_seq
    if tx.blocks.find(agent_id, WORKING_CHECKPOINT, seq) is None:
        new = NewBlock(label=WORKING_CHECKPOINT, limit_chars=CHECKPOINT_CHARS, description=CHECKPOINT_DESCRIPTION)
        block = create_block(tx, BlockId(call.ids.new("block")), new, author=call.author, at=call.now)
        tx.blocks.isolate(agent_id, seq, WORKING_CHECKPOINT, block.id)  # another conversation has another task
    edit = edit_own_block(tx, call, WORKING_CHECKPOINT, lambda block: rewrite(block, value))
    text = "Noted: it stands at the end of each request until you replace it." if value else "Your notes are empty now."
    return ToolOutcome(text=text, edits=(edit,) if edit.diff else ())


def transcript_lines(text: str) -> dict[int, str]:
    """Return number -> line of a transcript, which may end with `READING_TAG`. A line without a number goes on with the
    one before it; if none has a number, they count from 0."""
    lines: dict[int, str] = {}
    for line in filter(str.strip, text.splitlines()):
        if line == _END:
            break
        if (match := _NUMBERED.match(line)) is not None:
            lines[int(match[1])] = match[2]
        elif lines:
            lines[next(reversed(lines))] += f"\n{line.removeprefix(CONTINUATION)}"
    return lines or dict(enumerate(filter(str.strip, text.splitlines())))


def _editing(edit: Callable[..., Block], *, whole: bool = False) -> Callable[..., ToolOutcome]:
    """Return the tool that changes one of the agent's blocks by `edit`, a function `(block, **arguments)`.

    Its result is the block's new value, which shows the edit to the model. `whole`: as of `edit_own_block`.
    """

    def edit_block(tx: Tx, call: MemoryCall, label: str, **arguments: Any) -> ToolOutcome:
        """The tool: `label` names the block, `arguments` are those of the edit."""
        result = edit_own_block(tx, call, label, partial(edit, **arguments), whole=whole)
        return ToolOutcome(text=result.block.value, edits=(result,) if result.diff else ())

    return edit_block


def _archival_memory_insert(
    tx: Tx, call: MemoryCall, content: str, tags: list[str] | None = None, *, is_masked: bool = False
) -> ToolOutcome:
    """Store `content` as a passage in the archive that the agent inserts into. `is_masked`: see `mask_passage`."""
    archive = own_archive(tx, call.agent.id, ArchiveId(call.ids.new("archive")), at=call.now)
    source: dict[str, str] = {"agent_id": call.agent.id}
    if call.person is None:
        source |= {"run_id": call.run.id, "message_id": call.message_id}
    match tags:
        case [one] if "," in one:  # a list as a model writes it in one text
            tags = [tag for part in one.split(",") if (tag := part.strip())]
    new = NewPassage(text=content, tags=tags or (), source=source, sources=call.passage_sources, is_masked=is_masked)
    passage = insert_passage(tx, archive.id, new, ids=call.ids, at=call.now)
    return ToolOutcome(text=json.dumps({"id": passage.id, "archived_chars": len(content), "tags": list(passage.tags)}))


def mask_passage(content: str, tags: list[str] | None = None) -> dict[str, Any]:
    """Return the arguments of `archival_memory_insert` without credentials. A text of 1 MB takes a second, in which a
    transaction would keep others waiting; what is larger is refused there."""
    if len(content) > MAX_PASSAGE_CHARS:
        return {"content": content, "tags": tags}
    masked = None if tags is None else [without_credentials(tag) for tag in tags]
    return {"content": without_credentials(content), "tags": masked, "is_masked": True}


def _send_message(tx: Tx, call: MemoryCall, message: str) -> ToolOutcome:
    """Answer a call of `send_message`, which itself is what clients are shown. Raises: InvalidArguments: empty."""
    if not message.strip():
        raise InvalidArguments("send_message", "'message' is empty: say something, or don't call it")
    return ToolOutcome(text="Sent message successfully.")


_rethink = _editing(
    lambda block, new_memory: rewrite(check_no_line_numbers(block, new_memory=new_memory), new_memory), whole=True
)

MEMORY_TOOLS: Mapping[str, Callable[..., ToolOutcome]] = {
    "send_message": _send_message,
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
    "memory_rethink": _rethink,
    "rethink_memory": lambda tx, call, target_block_label, **arguments: _rethink(
        tx, call, target_block_label, **arguments
    ),
    "memory_apply_patch": _editing(lambda block, patch: rewrite(block, apply_patch(block.value, patch))),
    "memory_finish_edits": lambda tx, call, reason="": ToolOutcome(text="Done."),
    "memory": run_memory_command,
    "rethink_user_memory": rethink_user_memory,
    "finish_rethinking_memory": lambda tx, call, reason="": ToolOutcome(text="Done."),
    "store_memories": store_memories,
    CHECKPOINT_TOOL: update_working_checkpoint,
    "archival_memory_insert": _archival_memory_insert,
    "context_expand": context_expand,
    "context_grep": context_grep,
    **feature_tools(searching=False),
}
"""Name -> function `(tx, call, **checked_arguments)`.

Raises: ToolError, InvalidInput, Conflict: texts for the model; the caller must then roll the transaction back.
"""
