"""Lines of JSON: messages and memories of any program; and the folders that `perdure export` writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice, takewhile
from pathlib import PurePosixPath
from typing import Any, get_args

from perdure.core.errors import InvalidInput
from perdure.core.ids import is_id
from perdure.core.messages import ToolCall, ToolResult, parts_from_json, text_of
from perdure.core.passages import Passage
from perdure.domain.conversations.importing import NAME_MAX_CHARS, ImportedMessage, ImportedRole
from perdure.domain.conversations.transfer import parse_fields
from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import (
    COMPANIONS,
    Omission,
    SourceAgent,
    SourceConversation,
    SourceItem,
    SourceMemory,
)
from perdure.features.imports.sources.kinds import missing_file, wrong_item
from perdure.features.imports.sources.plain import hash_of, join_all, key_of, list_in, object_in, text_in, time_of
from perdure.features.imports.sources.streams import json_lines, read_each

EMPTY = "lines without a text"
OPEN_CALLS = "calls of tools without a result, or results without a call"
AGENT, MESSAGES, PASSAGES = "agent.json", "messages.jsonl", "passages.jsonl"
"""The files of a folder that `perdure export` writes."""
FORMER_MAX = 20
NO_TIME = datetime.min.replace(tzinfo=UTC)
_AGENT_BYTES = 256 << 20


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield the messages and memories of lines, or the agents of a folder of exports. Raises: InvalidInput."""
    if not files.is_one and (agents := files.find(AGENT)):
        for name in agents:
            yield from _agent(files, PurePosixPath(name).parent)
        return
    if not (names := files.find("*.jsonl", "*.ndjson")):
        raise missing_file(files.label, "file of lines of JSON (*.jsonl)")
    for name in names:
        yield from _lines(files, name)


def _agent(files: SourceFiles, folder: PurePosixPath) -> Iterator[SourceItem]:
    """Yield an agent of a folder of exports, with its conversations and passages. Raises: InvalidInput."""
    name = (folder / AGENT).as_posix()
    file = files.read(name, _AGENT_BYTES)
    try:
        document = json.loads(file)
        if document.get("companion") is True:
            yield Omission(COMPANIONS)
            return
        id_ = key_of(document.get("exported_agent_id") or folder.as_posix())
        former = tuple(
            tuple(one for one in (id_, *chain) if is_id("agent", one))[:FORMER_MAX]
            for chain in document.get("former_agents") or [()]
        )
        yield SourceAgent(id=id_, name=str(document["agents"][0]["name"]), file=file, former=former)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{name}: it is not an agent that `perdure export` has written") from error
    for found in files.find(MESSAGES, PASSAGES):
        if PurePosixPath(found).parent == folder:
            for item in _lines(files, found, is_own=True):
                yield replace(item, agent=id_) if isinstance(item, (SourceConversation, SourceMemory)) else item


def _lines(files: SourceFiles, name: str, *, is_own: bool = False) -> Iterator[SourceItem]:
    """Yield the items of a file's lines, with `is_own` in the form of `perdure export`; adjacent lines of one
    conversation become one item. Raises: InvalidInput."""
    talk: SourceConversation | None = None
    messages: list[ImportedMessage] = []
    otherwise = files.modified_at(name)
    untimed: Counter[str] = Counter()
    first = next((json.dumps(value) for _, value in json_lines(files, name, is_own=is_own)), "")
    own_key = key_of(files.identity(name, first))
    lines = ((value, f"{name}: line {number}", otherwise) for number, value in json_lines(files, name, is_own=is_own))
    for found in read_each(lines, partial(_line, own_key=own_key, is_own=is_own), is_strict=is_own):
        if not isinstance(found, tuple):
            yield found
            continue
        key, part = found
        if talk is None or talk.id != key:
            yield from _with_complete_calls(talk, _fill_times(messages, otherwise), is_own=is_own)
            talk, messages = SourceConversation(id=key, messages=()), []
        if isinstance(part, SourceConversation):
            talk = part
            continue
        if part.occurred_at == NO_TIME and part.id is None:
            said = hash_of(key, part.role, part.name or "", part.text)
            untimed[said] += 1
            part = replace(part, id=f"untimed {said} {untimed[said]}")
        messages.append(part)
    yield from _with_complete_calls(talk, _fill_times(messages, otherwise), is_own=is_own)


def _line(
    value: Any, name: str, at: datetime, *, own_key: str, is_own: bool
) -> Iterator[SourceItem | tuple[str, SourceConversation | ImportedMessage]]:
    """Yield a memory, or the id of a conversation with a message of it, or with what is said about it. Raises:
    InvalidInput, ValueError, TypeError, LookupError, AttributeError."""
    if not isinstance(value, dict):
        raise wrong_item(value, "jsonl", "it", "an object")
    key = key_of(value.get("conversation") or own_key)
    if "role" in value:
        message = _message(value)
        yield Omission(EMPTY) if message is None else (key, message)
    elif "conversation" in value:
        is_first, archived = value.get("first") is True, value.get("archived") is True
        title, created_at = text_in(value.get("title")), time_of(value.get("created_at"))
        about = SourceConversation(
            id=key, title=title, created_at=created_at, messages=(), is_first=is_first, archived=archived
        )
        yield key, about
    elif "perdure" not in value:  # which begins an archive
        yield _own_memory(value) if is_own else _memory(value, at)


def _fill_times(messages: Sequence[ImportedMessage], otherwise: datetime) -> Sequence[ImportedMessage]:
    """Return messages, each without a time with that of the one before, else the first time, else `otherwise`."""
    at = next((message.occurred_at for message in messages if message.occurred_at != NO_TIME), otherwise)
    found = []
    for one in messages:
        at = at if one.occurred_at == NO_TIME else one.occurred_at
        found.append(replace(one, occurred_at=at))
    return found


def _with_complete_calls(
    talk: SourceConversation | None, messages: Sequence[ImportedMessage], *, is_own: bool
) -> Iterator[SourceItem]:
    """Yield a conversation whose calls are each followed by their result, or wait at its end."""
    waiting = _count_unfinished(messages) if is_own else 0
    end = len(messages) - waiting
    kept = [*_drop_open_calls(messages[:end]), *messages[end:]]
    if lost := sum(len(message.parts) for message in messages) - sum(len(one.parts) for one in kept):
        yield Omission(OPEN_CALLS, lost)
    if talk is not None and (kept or talk.title or is_own):
        yield replace(talk, messages=kept, waiting=waiting)


def _count_unfinished(messages: Sequence[ImportedMessage]) -> int:
    """Return how many of the last messages are an answer with waiting calls and results of its other calls."""
    results = len([*takewhile(lambda one: one.role == "tool", reversed(messages))])
    last = messages[-1 - results :][0] if len(messages) > results else None
    calls = [part for part in last.parts if isinstance(part, ToolCall)] if last is not None else []
    given = [part for one in messages[len(messages) - results :] for part in one.parts if isinstance(part, ToolResult)]
    is_open = any(one.awaits for one in calls if one.call_id not in {each.call_id for each in given})
    return results + 1 if is_open and {one.call_id for one in given} <= {call.call_id for call in calls} else 0


def _drop_open_calls(messages: Sequence[ImportedMessage]) -> Iterator[ImportedMessage]:
    """Yield the messages without calls whose result does not follow at once, and without results that have no call."""
    called: set[str] = set()
    open_calls: set[str] = set()
    for at, one in enumerate(messages):
        if one.role != "tool":
            results = takewhile(lambda each: each.role == "tool", islice(messages, at + 1, None))
            answered = {part.call_id for each in results for part in each.parts if isinstance(part, ToolResult)}
            open_calls = {part.call_id for part in one.parts if isinstance(part, ToolCall)} & answered - called
            called |= open_calls
        parts = []
        for part in one.parts:
            if not isinstance(part, (ToolCall, ToolResult)) or part.call_id in open_calls:
                parts.append(part)
            if isinstance(part, ToolResult):
                open_calls.discard(part.call_id)
        if len(parts) == len(one.parts):
            yield one
        elif parts:
            yield replace(one, parts=tuple(parts), text=text_of(parts))


def _message(value: Mapping[str, Any]) -> ImportedMessage | None:
    """Return the message of a line; None: it has no text. Raises: InvalidInput, ValueError, TypeError, LookupError."""
    role: Any = value["role"]
    parts = parts_from_json(json.dumps(value["parts"])) if "parts" in value else ()
    text = text_of(parts) if parts else _text(value.get("text", value.get("content")))
    name, at = text_in(value.get("name"))[:NAME_MAX_CHARS], _time(value, NO_TIME)
    if role == "tool" and not parts:
        role, text = "assistant", text and f"[tool {name or 'result'}: {text}]"
    if role not in (*get_args(ImportedRole), "tool"):
        raise InvalidInput(f"role is {role!r:.80}: it can be {', '.join(map(repr, get_args(ImportedRole)))}, 'tool'")
    if not (text or parts):
        return None
    id_ = key_of(value["id"]) if value.get("id") not in (None, "") else None
    source = text_in(value.get("import"))
    return ImportedMessage(
        role=role,
        text=text,
        occurred_at=at,
        name=name or None,
        id=id_,
        parts=parts,
        source=source,
        reset=value.get("reset") is True,
    )


def _text(value: Any) -> str:
    """Return the text of a message, which may be a list of parts as OpenAI's API has them."""
    if not isinstance(value, list):
        return text_in(value)
    return join_all(
        text_in(one) or text_in(object_in(one).get("text")) or f"[{object_in(one).get('type', 'part')}]"
        for one in value
    )


def _time(value: Mapping[str, Any], otherwise: datetime) -> datetime:
    """Return the time of a line, or `otherwise` if it has none. Raises: InvalidInput."""
    said = value.get("occurred_at", value.get("created_at", value.get("timestamp")))
    if (at := otherwise if said in (None, "") else time_of(said)) is None:
        raise InvalidInput(f"occurred_at is {said!r:.60}: give a time, such as 2026-11-20T15:30:00+01:00")
    return at


def _own_memory(value: Mapping[str, Any]) -> SourceMemory:
    """Return the passage of a line that an export has written. Raises: InvalidInput."""
    passage = parse_fields(value)
    assert isinstance(passage, Passage)  # another line begins with `perdure`
    return SourceMemory(id=passage.id, text=passage.text, created_at=passage.occurred_at, passage=passage)


def _memory(value: Mapping[str, Any], otherwise: datetime) -> SourceItem:
    """Return the memory on a line (default time `otherwise`), or a note that it has no text. Raises: InvalidInput."""
    if not {"memory", "text"} & value.keys():
        raise wrong_item(value, "jsonl", "it", "a message (role, text, occurred_at) or a memory (text)")
    if not (text := text_in(value.get("memory", value.get("text")))):
        return Omission(EMPTY)
    at = _time(value, NO_TIME)
    return SourceMemory(
        id=key_of(value.get("id") or hash_of(text, at.isoformat())),
        text=text,
        created_at=otherwise if at == NO_TIME else at,
        tags=tuple(map(str, list_in(value.get("tags")))),
        metadata=dict(object_in(value.get("metadata"))),
    )
