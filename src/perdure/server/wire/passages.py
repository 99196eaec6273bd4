"""Passages on the wire."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, cast

from pydantic import AfterValidator, Field

from perdure.core.passages import Passage, TagMatch
from perdure.domain.archives.passages import NewPassage, PassageChanges
from perdure.domain.archives.units import Selection
from perdure.library.services.passages import passage_filter
from perdure.search.query.times import parse_time
from perdure.server.wire.base import ORG_ID, WireRequest, fields, nulls, stamps
from perdure.server.wire.fields import Date, Filled, JsonObject, MaxItems, Tags

EMBEDDING_MAX = 65_536


def _utc(moment: datetime) -> datetime:
    """The moment in UTC; without an offset it is in UTC already. Raises: ValueError: UTC has no such year."""
    try:
        return (moment.replace(tzinfo=UTC) if moment.utcoffset() is None else moment).astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC this is before the year 1 or after 9999") from None


Moment = Annotated[datetime, AfterValidator(_utc)]
_Number = Annotated[float, Field(allow_inf_nan=False)]


class PassageChangesIn(WireRequest):
    """Changes of a passage. A field that is missing or null stays."""

    text: Filled | None = None
    tags: Tags | None = None
    metadata: JsonObject | None = None
    created_at: Moment | None = None

    @property
    def changes(self) -> PassageChanges:
        """The changed fields, by their names in the library."""
        changes = self.non_null("text", "tags", "metadata")
        if self.created_at is not None:
            changes["occurred_at"] = self.created_at
        return cast(PassageChanges, changes)


class PassageIn(PassageChangesIn):
    """A text to store. `created_at` is when it happened; without a zone it is in UTC. `embedding` is its vector, if the
    archive's are of the same model."""

    text: Filled
    embedding: Annotated[list[_Number], Field(min_length=1, max_length=EMBEDDING_MAX)] | None = None

    @property
    def new(self) -> NewPassage:
        """The passage, as the library takes it."""
        return NewPassage(**self.changes, embedding=self.embedding)


class PassagesIn(WireRequest):
    """Texts to store, in their order."""

    passages: Annotated[list[PassageIn], MaxItems("passages_per_request")]


class DeleteSelected(WireRequest):
    """Delete the passages that meet all conditions. Dates without an offset are in UTC; an end date is a whole day."""

    text: str | None = None
    tags: Tags | None = None
    tag_match_mode: TagMatch = "any"
    start_date: Date | None = None
    end_date: Date | None = None
    dry_run: bool = False

    @property
    def selection(self) -> Selection:
        """The conditions, as the library takes them. Raises: InvalidInput: a text that is not a date."""
        where = passage_filter(
            tags=self.tags or (),
            tag_match=self.tag_match_mode,
            since=parse_time(self.start_date),
            until=parse_time(self.end_date, end=True),
        )
        return Selection(where=where, text=self.text or "")


def passage_shape(passage: Passage) -> dict[str, Any]:
    """The passage with all fields of the wire. `embedding` is null: vectors are large and nobody needs them."""
    return {
        **stamps(passage.occurred_at, passage.created_at),
        "is_deleted": False,
        "organization_id": ORG_ID,
        "archive_id": passage.archive_id,
        "source_id": passage.source.get("folder_id"),
        "file_id": passage.source.get("file_id"),
        "file_name": passage.source.get("file_name"),
        **fields(passage, "metadata", "tags", "id", "text"),
        **nulls("embedding", "embedding_config"),
    }
