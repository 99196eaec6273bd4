"""Zep: sessions or threads with their messages, and the facts (edges) of its graph with the times they were true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import Row, SourceItem, SourceMemory, conversation_of
from perdure.features.imports.sources.kinds import wrong_item
from perdure.features.imports.sources.plain import hash_of, key_of, list_in, object_in, text_in, time_of
from perdure.features.imports.sources.streams import JSON, Item, each_item, read_newest

_LISTS = ("sessions", "threads", "facts", "edges")
_ROLES = {"assistant": "assistant", "ai": "assistant", "system": "system"}
_TOOLS = ("tool", "function")


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield sessions and facts of an export. Raises: InvalidInput."""
    wanted, ends = "file with sessions or facts in JSON", ("expired_at", "invalid_at")
    id_of_fact = lambda one: one.get("uuid") if "fact" in one else None  # noqa: E731  # sessions lie in several files
    yield from read_newest(files, JSON, lambda: _flatten(each_item(files, JSON, wanted)), _read, id_of_fact, *ends)


def _flatten(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items, and those of the lists in them."""
    for value, name, at in items:
        lists = [one for key in _LISTS for one in list_in(object_in(value).get(key))]
        is_whole = isinstance(value, dict) and any(isinstance(value.get(key), list) for key in _LISTS)
        yield from ((one, name, at) for one in (lists if is_whole and "messages" not in value else (value, *lists)))


def _read(value: Any, name: str, at: datetime) -> Iterator[SourceItem]:
    """Yield a session, or a fact. Raises: InvalidInput."""
    value = {"fact": value} if isinstance(value, str) else value
    if not isinstance(value, dict) or "mapping" in value or "chat_messages" in value:
        raise wrong_item(value, "zep", name, "a session with `messages`, or a `fact`")
    if text_in(value.get("fact")):
        yield _fact(value, at)
        return
    key = value.get("session_id") or value.get("thread_id") or value.get("uuid")
    if not key or "messages" not in value:
        raise wrong_item(value, "zep", name, "a session with `messages`, or a `fact`")
    said = list_in(object_in(value["messages"]).get("messages", value["messages"]))
    rows = [_row(one) for one in map(object_in, said) if text_in(one.get("content"))]
    title = text_in(object_in(value.get("metadata")).get("title")) or str(key)
    yield conversation_of(key, title, value.get("created_at"), rows, at)


def _row(value: Mapping[str, Any]) -> Row:
    """Return a message; the speaker is the `name`, or the `role` of older versions, which have its kind beside it."""
    kind = str(value.get("role_type") or value.get("role")).lower()
    name = text_in(value.get("name")) or (text_in(value.get("role")) if value.get("role_type") else "")
    role, text = _ROLES.get(kind, "user"), text_in(value["content"])
    if kind in _TOOLS:
        role, text = "assistant", f"[tool {name or 'result'}: {text}]"
    return value.get("uuid"), role, name, time_of(value.get("created_at")), text


def _fact(value: Mapping[str, Any], at: datetime) -> SourceMemory:
    """Return a fact as a text, with the times from and until which it was true."""
    text = text_in(value["fact"])
    times = {key: when for key in ("valid_at", "invalid_at", "expired_at") if (when := time_of(value.get(key)))}
    ended = times.get("invalid_at") or times.get("expired_at")
    spans = [f"from {times['valid_at']:%Y-%m-%d}"] if "valid_at" in times else []
    spans += [f"until {ended:%Y-%m-%d}"] if ended else []
    return SourceMemory(
        id=key_of(value.get("uuid") or hash_of(text)),
        text=f"{text} (true {' '.join(spans)})" if spans else text,
        created_at=times.get("valid_at") or time_of(value.get("created_at")) or at,
        tags=("fact", *filter(None, [text_in(value.get("name"))])),
        metadata={key: when.isoformat() for key, when in times.items()},
    )
