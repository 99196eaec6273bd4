"""mem0: a list of memories, as its API and its export give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import (
    LeftOut,
    SourceItem,
    SourceMemory,
    hash_of,
    key_of,
    list_in,
    object_in,
    text_in,
    time_of,
)
from perdure.features.imports.sources.kinds import missing_file, wrong_item
from perdure.features.imports.sources.streams import json_items

EMPTY = "memories without a text"
_OWNERS = ("user_id", "agent_id", "app_id", "run_id")


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield the memories of an export. Raises: InvalidInput."""
    if not (names := files.find("*.json")):
        raise missing_file(files.label, "file with memories in JSON")
    for name in names:
        for value in json_items(files, name, "results", "memories"):
            if not isinstance(value, dict) or not {"memory", "text", "data"} & value.keys() or "role" in value:
                raise wrong_item(value, "mem0", name, "a memory with the field `memory`")
            yield _memory(value, files, name)


def _memory(value: Mapping[str, Any], files: SourceFiles, name: str) -> SourceItem:
    """Return a memory; or that it has no text."""
    text = next((text_in(value[key]) for key in ("memory", "text", "data") if text_in(value.get(key))), "")
    if not text:
        return LeftOut(EMPTY)
    owners = {key: str(value[key]) for key in _OWNERS if value.get(key)}
    return SourceMemory(
        id=key_of(value.get("id") or hash_of(text, *owners.values())),
        text=text,
        created_at=time_of(value.get("created_at")) or time_of(value.get("updated_at")) or files.modified_at(name),
        tags=tuple(str(one) for one in list_in(value.get("categories")) if one),
        metadata={**object_in(value.get("metadata")), **owners},
    )
