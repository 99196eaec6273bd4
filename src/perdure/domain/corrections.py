"""Corrections as units of work record them: what was changed, and what undoing that needs."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

from perdure.core.blocks import Author
from perdure.core.features import Point
from perdure.core.forgetting.corrections import Correction, CorrectionItem, CorrectionKind, title_of
from perdure.core.ids import AgentId, BlockId
from perdure.core.messages import Message, parts_to_json
from perdure.core.passages import Passage
from perdure.storage.tx import Tx

MEMORY_CORRECTED: Point[[Tx, AgentId], None] = Point("memory_corrected")
"""Something that an agent remembered was changed or taken out, or is back."""
AGENTS_TOLD = 100
"""So many agents of a block or archive, at most, are told of a change in it."""


def tell_agents(tx: Tx, table: Literal["blocks", "archives"], id_: str) -> None:
    """Tell features that what the agents of a block or archive remember was changed or taken out."""
    for agent_id in tx.owners.list_agents(table, id_)[:AGENTS_TOLD]:
        MEMORY_CORRECTED(tx, agent_id)


def record(
    tx: Tx,
    agent_id: AgentId,
    kind: CorrectionKind,
    text: str,
    items: Sequence[CorrectionItem],
    *,
    at: datetime,
    correction: Correction | None = None,
) -> Correction:
    """Store what a correction changed, so that it can be undone, and return it. `text`: the change in words, or the
    forgotten text. `correction`: a stored one to add `items` to; None: make a new one."""
    if correction is None:
        correction = tx.corrections.add(agent_id, kind, text if kind == "forget" else title_of(text), at=at)
        correction = replace(correction, text=title_of(text))
    if any(item.before for item in items):
        MEMORY_CORRECTED(tx, agent_id)
    return tx.corrections.add_items(correction, items)


def put_block_value(tx: Tx, block_id: BlockId, value: str, *, author: Author, at: datetime) -> CorrectionItem:
    """Give a block another value, and return what undoing that needs."""
    before = tx.blocks.get(block_id)
    after = tx.blocks.put(replace(before, value=value), expected=before.version, author=author, at=at)
    return CorrectionItem(kind="block", id=block_id, before=str(before.version), after=checksum(after.value))


def passage_item(before: Passage | None, after: Passage | None) -> CorrectionItem:
    """Return what undoing a change of a passage needs: `before` is None if it was created, `after` if deleted."""
    after_checksum = None if after is None else checksum(passage_fields(after))
    fields = ""
    if before is not None:
        fields = passage_fields(before, {"state": before.state, "state_origin": dict(before.state_origin)})
    return CorrectionItem(kind="passage", id=(before or after).id, before=fields, after=after_checksum)  # type: ignore[union-attr]


def passage_fields(passage: Passage, more: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return the fields of a passage that people can change, and those in `more`, as JSON."""
    return json.dumps(
        {
            "archive_id": passage.archive_id,
            "text": passage.text,
            "tags": list(passage.tags),
            "metadata": dict(passage.metadata),
            "source": dict(passage.source),
            "created_at": passage.created_at.isoformat(),
            "occurred_at": passage.occurred_at.isoformat(),
            **more,
        }
    )


def checksum(text: str) -> int:
    """Return a number that nearly always differs after a change of the text: the CRC-32 of its UTF-8."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def message_item(before: Message, after: Message) -> CorrectionItem:
    """Return what undoing a change of a message needs."""
    shown = parts_to_json(before.parts) + (f"\n{before.name}" if before.name != after.name else "")
    return CorrectionItem(kind="message", id=before.id, before=shown, after=checksum(parts_to_json(after.parts)))
