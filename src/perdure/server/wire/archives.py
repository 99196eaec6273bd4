"""Archives as the wire shows and takes them."""

from __future__ import annotations

from typing import Any

from perdure.core.passages import Archive
from perdure.core.ports import Embedder
from perdure.domain.archives.units import ArchiveChanges
from perdure.server.wire.base import ACTOR_ID, ORG_ID, WireRequest, stamp
from perdure.server.wire.values import Filled, JsonObject

# What the wire gives an archive beyond ours stands in its metadata under this name, which no reply shows.
_KEPT = "perdure:wire"

_ENDPOINT_TYPES = ("openai", "google_ai", "google_vertex", "azure", "ollama", "lmstudio", "vllm", "mistral", "together")


class ArchiveChangesIn(WireRequest):
    """What may be changed of an archive. What is missing or null stays as it is."""

    name: Filled | None = None
    description: str | None = None
    metadata: JsonObject | None = None

    def changes(self, before: Archive) -> ArchiveChanges:
        changes: ArchiveChanges = {}
        if self.name is not None:
            changes["name"] = self.name
        if self.description is not None:
            changes["description"] = self.description
        if self.metadata is not None:
            kept = before.metadata.get(_KEPT)
            changes["metadata"] = self.metadata | ({_KEPT: kept} if kept else {})
        return changes


class ArchiveIn(WireRequest):
    """An archive to be made. `embedding` and `embedding_config` are kept as they are given: vectors are made by the
    server's own embedder, if it has one."""

    name: Filled
    description: str | None = None
    metadata: JsonObject | None = None
    embedding: str | None = None
    embedding_config: JsonObject | None = None

    @property
    def stored_metadata(self) -> dict[str, Any]:
        """The metadata together with the fields that only the wire knows."""
        sent = {"embedding": self.embedding, "embedding_config": self.embedding_config}
        kept = {name: value for name, value in sent.items() if value is not None}
        return (self.metadata or {}) | ({_KEPT: kept} if kept else {})


def archive_shape(archive: Archive, embedder: Embedder | None) -> dict[str, Any]:
    """The archive with all fields of the wire.

    `embedding_config` is what makes its vectors, null where nothing does; `embedding` is the handle that was asked for.
    """
    kept = archive.metadata.get(_KEPT, {})
    return {
        "created_by_id": ACTOR_ID,
        "last_updated_by_id": ACTOR_ID,
        "created_at": stamp(archive.created_at),
        "updated_at": stamp(archive.updated_at),
        "name": archive.name,
        "description": archive.description,
        "organization_id": ORG_ID,
        "vector_db_provider": "native",
        "embedding_config": embedding_config_shape(embedder),
        "metadata": {name: value for name, value in archive.metadata.items() if name != _KEPT} or None,
        "id": archive.id,
        "embedding": kept.get("embedding") or kept.get("embedding_config", {}).get("handle"),
        "passage_count": archive.passage_count,
    }


def embedding_config_shape(embedder: Embedder | None) -> dict[str, Any] | None:
    """What makes vectors here; None: nothing does, or how long they are is not known before the first."""
    if embedder is None or embedder.dimensions is None:
        return None
    provider, _, model = embedder.handle.partition("/")
    kind = "hugging-face" if embedder.local else provider if provider in _ENDPOINT_TYPES else "openai"
    return {
        "embedding_endpoint_type": kind,
        "embedding_endpoint": None,
        "embedding_model": model,
        "embedding_dim": embedder.dimensions,
        "embedding_chunk_size": 300,
        "handle": embedder.handle,
        "batch_size": 32,
        "azure_endpoint": None,
        "azure_version": None,
        "azure_deployment": None,
    }
