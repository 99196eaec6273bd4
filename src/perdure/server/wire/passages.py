"""Passages as the wire shows and takes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator

from perdure.core.passages import Passage
from perdure.memory.passages import PassageHit
from perdure.server.wire.base import ACTOR_ID, ORG_ID, WireRequest, stamp

__all__ = ["NewPassage", "found_shape", "passage_shape"]


def _utc(moment: datetime) -> datetime:
    try:
        return (moment.replace(tzinfo=UTC) if moment.utcoffset() is None else moment).astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC this is before the year 1 or after 9999") from None


class NewPassage(WireRequest):
    """A text to put away. `created_at` is when it happened; without a zone it is in UTC."""

    text: str
    tags: list[str] | None = None
    created_at: Annotated[datetime, AfterValidator(_utc)] | None = None


def passage_shape(passage: Passage) -> dict[str, Any]:
    """The passage with all fields of the wire. `embedding` is null: vectors are large and nobody needs them."""
    return {
        "created_by_id": ACTOR_ID,
        "last_updated_by_id": ACTOR_ID,
        "created_at": stamp(passage.occurred_at),
        "updated_at": stamp(passage.created_at),
        "is_deleted": False,
        "organization_id": ORG_ID,
        "archive_id": passage.archive_id,
        "source_id": None,
        "file_id": passage.source.get("file_id"),
        "file_name": passage.source.get("file_name"),
        "metadata": dict(passage.metadata),
        "tags": list(passage.tags),
        "id": passage.id,
        "text": passage.text,
        "embedding": None,
        "embedding_config": None,
    }


def found_shape(hits: list[PassageHit]) -> dict[str, Any]:
    """What a search found, best first: `{"results": [{id, timestamp, content, tags}], "count": n}`."""
    return {
        "results": [
            {
                "id": hit.passage.id,
                "timestamp": stamp(hit.passage.occurred_at),
                "content": hit.passage.text,
                "tags": list(hit.passage.tags),
            }
            for hit in hits
        ],
        "count": len(hits),
    }
