"""The built-in memory tools: what a call does, inside the transaction that stores its result.

So an edit happens exactly once: either the result is in the log and the edit in the block, or neither. A tool that
raises has changed nothing, because its transaction is rolled back before the error becomes the call's result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from perdure.core.blocks import appended, inserted, replaced, rewritten
from perdure.core.ids import ArchiveId, PassageId
from perdure.core.tx import MessageFilter, PassageFilter, Tx
from perdure.memory.calls import MemoryCall, MemoryEdit, MemoryResult, edited
from perdure.memory.context_tools import context_expand, context_grep
from perdure.memory.memory_files import run_memory_command
from perdure.memory.messages import search_messages
from perdure.memory.passages import archive_of, insert_passage, search_passages
from perdure.memory.patches import apply_patch
from perdure.memory.query import parse_time

__all__ = ["run_memory_tool"]

MAX_RESULTS = 50
SHOWN_CHARS = 2_000  # of one search result; the whole message stays in the log


def run_memory_tool(tx: Tx, name: str, arguments: Mapping[str, Any], call: MemoryCall) -> MemoryResult:
    """What came of a call, its arguments checked before.

    Raises: ToolError, InvalidInput, Conflict: what the model is told; the caller's transaction must then be rolled
    back.
    """
    return _TOOLS[name](tx, call, **arguments)


def _shown(edit: MemoryEdit) -> MemoryResult:
    """The result of an edit is the block's new value: it is how the model comes to see the edit."""
    return MemoryResult(edit.block.value, (edit,) if edit.diff else ())


def _core_memory_append(tx: Tx, call: MemoryCall, label: str, content: str) -> MemoryResult:
    return _shown(edited(tx, call, label, lambda block: appended(block, content)))


def _core_memory_replace(tx: Tx, call: MemoryCall, label: str, old_content: str, new_content: str) -> MemoryResult:
    return _shown(edited(tx, call, label, lambda block: replaced(block, old_content, new_content)))


def _memory_replace(tx: Tx, call: MemoryCall, label: str, old_string: str, new_string: str) -> MemoryResult:
    return _shown(edited(tx, call, label, lambda block: replaced(block, old_string, new_string)))


def _memory_insert(tx: Tx, call: MemoryCall, label: str, new_string: str, insert_line: int = -1) -> MemoryResult:
    return _shown(edited(tx, call, label, lambda block: inserted(block, new_string, line=insert_line)))


def _memory_rethink(tx: Tx, call: MemoryCall, label: str, new_memory: str) -> MemoryResult:
    return _shown(edited(tx, call, label, lambda block: rewritten(block, new_memory)))


def _memory_apply_patch(tx: Tx, call: MemoryCall, label: str, patch: str) -> MemoryResult:
    return _shown(edited(tx, call, label, lambda block: rewritten(block, apply_patch(block.value, patch))))


def _memory_finish_edits(tx: Tx, call: MemoryCall) -> MemoryResult:
    return MemoryResult("Done.")


def _conversation_search(
    tx: Tx,
    call: MemoryCall,
    query: str | None = None,
    roles: list[str] | None = None,
    limit: int = 5,
    start_date: str | None = None,
    end_date: str | None = None,
) -> MemoryResult:
    zone = call.agent.timezone
    where = MessageFilter(
        roles=tuple(roles or ()),  # type: ignore[arg-type]  # checked against the schema's enum
        since=parse_time(start_date, timezone=zone),
        until=parse_time(end_date, timezone=zone, end=True),
        before_seq=call.run.first_message_seq,  # what is being said just now is in view anyway
    )
    hits = search_messages(tx, call.agent.id, query, where=where, limit=_bounded(limit))
    results = [
        {
            "timestamp": hit.message.occurred_at.isoformat(timespec="seconds"),
            "time_ago": _ago(call.now, hit.message.occurred_at),
            "role": hit.message.role,
            "content": _cut(hit.message.text),
        }
        for hit in hits
    ]
    found = f"Showing {len(results)} results:" if results else "No results found."
    return MemoryResult(json.dumps({"message": found, "results": results}, ensure_ascii=False))


def _archival_memory_insert(tx: Tx, call: MemoryCall, content: str, tags: list[str] | None = None) -> MemoryResult:
    archive = archive_of(tx, call.agent.id, ArchiveId(call.ids.new("archive")), at=call.now)
    passage = insert_passage(
        tx,
        archive.id,
        PassageId(call.ids.new("passage")),
        content,
        at=call.now,
        tags=tags or (),
        source={"agent_id": call.agent.id, "run_id": call.run.id, "message_id": call.message_id},
    )
    return MemoryResult(json.dumps({"id": passage.id, "archived_chars": len(content), "tags": list(passage.tags)}))


def _archival_memory_search(
    tx: Tx,
    call: MemoryCall,
    query: str,
    tags: list[str] | None = None,
    tag_match_mode: str = "any",
    top_k: int = 10,
    start_datetime: str | None = None,
    end_datetime: str | None = None,
) -> MemoryResult:
    zone = call.agent.timezone
    where = PassageFilter(
        tags=tuple(tags or ()),
        tag_match="all" if tag_match_mode == "all" else "any",
        since=parse_time(start_datetime, timezone=zone),
        until=parse_time(end_datetime, timezone=zone, end=True),
    )
    hits = search_passages(tx, call.agent.id, query, where=where, limit=_bounded(top_k))
    results = [
        {
            "id": hit.passage.id,
            "timestamp": hit.passage.occurred_at.isoformat(timespec="seconds"),
            "content": _cut(hit.passage.text),
            "tags": list(hit.passage.tags),
        }
        for hit in hits
    ]
    return MemoryResult(json.dumps(results, ensure_ascii=False))


def _bounded(count: int) -> int:
    return max(1, min(count, MAX_RESULTS))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… [{len(text) - SHOWN_CHARS:,} more characters]"


def _ago(now: datetime, then: datetime) -> str:
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


_TOOLS: dict[str, Callable[..., MemoryResult]] = {
    "core_memory_append": _core_memory_append,
    "core_memory_replace": _core_memory_replace,
    "memory_replace": _memory_replace,
    "memory_insert": _memory_insert,
    "memory_rethink": _memory_rethink,
    "memory_apply_patch": _memory_apply_patch,
    "memory_finish_edits": _memory_finish_edits,
    "memory": run_memory_command,
    "conversation_search": _conversation_search,
    "archival_memory_insert": _archival_memory_insert,
    "archival_memory_search": _archival_memory_search,
    "context_expand": context_expand,
    "context_grep": context_grep,
}
