"""Archives on the wire."""

from __future__ import annotations

from typing import Any, cast

from perdure.core.passages import Archive
from perdure.core.ports import Embedder
from perdure.domain.archives.units import ArchiveChanges
from perdure.server.wire.base import ORG_ID, WIRE_FIELDS, WireRequest, nulls, own_metadata, stamps, with_wire_fields
from perdure.server.wire.fields import Filled, JsonObject

_ENDPOINT_TYPES = ("openai", "google_ai", "google_vertex", "azure", "ollama", "lmstudio", "vllm", "mistral", "together")


class ArchiveChangesIn(WireRequest):
    """Changes of an archive. A field that is missing or null stays."""

    name: Filled | None = None
    description: str | None = None
    metadata: JsonObject | None = None

    def changes(self, before: Archive) -> ArchiveChanges:
        """The changed fields, as the library takes them."""
        changes = self.non_null("name", "description", "metadata")
        if self.metadata is not None:
            changes["metadata"] = with_wire_fields(self.metadata, before.metadata.get(WIRE_FIELDS, {}))
        return cast(ArchiveChanges, changes)


class ArchiveIn(ArchiveChangesIn):
    """A new archive. `embedding` and `embedding_config` are only stored: vectors come from the server's own
    embedder, if it has one."""

    name: Filled
    embedding: str | None = None
    embedding_config: JsonObject | None = None

    @property
    def fields(self) -> ArchiveChanges:
        """The archive, as the library takes it."""
        metadata = with_wire_fields(self.metadata or {}, self.non_null("embedding", "embedding_config"))
        return {"name": self.name, "description": self.description, "metadata": metadata}


def archive_shape(archive: Archive, embedder: Embedder | None) -> dict[str, Any]:
    """The archive with all fields of the wire.

    `embedding_config` describes what makes its vectors, null where nothing does; `embedding` is the client's handle.
    """
    wire_fields = archive.metadata.get(WIRE_FIELDS, {})
    return {
        **stamps(archive.created_at, archive.updated_at),
        "name": archive.name,
        "description": archive.description,
        "organization_id": ORG_ID,
        "vector_db_provider": "native",
        "embedding_config": embedding_config_shape(embedder),
        "metadata": own_metadata(archive.metadata) or None,
        "id": archive.id,
        "embedding": wire_fields.get("embedding") or wire_fields.get("embedding_config", {}).get("handle"),
        "passage_count": archive.passage_count,
    }


def embedding_config_shape(embedder: Embedder | None) -> dict[str, Any] | None:
    """The server's embedder; None: there is none, or the length of its vectors is not known before the first."""
    return None if embedder is None or embedder.dimensions is None else filled_embedding_config(embedder)


def filled_embedding_config(embedder: Embedder | None) -> dict[str, Any]:
    """The same for a field that is never null. Without an embedder the model is `none`; 0 is an unknown length."""
    kind, model = "hugging-face", "none"
    if embedder is not None:
        provider, _, model = embedder.handle.partition("/")
        kind = kind if embedder.local else provider if provider in _ENDPOINT_TYPES else "openai"
    return {
        "embedding_endpoint_type": kind,
        "embedding_endpoint": None,
        "embedding_model": model,
        "embedding_dim": 0 if embedder is None else embedder.dimensions or 0,
        "embedding_chunk_size": 300,
        "handle": None if embedder is None else embedder.handle,
        "batch_size": 32,
        **nulls("azure_endpoint", "azure_version", "azure_deployment"),
    }
