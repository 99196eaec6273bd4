"""Lines of JSON: messages and memories of any program; and the folders that `perdure export` writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, get_args

from perdure.core.errors import InvalidInput
from perdure.core.messages import Part, ToolCall, ToolResult, parts_from_json, text_of
from perdure.core.passages import Passage
from perdure.domain.conversations.importing import NAME_MAX_CHARS, ImportedMessage, ImportedRole
from perdure.domain.conversations.transfer import parse_line
from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import (
    LeftOut,
    SourceAgent,
    SourceConversation,
    SourceItem,
    SourceMemory,
    hash_of,
    joined,
    key_of,
    list_in,
    object_in,
    of_agent,
    text_in,
    time_of,
)
from perdure.features.imports.sources.kinds import missing_file, wrong_item
from perdure.features.imports.sources.streams import json_lines

EMPTY = "lines without a text"
OPEN_CALLS = "calls of tools without a result, or results without a call"
AGENT, MESSAGES, PASSAGES = "agent.json", "messages.jsonl", "passages.jsonl"
"""The files of a folder that `perdure export` writes."""
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
        id_ = key_of(document.get("exported_agent_id") or folder.as_posix())
        yield SourceAgent(id=id_, name=str(document["agents"][0]["name"]), file=file)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{name}: it is no agent that `perdure export` has written") from error
    for lines in (folder / MESSAGES, folder / PASSAGES):
        for found in files.find(lines.name):
            if found == lines.as_posix():
                for item in _lines(files, found, is_own=True):
                    yield item if isinstance(item, (SourceAgent, LeftOut)) else of_agent(item, id_)


def _lines(files: SourceFiles, name: str, *, is_own: bool = False) -> Iterator[SourceItem]:
    """Yield what the lines of a file say, with `is_own` one that `perdure export` has written; lines of one
    conversation that follow one another are one. Raises: InvalidInput."""
    open_: SourceConversation | None = None
    messages: list[ImportedMessage] = []
    for number, value in json_lines(files, name):
        try:
            if not isinstance(value, dict):
                raise wrong_item(value, "jsonl", "it", "an object")
            is_message = "role" in value
            if not is_message and "conversation" not in value:
                yield from _memory(value, is_own=is_own)
                continue
            key = key_of(value.get("conversation") or PurePosixPath(name).stem)
            if open_ is None or open_.id != key:
                yield from _whole(open_, messages)
                open_, messages = SourceConversation(id=key, messages=()), []
            if not is_message:
                open_ = _head(open_, value)
            elif (message := _message(value)) is None:
                yield LeftOut(EMPTY)
            else:
                messages.append(message)
        except (InvalidInput, ValueError, TypeError, LookupError, AttributeError) as error:
            raise InvalidInput(f"{name}: line {number:,}: {error!s:.300}") from error
    yield from _whole(open_, messages)


def _head(conversation: SourceConversation, value: Mapping[str, Any]) -> SourceConversation:
    """Return the conversation with what a line without a message says about it."""
    return replace(
        conversation,
        title=text_in(value.get("title")),
        created_at=time_of(value.get("created_at")),
        is_first=value.get("first") is True,
        archived=value.get("archived") is True,
    )


def _whole(conversation: SourceConversation | None, messages: Sequence[ImportedMessage]) -> Iterator[SourceItem]:
    """Yield a conversation with its messages, each call of which has its result behind it."""
    if conversation is None:
        return
    kept = list(_answered(messages))
    if lost := sum(len(one.parts) for one in messages) - sum(len(one.parts) for one in kept):
        yield LeftOut(OPEN_CALLS, lost)
    if kept or conversation.title:
        yield replace(conversation, messages=kept)


def _answered(messages: Sequence[ImportedMessage]) -> Iterator[ImportedMessage]:
    """Yield the messages without calls that have no result behind them, and without results that have no call."""
    results = {
        part.call_id: at for at, one in enumerate(messages) for part in one.parts if isinstance(part, ToolResult)
    }
    called: set[str] = set()
    for at, one in enumerate(messages):
        parts: list[Part] = []
        for part in one.parts:
            if isinstance(part, ToolCall):
                if part.call_id in called or results.get(part.call_id, -1) <= at:
                    continue
                called.add(part.call_id)
            elif isinstance(part, ToolResult) and (part.call_id not in called or results[part.call_id] != at):
                continue
            parts.append(part)
        if len(parts) == len(one.parts):
            yield one
        elif parts:
            yield replace(one, parts=tuple(parts), text=text_of(parts))


def _message(value: Mapping[str, Any]) -> ImportedMessage | None:
    """Return the message of a line; None: it has no text. Raises: InvalidInput, ValueError, TypeError, LookupError."""
    role: Any = value["role"]
    parts = parts_from_json(json.dumps(value["parts"])) if "parts" in value else ()
    text = text_of(parts) if parts else _content(value.get("text", value.get("content")))
    name = text_in(value.get("name"))
    if role == "tool" and not parts:
        role, text = "assistant", f"[tool {name or 'result'}: {text}]" if text else ""
    if role not in (*get_args(ImportedRole), "tool"):
        raise InvalidInput(f"role is {role!r:.80}: it can be {', '.join(map(repr, get_args(ImportedRole)))}, 'tool'")
    said = value.get("occurred_at", value.get("created_at", value.get("timestamp")))
    if (at := time_of(said)) is None:
        raise InvalidInput(f"occurred_at is {said!r:.60}: give a time, such as 2026-11-20T15:30:00+01:00")
    if not (text or parts):
        return None
    id_ = key_of(value["id"]) if value.get("id") not in (None, "") else None
    return ImportedMessage(
        role=role, text=text, occurred_at=at, name=name[:NAME_MAX_CHARS] or None, id=id_, parts=parts
    )


def _content(value: Any) -> str:
    """Return the text of a message, which may be a list of parts as OpenAI's API has them."""
    if isinstance(value, list):
        return joined(
            text_in(one.get("text")) or f"[{one.get('type', 'part')}]" if isinstance(one, dict) else text_in(one)
            for one in value
        )
    return text_in(value)


def _memory(value: dict[str, Any], *, is_own: bool) -> Iterator[SourceItem]:
    """Yield the memory of a line; nothing of the head of an archive. Raises: InvalidInput."""
    if "perdure" in value:
        return
    if is_own:
        passage = parse_line(json.dumps(value))
        assert isinstance(passage, Passage)
        yield SourceMemory(id=passage.id, text=passage.text, created_at=passage.occurred_at, passage=passage)
        return
    if not {"memory", "text"} & value.keys():
        raise wrong_item(value, "jsonl", "it", "a message (role, text, occurred_at) or a memory (text)")
    text = text_in(value.get("memory", value.get("text")))
    said = value.get("occurred_at", value.get("created_at", value.get("timestamp")))
    if not text:
        yield LeftOut(EMPTY)
        return
    if (at := time_of(said)) is None:
        raise InvalidInput(f"occurred_at is {said!r:.60}: give a time, such as 2026-11-20T15:30:00+01:00")
    yield SourceMemory(
        id=key_of(value.get("id") or hash_of(text, at.isoformat())),
        text=text,
        created_at=at,
        tags=tuple(map(str, list_in(value.get("tags")))),
        metadata=dict(object_in(value.get("metadata"))),
    )
