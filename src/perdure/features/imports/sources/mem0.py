"""mem0: a list of memories, as its API and its export give them."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import LeftOut, SourceItem, SourceMemory
from perdure.features.imports.sources.kinds import wrong_item
from perdure.features.imports.sources.plain import hash_of, key_of, list_in, object_in, text_in, time_of
from perdure.features.imports.sources.streams import each_item

EMPTY = "memories without a text"
_TEXTS = ("memory", "text", "data")
_OWNERS = ("user_id", "agent_id", "app_id", "run_id")


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield the memories of an export. Raises: InvalidInput."""
    for value, name, at in each_item(files, ["*.json"], "file with memories in JSON", ["results", "memories"]):
        if not isinstance(value, dict) or not {*_TEXTS} & value.keys() or "role" in value:
            raise wrong_item(value, "mem0", name, "a memory with the field `memory`")
        text = next((text_in(value[key]) for key in _TEXTS if text_in(value.get(key))), "")
        if not text:
            yield LeftOut(EMPTY)
            continue
        owners = {key: str(value[key]) for key in _OWNERS if value.get(key)}
        yield SourceMemory(
            id=key_of(value.get("id") or hash_of(text, *owners.values())),
            text=text,
            created_at=time_of(value.get("created_at")) or time_of(value.get("updated_at")) or at,
            tags=tuple(str(one) for one in list_in(value.get("categories")) if one),
            metadata={**object_in(value.get("metadata")), **owners},
        )
