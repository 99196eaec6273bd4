"""Claude's export: conversations, which branch where a message was edited, documents of projects, and memories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.domain.conversations.importing import ImportedMessage
from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import (
    LeftOut,
    SourceConversation,
    SourceItem,
    SourceMemory,
    fill_times,
    joined,
    key_of,
    list_in,
    object_in,
    text_in,
    time_of,
)
from perdure.features.imports.sources.kinds import missing_file, wrong_item
from perdure.features.imports.sources.streams import json_items

EMPTY = "conversations without a message"
_ROLES: Mapping[Any, Any] = {"human": "user", "user": "user", "assistant": "assistant"}


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield conversations, documents and memories of an export. Raises: InvalidInput."""
    names = files.find("conversations.json")
    if not names and not files.find("projects.json", "memories.json"):
        raise missing_file(files.label, "conversations.json")
    for name in names:
        for value in json_items(files, name):
            if isinstance(value, dict) and isinstance(value.get("chat_messages"), list):
                yield _conversation(value, files, name)
            elif files.is_one and isinstance(value, dict) and ("docs" in value or "conversations_memory" in value):
                yield from (*_documents(value, files, name), *_memories(value, files, name))
            else:
                raise wrong_item(value, "claude", name, "a conversation with `chat_messages`")
    if not files.is_one:
        for name in files.find("projects.json", "memories.json"):
            for value in json_items(files, name):
                yield from (*_documents(value, files, name), *_memories(value, files, name))


def _conversation(value: Mapping[str, Any], files: SourceFiles, name: str) -> SourceItem:
    """Return a conversation; or that it has no messages."""
    found = [(one, _text_of(one)) for one in _branch(value["chat_messages"])]
    found = [(one, text) for one, text in found if text and str(one.get("sender")) in _ROLES]
    created_at = time_of(value.get("created_at"))
    times = fill_times([time_of(one.get("created_at")) for one, _ in found], created_at or files.modified_at(name))
    if not found:
        return LeftOut(EMPTY)
    return SourceConversation(
        id=key_of(value.get("uuid") or found[0][0].get("uuid")),
        title=text_in(value.get("name")),
        created_at=created_at,
        messages=[
            ImportedMessage(
                role=_ROLES[one["sender"]],
                text=text,
                occurred_at=at,
                id=key_of(one["uuid"]) if one.get("uuid") else None,
            )
            for (one, text), at in zip(found, times, strict=True)
        ],
        is_whole=True,
    )


def _branch(messages: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
    """Return the messages of the branch that ends with the last one, oldest first; all of them where they don't say
    what they follow."""
    known = [one for one in messages if isinstance(one, dict)]
    by_id = {one["uuid"]: one for one in known if isinstance(one.get("uuid"), str)}
    if not any(one.get("parent_message_uuid") in by_id for one in known):
        return known
    path: dict[str, Mapping[str, Any]] = {}
    last: Any = known[-1].get("uuid")
    while last in by_id and last not in path:
        path[last] = by_id[last]
        last = by_id[last].get("parent_message_uuid")
    return [*reversed(path.values())]


def _text_of(message: Mapping[str, Any]) -> str:
    """Return what a message says, with the texts of its attachments and markers for tools and files."""
    parts = [_part(object_in(one)) for one in list_in(message.get("content"))]
    texts = [*(parts if any(parts) else [text_in(message.get("text"))])]
    texts += [
        joined([f"[file {one.get('file_name') or 'without a name'}]", text_in(one.get("extracted_content"))])
        for one in map(object_in, list_in(message.get("attachments")))
        if one.get("file_name") or one.get("extracted_content")
    ]
    names = dict.fromkeys(text_in(object_in(one).get("file_name")) for one in list_in(message.get("files")))
    return joined([*texts, *(f"[file {name}]" for name in names if name)])


def _part(part: Mapping[str, Any]) -> str:
    """Return the text, or the marker, of a part of a message; thoughts are no part of what was said."""
    match part.get("type"):
        case "text":
            return text_in(part.get("text"))
        case "tool_use":
            return f"[tool {part.get('name')}: {_shown(part.get('input'))}]"
        case "tool_result":
            return f"[tool {part.get('name') or 'result'}: {_shown(part.get('content'))}]"
        case "image":
            return "[image]"
    return ""


def _shown(value: Any) -> str:
    """Return what a tool got or gave as a text."""
    if isinstance(value, list):
        return joined(_part(one) if isinstance(one, dict) else text_in(one) for one in value)
    if isinstance(value, dict):
        return "; ".join(f"{key} = {one}" for key, one in value.items())
    return text_in(value)


def _documents(project: Any, files: SourceFiles, name: str) -> Iterator[SourceMemory]:
    """Yield the instructions and documents of a project."""
    if not isinstance(project, dict) or not isinstance(project.get("docs"), list):
        return
    title, at = text_in(project.get("name")) or "project", time_of(project.get("created_at"))
    tags = ("project", title)
    if text := text_in(project.get("prompt_template")):
        yield SourceMemory(
            id=key_of(f"{project.get('uuid')} instructions"),
            text=text,
            created_at=at or files.modified_at(name),
            tags=tags,
        )
    for one in project["docs"]:
        if isinstance(one, dict) and (text := text_in(one.get("content"))):
            yield SourceMemory(
                id=key_of(one.get("uuid") or f"{project.get('uuid')} {one.get('filename')}"),
                text=joined([text_in(one.get("filename")), text]),
                created_at=time_of(one.get("created_at")) or at or files.modified_at(name),
                tags=tags,
            )


def _memories(value: Any, files: SourceFiles, name: str) -> Iterator[SourceMemory]:
    """Yield what Claude remembers of a person, and of each project."""
    if not isinstance(value, dict):
        return
    at = time_of(value.get("updated_at") or value.get("created_at")) or files.modified_at(name)
    owner = value.get("account_uuid") or value.get("uuid") or ""
    texts = {"": value.get("conversations_memory") or value.get("memory")}
    texts |= object_in(value.get("project_memories"))
    for key, text in texts.items():
        if text_in(text):
            yield SourceMemory(id=key_of(f"memory {owner} {key}"), text=text_in(text), created_at=at, tags=("memory",))
