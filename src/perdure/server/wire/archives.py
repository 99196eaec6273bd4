"""Archives and their passages on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, cast

from pydantic import AfterValidator, Field

from perdure.core import passages
from perdure.core.passages import TagMatch
from perdure.core.ports import Embedder
from perdure.domain.archives.passages import NewPassage, PassageChanges
from perdure.domain.archives.units import ArchiveChanges, Selection
from perdure.library.memory.passages import passage_filter
from perdure.search.ranking.query import parse_time
from perdure.server.wire.base import ORG_ID, WIRE_FIELDS, WireRequest, nulls, own_metadata, with_wire_fields
from perdure.server.wire.fields import Date, FileIdIn, Filled, FolderIdIn, JsonObject, MaxItems, Name, Tags
from perdure.server.wire.shapes import Object, StampedShape, computed

_ENDPOINT_TYPES = ("openai", "google_ai", "google_vertex", "azure", "ollama", "lmstudio", "vllm", "mistral", "together")


class ArchiveChangesIn(WireRequest):
    """Changes of an archive. A field that is missing or null stays."""

    name: Filled | None = None
    description: str | None = None
    metadata: JsonObject | None = None

    def changes(self, before: passages.Archive) -> ArchiveChanges:
        """The changed fields, as the library takes them."""
        changes = self.non_null("name", "description", "metadata")
        if self.metadata is not None:
            changes["metadata"] = with_wire_fields(self.metadata, before.metadata.get(WIRE_FIELDS, {}))
        return cast(ArchiveChanges, changes)


class ArchiveIn(ArchiveChangesIn):
    """A new archive. `embedding` and `embedding_config` are only stored: the server's own embedder makes vectors."""

    name: Filled
    embedding: Name | None = None
    embedding_config: JsonObject | None = None

    @property
    def fields(self) -> ArchiveChanges:
        """The archive, as the library takes it."""
        metadata = with_wire_fields(self.metadata or {}, self.non_null("embedding", "embedding_config"))
        return {"name": self.name, "description": self.description, "metadata": metadata}


class WireArchive(
    StampedShape,
    of=passages.Archive,
    fields="name description organization_id vector_db_provider embedding_config metadata id embedding passage_count",
    unlisted={"organization_id": ORG_ID, "vector_db_provider": "native"},
):
    """An archive. `embedding_config`: what makes its vectors, or null; `embedding`: the client's handle."""

    metadata: Object | None = computed(lambda archive: own_metadata(archive.metadata) or None)
    embedding: str | None = computed(lambda archive: _embedding(archive.metadata.get(WIRE_FIELDS, {})))
    embedding_config: Object | None


def archive_shape(archive: passages.Archive, embedder: Embedder | None) -> WireArchive:
    """The archive with all fields of the wire."""
    return WireArchive.make(archive, embedding_config=embedding_config_shape(embedder))


def _embedding(wire_fields: Mapping[str, Any]) -> str | None:
    """The handle of the embedder that a client named."""
    handle: str | None = wire_fields.get("embedding") or wire_fields.get("embedding_config", {}).get("handle")
    return handle


NO_EMBEDDER = "perdure/none"
"""The handle that stands for no embedder, where clients expect one."""


def embedding_config_shape(embedder: Embedder | None) -> dict[str, Any] | None:
    """The description of the server's embedder; None: there is none, or the length of its vectors is still unknown."""
    return None if embedder is None or embedder.dimensions is None else filled_embedding_config(embedder)


def filled_embedding_config(embedder: Embedder | None) -> dict[str, Any]:
    """The embedder for a field that is never null: the model `none` is no embedder, a dimension of 0 is unknown."""
    handle, kind = NO_EMBEDDER if embedder is None else embedder.handle, "hugging-face"
    provider, _, model = handle.partition("/")
    if embedder is not None:
        kind = kind if embedder.local else provider if provider in _ENDPOINT_TYPES else "openai"
    return {
        "embedding_endpoint_type": kind,
        "embedding_endpoint": None,
        "embedding_model": model,
        "embedding_dim": 0 if embedder is None else embedder.dimensions or 0,
        "embedding_chunk_size": 300,
        "handle": handle,
        "batch_size": 32,
        **nulls("azure_endpoint", "azure_version", "azure_deployment"),
    }


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
            since=parse_time("start_date", self.start_date),
            until=parse_time("end_date", self.end_date, end=True),
        )
        return Selection(where=where, text=self.text or "")


class WirePassage(
    StampedShape,
    of=passages.Passage,
    fields="is_deleted organization_id archive_id source_id file_id file_name metadata tags id text embedding"
    " embedding_config",
    created_at="occurred_at",
    updated_at="created_at",
    unlisted={"is_deleted": False, "organization_id": ORG_ID, **nulls("embedding", "embedding_config")},
):
    """A passage. No answer has its vector, which is large and which nobody needs."""

    source_id: FolderIdIn | None = computed(lambda passage: passage.source.get("folder_id"))
    file_id: FileIdIn | None = computed(lambda passage: passage.source.get("file_id"))
    file_name: str | None = computed(lambda passage: passage.source.get("file_name"))
