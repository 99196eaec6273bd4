"""The memory tools of voice agents: one agent talks, another one keeps its memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.blocks import rewrite
from perdure.core.errors import ToolError
from perdure.core.ids import ArchiveId
from perdure.core.tools.spec import ToolOutcome
from perdure.domain.archives.passages import NewPassage, insert_passage, own_archive
from perdure.domain.tools.calls import MemoryCall, edit_own_block
from perdure.storage.tx import Tx

USER_BLOCK = "human"
"""The label of the block about the user."""

_NUMBERED = re.compile(r"\s*(?:[Ll]ine )?(\d{1,9})[.:)]\s+(.*)")


def rethink_user_memory(tx: Tx, call: MemoryCall, new_memory: str) -> ToolOutcome:
    """Rewrite the block about the user; the result is its new value."""
    done = edit_own_block(tx, call, USER_BLOCK, lambda block: rewrite(block, new_memory))
    return ToolOutcome(text=done.block.value, edits=(done,) if done.diff else ())


def store_memories(tx: Tx, call: MemoryCall, chunks: Sequence[Mapping[str, Any]]) -> ToolOutcome:
    """Store parts of the transcript in the agent's archive, each behind its context.

    Raises: ToolError: there is no transcript, or it has no such lines; nothing is stored then.
    """
    lines = transcript_lines("\n".join(_input(tx, call)))
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
        insert_passage(tx, archive.id, NewPassage(text=text, source=source), ids=call.ids, at=call.now)
    return ToolOutcome(text=f"Stored {len(chunks)} {'memory' if len(chunks) == 1 else 'memories'}.")


def transcript_lines(text: str) -> dict[int, str]:
    """Return the lines of a transcript by number, without it. A line without a number goes on with the one before it;
    if none has one, they count from 0."""
    lines: dict[int, str] = {}
    for line in filter(str.strip, text.splitlines()):
        if (match := _NUMBERED.match(line)) is not None:
            lines[int(match[1])] = match[2]
        elif lines:
            lines[next(reversed(lines))] += f"\n{line}"
    return lines or dict(enumerate(filter(str.strip, text.splitlines())))


def _input(tx: Tx, call: MemoryCall) -> list[str]:
    """The texts that the run answers; a call by hand is in no run."""
    messages = () if call.person is not None else tx.messages.list_by_run(call.run)
    return [one.text for one in messages if one.role in ("user", "system") and one.kind == "message"]
