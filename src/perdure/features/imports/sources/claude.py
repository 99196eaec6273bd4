"""Claude's export: conversations, which branch where a message was edited, documents of projects, and memories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import CUT_OFF, LeftOut, SourceItem, SourceMemory, conversation_of
from perdure.features.imports.sources.kinds import wrong_item
from perdure.features.imports.sources.plain import joined, key_of, list_in, object_in, text_in, time_of
from perdure.features.imports.sources.streams import each_item, read_each

_ROOT = "00000000-0000-4000-8000-000000000000"
"""What the first message follows."""
_FILES = ("conversations.json", "projects.json", "memories.json")
_ROLES: Mapping[str, str] = {"human": "user", "user": "user", "assistant": "assistant"}


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield conversations, documents and memories of an export. Raises: InvalidInput."""
    yield from read_each(each_item(files, _FILES, _FILES[0]), partial(_item, is_one=files.is_one))


def _item(value: Any, name: str, at: datetime, *, is_one: bool) -> Iterator[SourceItem]:
    """Yield a conversation, or the documents of a project, or memories. Raises: InvalidInput."""
    match value:
        case {"chat_messages": [*messages]}:
            branch = _branch(messages)
            rows = [
                (one.get("uuid"), _ROLES[str(one.get("sender"))], None, time_of(one.get("created_at")), text)
                for one in branch
                if (text := _text_of(one)) and str(one.get("sender")) in _ROLES
            ]
            yield LeftOut(CUT_OFF, _lost(messages, branch))
            title, created_at = value.get("name"), value.get("created_at")
            yield conversation_of(value.get("uuid"), title, created_at, rows, at, is_whole=True)
        case {"docs": [*_]}:
            yield from _documents(value, at)
        case {"conversations_memory": _} | {"project_memories": _}:
            yield from _memories(value, at)
        case _ if is_one or name.endswith(_FILES[0]):
            raise wrong_item(value, "claude", name, "a conversation with `chat_messages`")


def _lost(messages: Sequence[Any], branch: Sequence[Mapping[str, Any]]) -> int:
    """Return how many messages may be above a branch whose first one follows none that is there."""
    above = branch[0].get("parent_message_uuid") if branch else None
    if above in (None, _ROOT):
        return 0
    shown = {one.get("uuid") for one in branch}
    return sum(isinstance(one, dict) and one.get("uuid") not in shown and bool(_text_of(one)) for one in messages)


def _branch(messages: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
    """Return the messages of the branch that ends with the last one, oldest first; all of them where they don't say
    what they follow."""
    known = [one for one in messages if isinstance(one, dict)]
    by_id = {one["uuid"]: one for one in known if isinstance(one.get("uuid"), str)}
    if not any(str(one.get("parent_message_uuid")) in by_id for one in known):
        return known
    path: dict[str, Mapping[str, Any]] = {}
    last = str(known[-1].get("uuid"))
    while last in by_id and last not in path:
        path[last] = by_id[last]
        last = str(by_id[last].get("parent_message_uuid"))
    return [*reversed(path.values())]


def _text_of(message: Mapping[str, Any]) -> str:
    """Return what a message says, with the texts of its attachments and markers for tools and files."""
    parts = [*map(_part, list_in(message.get("content")))]
    texts = parts if any(parts) else [text_in(message.get("text"))]
    files = [object_in(one) for key in ("attachments", "files") for one in list_in(message.get(key))]
    names = [(text_in(one.get("file_name")), text_in(one.get("extracted_content"))) for one in files]
    texts += [
        joined([f"[file {name or 'without a name'}]", text]) for name, text in dict.fromkeys(names) if name or text
    ]
    return joined(texts)


def _part(part: Any) -> str:
    """Return the text, or the marker, of a part of a message; thoughts are no part of what was said."""
    match part:
        case str() | {"type": "text", "text": str()}:
            return text_in(part if isinstance(part, str) else part["text"])
        case {"type": "tool_use" | "tool_result", **more}:
            return f"[tool {more.get('name') or 'result'}: {_shown(more.get('input', more.get('content')))}]"
        case {"type": "image"}:
            return "[image]"
    return ""


def _shown(value: Any) -> str:
    """Return what a tool got or gave as a text."""
    if isinstance(value, dict):
        return "; ".join(f"{key} = {one}" for key, one in value.items())
    return joined(map(_part, value)) if isinstance(value, list) else text_in(value)


def _documents(project: Mapping[str, Any], at: datetime) -> Iterator[SourceMemory]:
    """Yield the instructions and documents of a project; `at` is their time where they have none."""
    own = {"uuid": f"{project.get('uuid')} instructions", "content": project.get("prompt_template")}
    tags = ("project", text_in(project.get("name")) or "without a name")
    for one in map(object_in, (own, *project["docs"])):
        if text := text_in(one.get("content")):
            yield SourceMemory(
                id=key_of(one.get("uuid") or f"{project.get('uuid')} {one.get('filename')}"),
                text=joined([text_in(one.get("filename")), text]),
                created_at=time_of(one.get("created_at")) or time_of(project.get("created_at")) or at,
                tags=tags,
            )


def _memories(value: Mapping[str, Any], at: datetime) -> Iterator[SourceMemory]:
    """Yield what Claude remembers of a person, and of each project."""
    for key, text in {"": value.get("conversations_memory"), **object_in(value.get("project_memories"))}.items():
        if text_in(text):
            id_ = key_of(f"memory {value.get('account_uuid')} {key}")
            yield SourceMemory(id=id_, text=text_in(text), created_at=at, tags=("memory",))
