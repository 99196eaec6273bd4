"""mem0: a list of memories, as its API and its export give them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import Omission, SourceItem, SourceMemory
from perdure.features.imports.sources.kinds import wrong_item
from perdure.features.imports.sources.plain import hash_of, key_of, list_in, object_in, text_in, time_of
from perdure.features.imports.sources.streams import JSON, Item, each_item, read_newest

EMPTY = "memories without a text"
RELATIONS = "relations of mem0's graph, of which the memories say the same"
_LISTS = ("results", "memories")
_TEXTS = ("memory", "text", "data")
_OWNERS = ("user_id", "agent_id", "app_id", "run_id")


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield the memories of an export. Raises: InvalidInput."""
    wanted = "file with memories in JSON"
    yield from read_newest(
        files, JSON, lambda: _flatten(each_item(files, JSON, wanted)), _memory, lambda one: one.get("id"), "updated_at"
    )


def _flatten(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items; for an answer of mem0's API, the memories in it and the number of its relations."""
    for value, name, at in items:
        memories = next((one for key in _LISTS if isinstance(one := object_in(value).get(key), list)), None)
        yield from ((one, name, at) for one in ([value] if memories is None else memories))
        if relations := list_in(object_in(value).get("relations")):
            yield Omission(RELATIONS, len(relations)), name, at


def _memory(value: Any, name: str, at: datetime) -> Iterator[SourceItem]:
    """Yield a memory. Raises: InvalidInput."""
    if isinstance(value, Omission):
        yield value
        return
    if not isinstance(value, dict) or not {*_TEXTS} & value.keys() or "role" in value:
        raise wrong_item(value, "mem0", name, "a memory with the field `memory`")
    text = next((text_in(value[key]) for key in _TEXTS if text_in(value.get(key))), "")
    if not text:
        yield Omission(EMPTY)
        return
    owners = {key: str(value[key]) for key in _OWNERS if value.get(key)}
    yield SourceMemory(
        id=key_of(value.get("id") or hash_of(text, *owners.values())),
        text=text,
        created_at=time_of(value.get("created_at")) or time_of(value.get("updated_at")) or at,
        tags=tuple(str(one) for one in list_in(value.get("categories")) if one),
        metadata={**object_in(value.get("metadata")), **owners},
    )
