"""Which program a piece of an export comes from, so that an error can say which import reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.features.imports.sources.items import ImportSource

_KEYS: Mapping[str, tuple[ImportSource, str]] = {
    "mapping": ("chatgpt", "a conversation of ChatGPT's export"),
    "chat_messages": ("claude", "a conversation of Claude's export"),
    "memory": ("mem0", "a memory of mem0"),
    "results": ("mem0", "what mem0's API returns"),
    "sessions": ("zep", "of Zep"),
    "edges": ("zep", "of Zep"),
    "session_id": ("zep", "of Zep"),
    "thread_id": ("zep", "of Zep"),
    "role": ("jsonl", "a message alone, as lines of JSON have them"),
    "text": ("jsonl", "a text alone, as lines of JSON have them"),
}


def wrong_item(value: Any, source: ImportSource, name: str, wanted: str) -> InvalidInput:
    """Return the error for an item of the file `name` that this source can't read; `wanted`: what it should be."""
    found = next((_KEYS[key] for key in _KEYS if isinstance(value, dict) and key in value), None)
    if found is not None and found[0] != source:
        return InvalidInput(f"{name}: this is {found[1]}: use `perdure import {found[0]}`")
    return InvalidInput(f"{name}: {value!r:.80} is not {wanted}")


def missing_file(label: str, wanted: str) -> InvalidInput:
    """Return the error about an export without the file that has to be in it."""
    return InvalidInput(f"{label} has no {wanted}: give the ZIP file as it was downloaded, its folder, or that file")
