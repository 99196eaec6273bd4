"""CrewAI's storage of memories over an archive: `Memory(storage=PerdureStorage())`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from perdure import NewPassage, Passage
from perdure.adapters.opening import ArchiveStore, Closing

try:
    from crewai.memory.storage.backend import EmbeddingDimensionMismatchError
    from crewai.memory.types import MemoryRecord, ScopeInfo
except ImportError as error:
    raise ImportError("the storage for CrewAI needs its records: install crewai") from error


class PerdureStorage(Closing[ArchiveStore]):
    """CrewAI's `StorageBackend`: records in scopes such as `/team/ada`, found by the vectors that CrewAI makes.

    A scope holds the scopes below it too. Each record is a passage, so an agent that has the archive finds it by words.

    Args:
        address: the store, as `Perdure` takes it: a file, `postgresql://...`, by default the user's own.
        archive: the name of the archive; it is created with the first call.
        options: as `Perdure` takes them.
    Raises: StoreError, InvalidInput.
    """

    def __init__(self, address: str | Path | None = None, *, archive: str = "crewai", **options: Any) -> None:
        self._store = ArchiveStore(address, archive=archive, **options)

    def save(self, records: list[MemoryRecord]) -> None:
        """Store records; one whose id is there already is replaced. Raises: InvalidInput."""
        self._store.run(self._save(records))

    def update(self, record: MemoryRecord) -> None:
        """Replace the record with this id. Raises: InvalidInput."""
        self.save([record])

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """Return the record with this id; None: there is none."""
        return self._store.run(self._get(record_id))

    def search(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Return the records whose vectors are nearest, best first, each with its cosine from 0 to 1. Raises:
        EmbeddingDimensionMismatchError."""
        query = np.asarray(query_embedding, dtype=np.float32)
        records = [
            one
            for one in self._select(scope_prefix, categories, metadata_filter)
            if one.embedding and any(one.embedding)
        ]
        for one in records:
            if len(one.embedding or ()) != len(query):
                raise EmbeddingDimensionMismatchError(len(one.embedding or ()), len(query))
        if not records or not query.any():
            return []
        vectors = np.asarray([one.embedding for one in records], dtype=np.float32)
        cosines = vectors @ query / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(query))
        best = np.argsort(-cosines, kind="stable")[:limit]
        scored = [(records[place], max(0.0, min(1.0, float(cosines[place])))) for place in best]
        return [(record, score) for record, score in scored if score >= min_score]

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Remove the records that meet all of these conditions, and return how many; without a condition all."""
        chosen = [
            one.id
            for one in self._select(scope_prefix, categories, metadata_filter)
            if (record_ids is None or one.id in record_ids)
            and (older_than is None or _naive(one.created_at) < _naive(older_than))
        ]
        self._store.run(self._delete(chosen))
        return len(chosen)

    def list_records(self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0) -> list[MemoryRecord]:
        """Return the records of a scope, newest first."""
        records = sorted(self._select(scope_prefix), key=lambda one: _naive(one.created_at), reverse=True)
        return records[offset : offset + limit]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """Return how many records a scope has, of which categories and times, and the scopes right below it."""
        records = list(self._select(scope))
        times = sorted(_naive(one.created_at) for one in records)
        return ScopeInfo(
            path=_path(scope),
            record_count=len(records),
            categories=sorted({name for one in records for name in one.categories}),
            oldest_record=times[0] if times else None,
            newest_record=times[-1] if times else None,
            child_scopes=_children(records, scope),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """Return the scopes right below one."""
        return _children(self._select(parent), parent)

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Return the categories of a scope's records, each with how many have it."""
        return dict(Counter(name for one in self._select(scope_prefix) for name in one.categories))

    def count(self, scope_prefix: str | None = None) -> int:
        """Return how many records a scope has."""
        return sum(1 for _ in self._select(scope_prefix))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Remove all records of a scope; None: of all scopes."""
        self.delete(scope_prefix)

    async def asave(self, records: list[MemoryRecord]) -> None:
        """As `save`, in a thread: the store has an event loop of its own."""
        await asyncio.to_thread(self.save, records)

    async def asearch(self, query_embedding: list[float], *args: Any, **named: Any) -> list[tuple[MemoryRecord, float]]:
        """As `search`, in a thread."""
        return await asyncio.to_thread(lambda: self.search(query_embedding, *args, **named))

    async def adelete(self, *args: Any, **named: Any) -> int:
        """As `delete`, in a thread."""
        return await asyncio.to_thread(lambda: self.delete(*args, **named))

    def _select(
        self,
        scope_prefix: str | None = None,
        categories: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Iterator[MemoryRecord]:
        """Yield the records of a scope, oldest first, that have one of the categories and all of these metadata."""
        for one in self._store.run(self._load(_path(scope_prefix))):
            has_category = not categories or any(name in one.categories for name in categories)
            if has_category and all(one.metadata.get(name) == value for name, value in (metadata or {}).items()):
                yield one

    async def _load(self, scope: str) -> list[MemoryRecord]:
        """Return all records of a scope, oldest first."""
        return [_record(one) async for one in self._store.passages([f"scope:{scope}"])]

    async def _get(self, record_id: str) -> MemoryRecord | None:
        passage = await (await self._store.archive()).find_named((record_id,))
        return None if passage is None else _record(passage)

    async def _save(self, records: Sequence[MemoryRecord]) -> None:
        archive = await self._store.archive()
        for record in records:
            value = {**record.model_dump(mode="json"), "embedding": record.embedding}
            tags = [f"scope:{scope}" for scope in _scopes(record.scope)]
            new = NewPassage(text=record.content or "(no text)", tags=tags, metadata={"record": json.dumps(value)})
            await archive.put_named((record.id,), new)

    async def _delete(self, record_ids: Sequence[str]) -> None:
        for record_id in record_ids:
            await (await self._store.archive()).delete_named((record_id,))


def _record(passage: Passage) -> MemoryRecord:
    return MemoryRecord.model_validate_json(passage.metadata["record"])


def _path(scope: str | None) -> str:
    """Return a scope in its one form: with a slash before it and none behind."""
    return "/" + "/".join(filter(None, (scope or "").split("/")))


def _scopes(scope: str) -> Iterator[str]:
    """Yield a scope and all that it lies in, the root first."""
    path = ""
    yield "/"
    for name in filter(None, scope.split("/")):
        path += f"/{name}"
        yield path


def _children(records: Any, scope: str) -> list[str]:
    """Return the scopes right below one that these records are in."""
    below = _path(scope).rstrip("/") + "/"
    paths = {_path(one.scope) for one in records} - {_path(scope)}
    return sorted({below + path.removeprefix(below).partition("/")[0] for path in paths})


def _naive(at: datetime) -> datetime:
    """Return a time in UTC without a zone, as CrewAI makes them."""
    return at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at
