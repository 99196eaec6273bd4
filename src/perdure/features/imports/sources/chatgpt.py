"""ChatGPT's export: each conversation is a tree of messages, of which the branch up to `current_node` is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import Nodes, Omission, SourceItem, conversation_of, find_gap, path_to
from perdure.features.imports.sources.kinds import wrong_item
from perdure.features.imports.sources.plain import join_all, list_in, object_in, text_in, time_of
from perdure.features.imports.sources.streams import each_item, read_newest

FILES = ["conversations*.json"]
HIDDEN = "messages that ChatGPT itself never shows"

_MEDIA = {"image": "[image]", "audio": "[audio]", "video": "[video]"}
_THOUGHTS = ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context")
"""Kinds of content that are no part of what was said."""

_REFERENCE = re.compile("\ue200([^\ue200\ue201]*)\ue201")
"""A source or a thing that an answer names, in characters that only ChatGPT reads."""


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield the conversations of an export. Raises: InvalidInput."""
    items = partial(each_item, files, FILES, "conversations.json")
    yield from read_newest(files, FILES, items, _conversation, _id_of, "update_time")


def _id_of(conversation: Mapping[str, Any]) -> Any:
    """Return the id of a conversation; nothing: it has none."""
    return conversation.get("conversation_id") or conversation.get("id")


def _conversation(value: Any, name: str, at: datetime) -> Iterator[SourceItem]:
    """Yield a conversation, and what of it is left out. Raises: InvalidInput."""
    if not isinstance(value, dict) or not isinstance(value.get("mapping"), dict):
        raise wrong_item(value, "chatgpt", name, "a conversation with a `mapping`")
    nodes = {key: node for key, node in value["mapping"].items() if isinstance(node, dict)}
    path = branch_of(nodes, value.get("current_node"))
    shown = [(key, object_in(nodes[key].get("message"))) for key in path]
    said = [(key, *_role_and_text(one), time_of(one.get("create_time"))) for key, one in shown]
    yield Omission(HIDDEN, sum(role is None and bool(text) for _, role, text, _ in said))
    yield find_gap(path, nodes, "parent", lambda node: _role_and_text(object_in(node.get("message")))[1])
    rows = [(key, role, None, when, text) for key, role, text, when in said if role and text]
    yield conversation_of(_id_of(value), value.get("title"), value.get("create_time"), rows, at, is_whole=True)


def branch_of(nodes: Nodes, current: Any) -> list[str]:
    """Return the ids of the branch that is shown, oldest first; if `current` is no node, of the one that ends with the
    newest message that nothing follows."""
    if not isinstance(current, str) or current not in nodes:
        parents = {str(node.get("parent")) for node in nodes.values()}
        leaves = [key for key in nodes if key not in parents] or list(nodes)
        current = max(leaves, key=lambda key: _time(nodes[key]), default=None)
    return path_to(current, nodes, "parent")


def _time(node: Mapping[str, Any]) -> float:
    """Return when the message of a node was made; 0: that is unknown."""
    at = time_of(object_in(node.get("message")).get("create_time"))
    return 0.0 if at is None else at.timestamp()


def _role_and_text(message: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return (role here, text) of a message; no role: it is hidden."""
    author, content, metadata = (object_in(message.get(key)) for key in ("author", "content", "metadata"))
    role, kind = author.get("role"), content.get("content_type")
    attached = [object_in(one) for one in list_in(metadata.get("attachments"))]
    names = [one.get("name") for one in attached if not str(one.get("mime_type")).startswith("image/")]
    text = join_all([_text_of(content), "\n".join(f"[file {name}]" for name in names if text_in(name))])
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
    own = [text_in(content.get(key)) for key in ("title", "text", "result")]
    return join_all([*own, *map(_part_text, list_in(content.get("parts")))])


def _reference_text(reference: re.Match[str]) -> str:
    """Return what ChatGPT shows in the place of a reference: of a thing its name, of a source nothing."""
    kind, _, about = reference[1].partition("\ue202")
    try:
        return text_in(json.loads(about)[1]) if kind == "entity" else ""
    except (ValueError, LookupError, TypeError):
        return ""


def _part_text(part: Any) -> str:
    """Return the text, or the marker, of a part of a message."""
    if not isinstance(part, dict):
        return _REFERENCE.sub(_reference_text, text_in(part)).strip()
    kind = str(part.get("content_type"))
    marker = next((marker for word, marker in _MEDIA.items() if word in kind), f"[{kind}]")
    return text_in(part.get("text")) or marker  # a transcription has a text
