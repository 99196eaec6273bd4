"""ChatGPT's export: each conversation is a tree of messages, of which the branch up to `current_node` is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.domain.conversations.importing import ImportedMessage
from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import (
    LeftOut,
    SourceConversation,
    SourceItem,
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

HIDDEN = "messages that ChatGPT itself never shows"
EMPTY = "conversations without a message"

_MEDIA = {"image": "[image]", "audio": "[audio]", "video": "[video]"}
_THOUGHTS = ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context")
"""Kinds of content that are no part of what was said."""


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield the conversations of an export. Raises: InvalidInput."""
    names = files.find("conversations*.json")
    if not names:
        raise missing_file(files.label, "conversations.json")
    for name in names:
        for value in json_items(files, name):
            if not isinstance(value, dict) or not isinstance(value.get("mapping"), dict):
                raise wrong_item(value, "chatgpt", name, "a conversation with a `mapping`")
            yield from _conversation(value, files, name)


def _conversation(value: Mapping[str, Any], files: SourceFiles, name: str) -> Iterator[SourceItem]:
    """Yield a conversation, and what of it is left out."""
    nodes = branch_of(value["mapping"], value.get("current_node"))
    found: list[tuple[str, Any, Any, str]] = []  # id, role, time, text
    hidden = 0
    for key, message in nodes:
        role, text = _said(message)
        if role is None:
            hidden += bool(text)
        elif text:
            found.append((key, role, time_of(message.get("create_time")), text))
    if hidden:
        yield LeftOut(HIDDEN, hidden)
    if not found:
        yield LeftOut(EMPTY)
        return
    created_at = time_of(value.get("create_time"))
    times = fill_times([one[2] for one in found], created_at or files.modified_at(name))
    yield SourceConversation(
        id=key_of(value.get("conversation_id") or value.get("id") or found[0][0]),
        title=text_in(value.get("title")),
        created_at=created_at,
        messages=[
            ImportedMessage(role=role, text=text, occurred_at=at, id=key_of(key))
            for (key, role, _, text), at in zip(found, times, strict=True)
        ],
        is_whole=True,
    )


def branch_of(mapping: Mapping[str, Any], current: Any) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Return (id of a node, its message) of the branch that is shown, oldest first, without nodes that have none.

    Without a node that is `current`, the branch goes from the root to the newest child each time.
    """
    nodes = {key: node for key, node in mapping.items() if isinstance(node, dict)}
    if current not in nodes:
        parents = {node.get("parent") for node in nodes.values()}
        leaves = [key for key in nodes if key not in parents] or list(nodes)
        current = max(leaves, key=lambda key: _time(nodes[key]), default=None)
    path: dict[str, Mapping[str, Any]] = {}
    while isinstance(current, str) and current in nodes and current not in path:
        path[current] = nodes[current]
        current = nodes[current].get("parent")
    branch = [(key, node.get("message")) for key, node in reversed(path.items())]
    return [(key, message) for key, message in branch if isinstance(message, dict)]


def _time(node: Mapping[str, Any]) -> float:
    """Return when the message of a node was made; 0: that is unknown."""
    message = node.get("message")
    at = time_of(message.get("create_time")) if isinstance(message, dict) else None
    return 0.0 if at is None else at.timestamp()


def _said(message: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return (role here, text) of a message; no role: it is hidden."""
    author, content, metadata = (object_in(message.get(key)) for key in ("author", "content", "metadata"))
    role, kind, text = author.get("role"), content.get("content_type"), _text_of(content)
    files = [
        f"[file {one['name']}]"
        for one in list_in(metadata.get("attachments"))
        if isinstance(one, dict) and text_in(one.get("name")) and not str(one.get("mime_type")).startswith("image/")
    ]
    text = joined([text, "\n".join(files)])
    if kind in _THOUGHTS or metadata.get("is_visually_hidden_from_conversation"):
        return None, text
    if role == "system" and (metadata.get("is_user_system_message") or message.get("weight") == 0):
        return None, text
    called = author.get("name") if role == "tool" else message.get("recipient")
    if text and (role == "tool" or (role == "assistant" and called not in (None, "all"))):
        return "assistant", f"[tool {called or 'unknown'}: {text}]"
    return (role, text) if role in ("user", "assistant", "system") else (None, text)


def _text_of(content: Mapping[str, Any]) -> str:
    """Return the text of a message's content, with markers in place of pictures and sounds."""
    parts = [_part(one) for one in list_in(content.get("parts"))]
    return joined([*(text_in(content.get(key)) for key in ("title", "text", "result")), *parts])


def _part(part: Any) -> str:
    """Return the text, or the marker, of a part of a message."""
    if not isinstance(part, dict):
        return text_in(part)
    kind = str(part.get("content_type"))
    if text := text_in(part.get("text")):  # of a transcription
        return text
    return next((marker for word, marker in _MEDIA.items() if word in kind), f"[{kind}]")
