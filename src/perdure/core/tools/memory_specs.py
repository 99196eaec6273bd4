"""The specs of the built-in memory tools: names and arguments as in Letta, descriptions of our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.core.tools.spec import ToolSpec, ToolTrait, object_schema


def _spec(
    name: str,
    description: str,
    properties: dict[str, Any],
    required: Sequence[str] = (),
    *,
    tool_type: str = "letta_core",
    parallel: bool = False,
    writes_memory: bool = True,
    traits: Sequence[ToolTrait] = (),
) -> ToolSpec:
    """The spec of a memory tool whose arguments have these JSON schemas."""
    return ToolSpec(
        name=name,
        description=description,
        parameters=object_schema(properties, required),
        kind="memory",
        tool_type=tool_type,
        idempotent=True,  # the result is in the transaction of the edit, so no call runs twice
        parallel=parallel,
        writes_memory=writes_memory,
        traits=frozenset(("repeats", *traits)),
    )


def _text(description: str) -> dict[str, Any]:
    """The schema of a text."""
    return {"type": "string", "description": description}


def _number(description: str) -> dict[str, Any]:
    """The schema of a whole number."""
    return {"type": "integer", "description": description}


CHECKPOINT_TOOL = "update_working_checkpoint"
_VOICE = "letta_voice_sleeptime_core"
_REASON = _text("What you changed and why, in one sentence. It stands beside each of your edits.")
_LABEL = _text("Label of the memory block to edit.")
_SINCE = _text("Only what is from this date or time on, such as 2026-11-20 or 2026-11-20T15:30. Included.")
_UNTIL = _text("Only what is up to this date or time. A date includes the whole day.")

_SPECS = (
    _spec(
        "send_message",
        "Say something to the person you talk with.",
        {"message": _text("What to say, as they are to read it.")},
        ("message",),
        writes_memory=False,
    ),
    _spec(
        "core_memory_append",
        "Add text as a new last line of a memory block. Returns the block's new value.",
        {"label": _LABEL, "content": _text("The text to add.")},
        ("label", "content"),
        traits=(
            "shows_block",
            "saves",
        ),
    ),
    _spec(
        "core_memory_replace",
        "Replace text in a memory block. The old text must stand in the block exactly once. Returns the new value.",
        {
            "label": _LABEL,
            "old_content": _text("The text to replace, exactly as it stands in the block."),
            "new_content": _text("What to put in its place; empty to delete."),
        },
        ("label", "old_content", "new_content"),
        traits=("shows_block",),
    ),
    _spec(
        "memory_replace",
        "Replace text in a memory block. The old text must stand in the block exactly once, white space included: give"
        " enough of it to be unique. Returns the block's new value.",
        {
            "label": _LABEL,
            "old_string": _text("The text to replace, exactly as it stands in the block."),
            "new_string": _text("What to put in its place; empty to delete."),
        },
        ("label", "old_string", "new_string"),
        tool_type="letta_sleeptime_core",
        traits=(
            "shows_block",
            "saves",
        ),
    ),
    _spec(
        "memory_insert",
        "Insert text as new lines of a memory block. Returns the block's new value.",
        {
            "label": _LABEL,
            "new_string": _text("The text to insert."),
            "insert_line": _number("Insert after this line, counted from 1; 0 is the beginning, -1 (default) the end."),
        },
        ("label", "new_string"),
        tool_type="letta_sleeptime_core",
        traits=(
            "shows_block",
            "saves",
        ),
    ),
    _spec(
        "memory_rethink",
        "Rewrite a memory block as a whole: to reorganise it, to shorten it, or to fold in much that is new. What is"
        " not in the new text is gone from the block. Refused if somebody else has changed the block since you saw it:"
        " merge, and call again. Returns the block's new value.",
        {"label": _LABEL, "new_memory": _text("The whole new value of the block.")},
        ("label", "new_memory"),
        tool_type="letta_sleeptime_core",
        traits=("shows_block",),
    ),
    _spec(
        "memory_apply_patch",
        "Change several places of a memory block at once by a patch: a unified diff (@@ with ' ', '-' and '+' lines)"
        " or the form *** Begin Patch / *** Update File: label / *** End Patch. Either all of it fits or nothing is"
        " changed. Returns the block's new value.",
        {"label": _LABEL, "patch": _text("The patch.")},
        ("label", "patch"),
        traits=("shows_block",),
    ),
    _spec(
        "memory_finish_edits",
        "Say that you are done with editing memory.",
        {"reason": _REASON},
        tool_type="letta_sleeptime_core",
        writes_memory=False,
    ),
    _spec(
        "memory",
        "Work on memory blocks like files under /memories. view: show a block, or the list of blocks for /memories."
        " create: a new block. str_replace: replace text that stands in the block exactly once. insert: insert lines."
        " delete: remove a block from your memory. rename: give a block another label.",
        {
            "command": {
                "type": "string",
                "enum": ["view", "create", "str_replace", "insert", "delete", "rename"],
                "description": "What to do.",
            },
            "path": _text("The block, such as /memories/human. For all commands but rename."),
            "file_text": _text("create: the block's value."),
            "description": _text(
                "create: what the block is for. rename: a new description, with or without a new path."
            ),
            "old_string": _text("str_replace: the text to replace, exactly as it stands in the block."),
            "new_string": _text("str_replace: what to put in its place."),
            "insert_line": _number(
                "insert: after this line, counted from 1; 0 is the beginning, -1 (default) the end."
            ),
            "insert_text": _text("insert: the text."),
            "old_path": _text("rename: the block."),
            "new_path": _text("rename: its new path."),
        },
        ("command",),
        tool_type="letta_memory_core",
        traits=("saves",),
    ),
    _spec(
        "conversation_search",
        "Search the whole history of your conversations, also what is no longer in view. Without a query, the newest"
        " messages of the given dates and roles.",
        {
            "query": _text('What to look for: words, or a "phrase" in quotes. All languages.'),
            "roles": {
                "type": "array",
                "items": {"type": "string", "enum": ["assistant", "user", "tool"]},
                "description": "Only messages of these roles.",
            },
            "limit": _number("At most this many results (default 5, up to 50)."),
            "offset": _number("Pass over so many results, to see those behind them."),
            "start_date": _SINCE,
            "end_date": _UNTIL,
        },
        parallel=True,
        writes_memory=False,
        traits=("recalls",),
    ),
    _spec(
        "archival_memory_insert",
        "Put a text into archival memory, where archival_memory_search finds it again. One self-contained fact, note or"
        " document a call.",
        {
            "content": _text("The text to keep."),
            "tags": {"type": "array", "items": {"type": "string"}, "description": "Tags to find it by."},
        },
        ("content",),
        traits=("saves",),
    ),
    _spec(
        "archival_memory_search",
        "Search archival memory. The best matches come first.",
        {
            "query": _text("What to look for; empty for the newest."),
            "tags": {"type": "array", "items": {"type": "string"}, "description": "Only passages with these tags."},
            "tag_match_mode": {
                "type": "string",
                "enum": ["any", "all"],
                "description": "Whether one of the tags is enough (any, the default) or all are needed.",
            },
            "top_k": _number("At most this many results (default 10, up to 50)."),
            "offset": _number("Pass over so many results, to see those behind them."),
            "start_datetime": _SINCE,
            "end_datetime": _UNTIL,
        },
        ("query",),
        parallel=True,
        writes_memory=False,
        traits=("recalls",),
    ),
    _spec(
        CHECKPOINT_TOOL,
        "Replace your working notes: the goal, what is done, what comes next, what must not be forgotten. They stand at"
        " the end of each request until you replace them, also after older messages have left your view.",
        {
            "key_info": _text("The notes, short; empty to remove them."),
            "related_skill": _text("The skill or procedure that you follow, if there is one."),
        },
        ("key_info",),
        writes_memory=False,
        traits=("saves",),
    ),
    _spec(
        "search_facts",
        "Search the facts that are known about people, places and things. Each comes with the time at which it was true"
        " and its source. The best matches come first.",
        {
            "query": _text("What to look for; empty for the newest."),
            "entity": _text("Only facts about the one with this name."),
            "at": _text("Only what was true at this date or time, such as 2026-11-20 or 2026-11-20T15:30."),
            "limit": _number("At most this many results (default 10, up to 50)."),
        },
        ("query",),
        parallel=True,
        writes_memory=False,
        traits=("recalls",),
    ),
    _spec(
        "rethink_memory",
        "The older name of memory_rethink: rewrite a memory block as a whole. Returns the block's new value.",
        {"new_memory": _text("The whole new value of the block."), "target_block_label": _LABEL},
        ("new_memory", "target_block_label"),
        tool_type="letta_sleeptime_core",
        traits=("shows_block",),
    ),
    _spec(
        "rethink_user_memory",
        "Rewrite what is known about the user, the memory block human, as a whole: keep what still holds and fold in"
        " what is new. Returns the block's new value.",
        {"new_memory": _text("The whole new value of the block.")},
        ("new_memory",),
        tool_type=_VOICE,
    ),
    _spec(
        "finish_rethinking_memory",
        "Say that you are done with rethinking memory.",
        {"reason": _REASON},
        tool_type=_VOICE,
        writes_memory=False,
    ),
    _spec(
        "store_memories",
        "Keep parts of the transcript in the message that you are answering: search_memory and archival_memory_search"
        " find them again.",
        {
            "chunks": {
                "type": "array",
                "items": object_schema(
                    {
                        "start_index": _number("The number of the first line."),
                        "end_index": _number("The number of the last line. Included."),
                        "context": _text("What the lines are about, for somebody who reads nothing else."),
                    },
                    ("start_index", "end_index", "context"),
                ),
                "description": "The parts to keep, each one subject.",
            },
        },
        ("chunks",),
        tool_type=_VOICE,
    ),
    _spec(
        "search_memory",
        "Look up what is not in view: earlier messages and archival memory. Only when somebody refers to it.",
        {
            "convo_keyword_queries": {
                "type": "array",
                "items": {"type": "string"},
                "description": "What to look for: a few words each. None: the newest messages of the given time.",
            },
            "start_minutes_ago": _number("Only what is at most so many minutes old."),
            "end_minutes_ago": _number("Only what is at least so many minutes old."),
        },
        tool_type=_VOICE,
        parallel=True,
        writes_memory=False,
        traits=("recalls",),
    ),
    _spec(
        "schedule_create",
        "Have yourself woken later, once or again and again. You are then told the message and may act. Give exactly"
        " one of at, every and cron. Returns the schedule with its next times.",
        {
            "message": _text("What you want to be told then."),
            "at": _text("Once, at this time: 2026-11-24T09:00, 09:00 for the next time it is nine, or 'in 20m'."),
            "every": _text("Again and again after so long: 30m, 2h, 1d."),
            "cron": _text("By a cron expression of five fields, such as 0 9 * * MON-FRI."),
            "timezone": _text("The time zone of these, such as Europe/Rome; by default yours."),
            "name": _text("A short name."),
            "times": _number("How often at most."),
            "until": _text("Not after this time."),
            "quiet_hours": _text("Not between these times of day, such as 22:00-07:00; what falls there comes after."),
        },
        ("message",),
    ),
    _spec("schedule_list", "List your schedules that still fire, with their next times.", {}, writes_memory=False),
    _spec(
        "schedule_cancel",
        "Cancel one of the schedules that you made.",
        {"schedule_id": _text("The schedule: schedule-, then a uuid.")},
        ("schedule_id",),
        writes_memory=False,
    ),
    _spec(
        "open_files",
        "Read lines of files in your folders. They are shown in the result and stay open: in view until the file is"
        " closed. When too many are open, the one used longest ago is closed.",
        {
            "file_requests": {
                "type": "array",
                "items": object_schema(
                    {
                        "file_name": _text("The file, such as docs/plan.md."),
                        "offset": _number("How many lines to pass over; by default 0, the beginning of the file."),
                        "length": _number("How many lines to show; by default as many as fit."),
                    },
                    ("file_name",),
                ),
                "description": "The files to read; empty to only close files.",
            },
            "close_all_others": {"type": "boolean", "description": "Close all other files (default false)."},
        },
        ("file_requests",),
        tool_type="letta_files_core",
        writes_memory=False,
    ),
    _spec(
        "grep_files",
        "Find lines in your files by a regular expression, in any case. Each match comes with its file and line.",
        {
            "pattern": _text("The regular expression, such as a word."),
            "include": _text("Only files whose path matches, such as *.py or docs/*."),
            "context_lines": _number("Lines to show before and after each match (default 1, up to 10)."),
            "offset": _number("How many matches to pass over, to go on after a page."),
        },
        ("pattern",),
        tool_type="letta_files_core",
        parallel=True,
        writes_memory=False,
    ),
    _spec(
        "search_output",
        "Search a long result of a tool, such as one of index_output, by what it says. The best passages come first,"
        " with their lines.",
        {
            "handle": _text("The result, such as msg-17."),
            "query": _text("What to look for."),
            "max_tokens": _number("At most this many tokens (default 1000, up to 4000)."),
            "offset": _number("How many passages to pass over, to go on after a page."),
        },
        ("handle", "query"),
        parallel=True,
        writes_memory=False,
    ),
    _spec(
        "semantic_search_files",
        "Find passages in your files by what they say. Each comes with its file and lines; open_files shows more.",
        {
            "query": _text("What to look for."),
            "limit": _number("At most this many passages (default 5, up to 50)."),
        },
        ("query",),
        tool_type="letta_files_core",
        parallel=True,
        writes_memory=False,
    ),
)

_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}

# These two are in every request with tools, so each word counts: one description names all arguments.
_CONTEXT_SPECS = (
    _spec(
        "context_expand",
        "Open what is out of view. handle: node-3, msg-17 or msg-17..40. rows: only numbers 20..30. lines of one"
        " message: 120..180, or 3:500..900 for characters of line 3. grep: regex. path, where (a=b"
        " and c>3): of a result. max_tokens: default 1000, up to 4000.",
        {
            **dict.fromkeys(("handle", "rows", "lines", "grep", "path", "where"), _STRING),
            "max_tokens": _INTEGER,
        },
        ("handle",),
        tool_type="perdure_context",
        parallel=True,
        writes_memory=False,
        traits=("recalls",),
    ),
    _spec(
        "context_grep",
        "Lines of this conversation (or of a handle) that match a regex, newest first. from: where to go on.",
        {"pattern": _STRING, "handle": _STRING, "max_tokens": _INTEGER, "from": _STRING},
        ("pattern",),
        tool_type="perdure_context",
        parallel=True,
        writes_memory=False,
        traits=("recalls",),
    ),
)

MEMORY_TOOL_SPECS: dict[str, ToolSpec] = {spec.name: spec for spec in _SPECS}
"""Name -> spec, of every built-in memory tool."""

CONTEXT_TOOL_SPECS: dict[str, ToolSpec] = {spec.name: spec for spec in _CONTEXT_SPECS}
"""Name -> spec, of the tools that open what is out of view. The engine adds them to every request with tools; they are
not stored."""

_MEMGPT_TOOLS = (
    "send_message",
    "conversation_search",
    "core_memory_append",
    "core_memory_replace",
    "memory",
    "memory_apply_patch",
)

DEFAULT_TOOLS: dict[str, tuple[str, ...]] = {
    "letta_v1_agent": ("conversation_search", "memory_insert", "memory_replace"),
    "memgpt_agent": _MEMGPT_TOOLS,
    "memgpt_v2_agent": ("send_message", "conversation_search", "memory_insert", "memory_replace"),
    "split_thread_agent": _MEMGPT_TOOLS,
    "sleeptime_agent": ("memory_replace", "memory_insert", "memory_rethink", "memory_finish_edits"),
    "voice_sleeptime_agent": ("store_memories", "rethink_user_memory", "finish_rethinking_memory"),
}
"""Agent type -> the tools it has from the start."""

DEFAULT_RULES: dict[str, tuple[dict[str, str], ...]] = {
    agent_type: (
        {"type": "exit_loop", "tool_name": last},
        *({"type": "continue_loop", "tool_name": name} for name in DEFAULT_TOOLS[agent_type] if name != last),
    )
    for agent_type, last in (
        ("sleeptime_agent", "memory_finish_edits"),
        ("voice_sleeptime_agent", "finish_rethinking_memory"),
    )
}
"""Agent type -> the rules of these tools."""

FILE_TOOLS = ("open_files", "grep_files", "semantic_search_files")
"""The tools of an agent with a folder."""

SCHEDULE_TOOLS = ("schedule_create", "schedule_list", "schedule_cancel")
"""The tools by which an agent has itself woken."""

ARCHIVAL_TOOLS = ("archival_memory_insert", "archival_memory_search")
