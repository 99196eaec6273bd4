"""Claude's export: conversations, which branch where a message was edited, documents of projects, and memories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import SourceItem, SourceMemory, conversation_of, find_gap, path_to
from perdure.features.imports.sources.kinds import wrong_item
from perdure.features.imports.sources.plain import join_all, key_of, list_in, object_in, text_in, time_of
from perdure.features.imports.sources.streams import each_item, read_newest

_ABOVE = "parent_message_uuid"
_FILES = ("conversations.json", "projects.json", "memories.json")
_ROLES: Mapping[str, str] = {"human": "user", "user": "user", "assistant": "assistant"}


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield conversations, documents and memories of an export. Raises: InvalidInput."""
    items, read_item = partial(each_item, files, _FILES, _FILES[0]), partial(_item, is_one=files.is_one)
    # Memories have the id of the account.
    yield from read_newest(
        files, _FILES, items, read_item, lambda one: one.get("uuid") or one.get("account_uuid"), "updated_at"
    )


def _item(value: Any, name: str, at: datetime, *, is_one: bool) -> Iterator[SourceItem]:
    """Yield a conversation, or the documents of a project, or memories. Raises: InvalidInput."""
    match value:
        case {"chat_messages": [*messages]}:
            known = [message for message in messages if isinstance(message, dict)]
            nodes = {one["uuid"]: one for one in known if isinstance(one.get("uuid"), str)}
            path = path_to([*nodes][-1], nodes, _ABOVE) if nodes else []
            is_tree = any(str(one.get(_ABOVE)) in nodes for one in known)
            rows = [
                (one.get("uuid"), _ROLES[str(one.get("sender"))], None, time_of(one.get("created_at")), text)
                for one in ([nodes[id_] for id_ in path] if is_tree else known)
                if (text := _text_of(one)) and str(one.get("sender")) in _ROLES
            ]
            if is_tree:
                yield find_gap(path, nodes, _ABOVE, _text_of)
            title, created_at = value.get("name"), value.get("created_at")
            yield conversation_of(value.get("uuid"), title, created_at, rows, at, is_whole=True)
        case {"docs": [*_]}:
            yield from _documents(value, at)
        case {"conversations_memory": _} | {"project_memories": _}:
            yield from _memories(value, at)
        case _ if is_one or name.endswith(_FILES[0]):
            raise wrong_item(value, "claude", name, "a conversation with `chat_messages`")


def _text_of(message: Mapping[str, Any]) -> str:
    """Return what a message says, with the texts of its attachments and markers for tools and files."""
    parts = [*map(_part_text, list_in(message.get("content")))]
    texts = parts if any(parts) else [text_in(message.get("text"))]
    files = [object_in(one) for key in ("attachments", "files") for one in list_in(message.get(key))]
    names = [(text_in(file.get("file_name")), text_in(file.get("extracted_content"))) for file in files]
    texts += [
        join_all([f"[file {name or 'without a name'}]", text]) for name, text in dict.fromkeys(names) if name or text
    ]
    return join_all(texts)


def _part_text(part: Any) -> str:
    """Return the text of a message's part, or a note that stands for it; empty for thoughts."""
    match part:
        case str() | {"type": "text", "text": str()}:
            return text_in(part if isinstance(part, str) else part["text"])
        case {"type": "tool_use" | "tool_result", **more}:
            return f"[tool {more.get('name') or 'result'}: {_value_text(more.get('input', more.get('content')))}]"
        case {"type": "image"}:
            return "[image]"
    return ""


def _value_text(value: Any) -> str:
    """Return what a tool got or gave as a text."""
    if isinstance(value, dict):
        return "; ".join(f"{key} = {one}" for key, one in value.items())
    return join_all(map(_part_text, value)) if isinstance(value, list) else text_in(value)


def _documents(project: Mapping[str, Any], at: datetime) -> Iterator[SourceMemory]:
    """Yield the instructions and documents of a project; `at` is their time where they have none."""
    own = {"uuid": f"{project.get('uuid')} instructions", "content": project.get("prompt_template")}
    tags = ("project", text_in(project.get("name")) or "without a name")
    for one in map(object_in, (own, *project["docs"])):
        if text := text_in(one.get("content")):
            yield SourceMemory(
                id=key_of(one.get("uuid") or f"{project.get('uuid')} {one.get('filename')}"),
                text=join_all([text_in(one.get("filename")), text]),
                created_at=time_of(one.get("created_at")) or time_of(project.get("created_at")) or at,
                tags=tags,
            )


def _memories(value: Mapping[str, Any], at: datetime) -> Iterator[SourceMemory]:
    """Yield what Claude remembers of a person, and of each project."""
    for key, text in {"": value.get("conversations_memory"), **object_in(value.get("project_memories"))}.items():
        if text_in(text):
            id_ = key_of(f"memory {value.get('account_uuid')} {key}")
            yield SourceMemory(id=id_, text=text_in(text), created_at=at, tags=("memory",))
