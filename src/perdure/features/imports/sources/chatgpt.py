"""ChatGPT's export: each conversation is a tree of messages, of which the branch up to `current_node` is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import CUT_OFF, LeftOut, SourceItem, conversation_of
from perdure.features.imports.sources.kinds import wrong_item
from perdure.features.imports.sources.plain import joined, list_in, object_in, text_in, time_of
from perdure.features.imports.sources.streams import each_item, read_each

HIDDEN = "messages that ChatGPT itself never shows"

_MEDIA = {"image": "[image]", "audio": "[audio]", "video": "[video]"}
_THOUGHTS = ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context")
"""Kinds of content that are no part of what was said."""


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield the conversations of an export. Raises: InvalidInput."""
    yield from read_each(each_item(files, ["conversations*.json"], "conversations.json"), _conversation)


def _conversation(value: Any, name: str, at: datetime) -> Iterator[SourceItem]:
    """Yield a conversation, and what of it is left out. Raises: InvalidInput."""
    if not isinstance(value, dict) or not isinstance(value.get("mapping"), dict):
        raise wrong_item(value, "chatgpt", name, "a conversation with a `mapping`")
    branch = branch_of(value["mapping"], value.get("current_node"))
    said = [(key, *_said(one), time_of(one.get("create_time"))) for key, one in branch]
    if hidden := sum(role is None and bool(text) for _, role, text, _ in said):
        yield LeftOut(HIDDEN, hidden)
    yield LeftOut(CUT_OFF, _lost(value["mapping"], branch))
    rows = [(key, role, None, when, text) for key, role, text, when in said if role and text]
    key = value.get("conversation_id") or value.get("id")
    yield conversation_of(key, value.get("title"), value.get("create_time"), rows, at, is_whole=True)


def _lost(mapping: Mapping[str, Any], branch: Sequence[tuple[str, Mapping[str, Any]]]) -> int:
    """Return how many messages may be above a branch whose first one follows none that is there."""
    if not branch:
        return 0
    above = object_in(mapping[branch[0][0]]).get("parent")
    if above is None or above in mapping:
        return 0
    shown = {key for key, _ in branch}
    return sum(
        key not in shown and bool(_said(object_in(object_in(one).get("message")))[1]) for key, one in mapping.items()
    )


def branch_of(mapping: Mapping[str, Any], current: Any) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Return (id of a node, its message) of the branch that is shown, oldest first, without nodes that have none.

    Without a node that is `current`, the branch ends with the newest message that nothing follows.
    """
    nodes = {key: node for key, node in mapping.items() if isinstance(node, dict)}
    if current not in nodes:
        parents = {str(node.get("parent")) for node in nodes.values()}
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
    at = time_of(object_in(node.get("message")).get("create_time"))
    return 0.0 if at is None else at.timestamp()


def _said(message: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return (role here, text) of a message; no role: it is hidden."""
    author, content, metadata = (object_in(message.get(key)) for key in ("author", "content", "metadata"))
    role, kind = author.get("role"), content.get("content_type")
    attached = [object_in(one) for one in list_in(metadata.get("attachments"))]
    names = [one.get("name") for one in attached if not str(one.get("mime_type")).startswith("image/")]
    text = joined([_text_of(content), "\n".join(f"[file {name}]" for name in names if text_in(name))])
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
    return joined([*own, *map(_part, list_in(content.get("parts")))])


def _part(part: Any) -> str:
    """Return the text, or the marker, of a part of a message."""
    if not isinstance(part, dict):
        return text_in(part)
    kind = str(part.get("content_type"))
    marker = next((marker for word, marker in _MEDIA.items() if word in kind), f"[{kind}]")
    return text_in(part.get("text")) or marker  # a transcription has a text
