"""Zep: sessions or threads with their messages, and the facts (edges) of its graph with the times they were true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.domain.conversations.importing import NAME_MAX_CHARS, ImportedMessage
from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import (
    LeftOut,
    SourceConversation,
    SourceItem,
    SourceMemory,
    fill_times,
    hash_of,
    key_of,
    list_in,
    object_in,
    text_in,
    time_of,
)
from perdure.features.imports.sources.kinds import missing_file, wrong_item
from perdure.features.imports.sources.streams import json_items

EMPTY = "sessions without a message"
_LISTS = ("sessions", "threads", "facts", "edges")
_ROLES: Mapping[str, Any] = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant"}
_ROLES = {**_ROLES, "system": "system"}


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield sessions and facts of an export. Raises: InvalidInput."""
    if not (names := files.find("*.json")):
        raise missing_file(files.label, "file with sessions or facts in JSON")
    for name in names:
        for value in json_items(files, name):
            yield from _item(value, files, name)


def _item(value: Any, files: SourceFiles, name: str, *, is_whole: bool = True) -> Iterator[SourceItem]:
    """Yield what an object of a file has: it is a session, a fact, or if it `is_whole` may hold lists of them. Raises:
    InvalidInput."""
    if not isinstance(value, dict) or "mapping" in value or "chat_messages" in value:
        raise wrong_item(value, "zep", name, "a session with `messages`, or a `fact`")
    if text_in(value.get("fact")):
        yield _fact(value, files, name)
        return
    if (id_ := value.get("session_id") or value.get("thread_id") or value.get("uuid")) and "messages" in value:
        yield _session(value, str(id_), files, name)
    elif not is_whole or not any(isinstance(value.get(key), list) for key in _LISTS):
        raise wrong_item(value, "zep", name, "a session with `messages`, or a `fact`")
    if is_whole:
        for key in _LISTS:
            for one in list_in(value.get(key)):
                yield from _item({"fact": one} if isinstance(one, str) else one, files, name, is_whole=False)


def _session(value: Mapping[str, Any], id_: str, files: SourceFiles, name: str) -> SourceItem:
    """Return a session; or that it has no messages."""
    messages = [one for one in map(object_in, list_in(value["messages"])) if text_in(one.get("content"))]
    created_at = time_of(value.get("created_at"))
    times = fill_times([time_of(one.get("created_at")) for one in messages], created_at or files.modified_at(name))
    if not messages:
        return LeftOut(EMPTY)
    return SourceConversation(
        id=key_of(id_),
        title=text_in(object_in(value.get("metadata")).get("title")) or id_,
        created_at=created_at,
        messages=[_message(one, at) for one, at in zip(messages, times, strict=True)],
    )


def _message(value: Mapping[str, Any], at: Any) -> ImportedMessage:
    """Return a message; the speaker is the `name`, or the `role` of older versions, which have its kind beside it."""
    kind = str(value.get("role_type") or value.get("role") or "user").lower()
    name = text_in(value.get("name")) or (text_in(value.get("role")) if value.get("role_type") else "")
    text = text_in(value["content"])
    if kind in ("tool", "function"):
        text = f"[tool {name or 'result'}: {text}]"
    return ImportedMessage(
        role=_ROLES.get(kind, "assistant" if kind in ("tool", "function") else "user"),
        text=text,
        occurred_at=at,
        name=name[:NAME_MAX_CHARS] or None,
        id=key_of(value["uuid"]) if value.get("uuid") else None,
    )


def _fact(value: Mapping[str, Any], files: SourceFiles, name: str) -> SourceMemory:
    """Return a fact as a text, with the times from and until which it was true."""
    text = text_in(value["fact"])
    times = {key: at for key in ("valid_at", "invalid_at", "expired_at") if (at := time_of(value.get(key)))}
    ended = times.get("invalid_at") or times.get("expired_at")
    spans = [f"from {times['valid_at']:%Y-%m-%d}"] if "valid_at" in times else []
    spans += [f"until {ended:%Y-%m-%d}"] if ended else []
    created_at = times.get("valid_at") or time_of(value.get("created_at")) or files.modified_at(name)
    return SourceMemory(
        id=key_of(value.get("uuid") or hash_of(text)),
        text=f"{text} (true {' '.join(spans)})" if spans else text,
        created_at=created_at,
        tags=("fact", *((str(value["name"]),) if value.get("name") else ())),
        metadata={key: at.isoformat() for key, at in times.items()},
    )
