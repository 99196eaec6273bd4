"""CrewAI's storage of memories over an archive: `Memory(storage=PerdureStorage())`."""

from __future__ import annotations

import heapq
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from perdure import NewPassage, Passage
from perdure.adapters.opening import ArchiveAdapter, in_store, in_thread

try:
    from crewai.memory.storage.backend import EmbeddingDimensionMismatchError
    from crewai.memory.types import MemoryRecord, ScopeInfo
except ImportError as error:
    raise ImportError("the storage for CrewAI needs its records: install crewai") from error

PAGE = 100
"""How many records are read at once: each has a vector of some kilobytes."""

DIMENSIONS = "dimensions:"
"""How the tag begins that says how long a vector is."""


class PerdureStorage(ArchiveAdapter):
    """CrewAI's `StorageBackend`: records in scopes such as `/team/ada`, found by the vectors that CrewAI makes.

    A scope holds the scopes below it too. Each record is a passage, so an agent that has the archive finds it by words.
    `ArchiveAdapter` says what it takes.
    """

    _archive = "crewai"

    @in_store
    async def save(self, records: list[MemoryRecord]) -> None:
        """Store records; one whose id is there already is replaced. Raises: InvalidInput,
        EmbeddingDimensionMismatchError."""
        archive = await self._store.archive()
        dimensions = await self._dimensions()
        for record in records:
            dimensions = dimensions or len(record.embedding or [])
            if record.embedding and len(record.embedding) != dimensions:
                raise EmbeddingDimensionMismatchError(dimensions, len(record.embedding))
        for record in records:
            vector = b64encode(np.asarray(record.embedding or [], dtype=np.float32).tobytes()).decode()
            metadata = {"record": record.model_dump_json(), "vector": vector}
            tags = [f"scope:{scope}" for scope in _scopes(record.scope)]
            tags += [f"{DIMENSIONS}{dimensions}"] if record.embedding else []
            new = NewPassage(text=record.content or "(no text)", tags=tags, metadata=metadata)
            await archive.put_named((record.id,), new)

    def update(self, record: MemoryRecord) -> None:
        """Replace the record with this id. Raises: InvalidInput."""
        self.save([record])

    @in_store
    async def touch_records(self, record_ids: list[str]) -> None:
        """Store that these records were recalled now; unknown ids are ignored."""
        archive, now = await self._store.archive(), _naive(datetime.now(UTC))

        def touch(passage: Passage) -> dict[str, Any]:
            record = MemoryRecord.model_validate_json(passage.metadata["record"])
            touched = record.model_copy(update={"last_accessed": now})
            return {**passage.metadata, "record": touched.model_dump_json()}

        for record_id in record_ids:
            await archive.change_named((record_id,), lambda passage: {"metadata": touch(passage)})

    @in_store
    async def get_record(self, record_id: str) -> MemoryRecord | None:
        """Return the record with this id; None: there is none."""
        passage = await (await self._store.archive()).find_named((record_id,))
        return None if passage is None else _record(passage)

    @in_store
    async def search(
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
        query, count = np.asarray(query_embedding, dtype=np.float32), 0
        if (stored := await self._dimensions() or len(query)) != len(query):
            raise EmbeddingDimensionMismatchError(stored, len(query))
        best: list[tuple[float, int, Passage]] = []
        async for passage, _ in self._select(scope_prefix, categories, metadata_filter):
            vector = _vector(passage)
            if not (vector.any() and query.any()):
                continue
            cosine = float(vector @ query / (np.linalg.norm(vector) * np.linalg.norm(query)))
            if (score := max(0.0, min(1.0, cosine))) >= min_score:
                count += 1
                keep = heapq.heappush if len(best) < limit else heapq.heappushpop
                keep(best, (score, -count, passage))
        return [(_record(passage), score) for score, _, passage in sorted(best, reverse=True)]

    @in_store
    async def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Remove the records that meet all of these conditions, and return how many; without a condition all."""
        archive = await self._store.archive()
        chosen = [
            one.id
            async for _, one in self._select(scope_prefix, categories, metadata_filter, record_ids)
            if older_than is None or _naive(one.created_at) < _naive(older_than)
        ]
        for record_id in chosen:
            await archive.delete_named((record_id,))
        return len(chosen)

    @in_store
    async def list_records(
        self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0
    ) -> list[MemoryRecord]:
        """Return the records of a scope, newest first."""
        times = [(_naive(one.created_at), one.id) async for _, one in self._select(scope_prefix)]
        archive = await self._store.archive()
        chosen = sorted(times, key=lambda one: one[0], reverse=True)[offset : offset + limit]
        found = [await archive.find_named((record_id,)) for _, record_id in chosen]
        return [_record(one) for one in found if one is not None]

    @in_store
    async def get_scope_info(self, scope: str) -> ScopeInfo:
        """Return how many records a scope has, of which categories and times, and the scopes right below it."""
        records = [one async for _, one in self._select(scope)]
        times = sorted(_naive(one.created_at) for one in records)
        return ScopeInfo(
            path=_path(scope),
            record_count=len(records),
            categories=sorted({name for record in records for name in record.categories}),
            oldest_record=times[0] if times else None,
            newest_record=times[-1] if times else None,
            child_scopes=_children(await (await self._store.archive()).tags(), scope),
        )

    @in_store
    async def list_scopes(self, parent: str = "/") -> list[str]:
        """Return the scopes right below one."""
        return _children(await (await self._store.archive()).tags(), parent)

    @in_store
    async def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Return the categories of a scope's records, each with how many have it."""
        return dict(Counter([name async for _, one in self._select(scope_prefix) for name in one.categories]))

    @in_store
    async def count(self, scope_prefix: str | None = None) -> int:
        """Return how many records a scope has."""
        return await (await self._store.archive()).delete_where(tags=[_tag(scope_prefix)], dry_run=True)

    @in_store
    async def reset(self, scope_prefix: str | None = None) -> None:
        """Remove all records of a scope; None: of all scopes."""
        await (await self._store.archive()).delete_where(tags=[_tag(scope_prefix)])

    asave = in_thread(save)
    asearch = in_thread(search)
    adelete = in_thread(delete)

    async def _dimensions(self) -> int:
        """Return how many numbers each vector has; 0: there is none."""
        tags = await (await self._store.archive()).tags()
        return next((int(tag.removeprefix(DIMENSIONS)) for tag in tags if tag.startswith(DIMENSIONS)), 0)

    async def _select(
        self,
        scope_prefix: str | None = None,
        categories: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
        ids: Sequence[str] | None = None,
    ) -> AsyncIterator[tuple[Passage, MemoryRecord]]:
        """Yield the records of a scope with one of the categories and ids and all of the metadata; no vectors."""
        tag = _tag(scope_prefix)
        async for passage in self._store.passages([tag], page_size=PAGE) if ids is None else self._named(ids):
            if tag not in passage.tags:
                continue
            one = MemoryRecord.model_validate_json(passage.metadata["record"])
            has_category = not categories or any(name in one.categories for name in categories)
            if has_category and all(one.metadata.get(name) == value for name, value in (metadata or {}).items()):
                yield passage, one

    async def _named(self, ids: Sequence[str]) -> AsyncIterator[Passage]:
        """Yield the passages of the records with these ids, of those that are there."""
        archive = await self._store.archive()
        for record_id in dict.fromkeys(ids):
            if (found := await archive.find_named((record_id,))) is not None:
                yield found


def _vector(passage: Passage) -> Any:
    """Return the vector that CrewAI made of a record; an empty one: it has none."""
    return np.frombuffer(b64decode(passage.metadata["vector"]), dtype=np.float32)


def _record(passage: Passage) -> MemoryRecord:
    record, vector = MemoryRecord.model_validate_json(passage.metadata["record"]), _vector(passage)
    return record.model_copy(update={"embedding": vector.tolist() if len(vector) else None})


def _path(scope: str | None) -> str:
    """Return a scope in its one form: with a slash before it and none behind."""
    return "/" + "/".join(filter(None, (scope or "").split("/")))


def _tag(scope: str | None) -> str:
    """Return the tag of the records in a scope and in those below it."""
    return f"scope:{_path(scope)}"


def _scopes(scope: str) -> Iterator[str]:
    """Yield a scope and all that it lies in, the root first."""
    names = _path(scope).split("/")[1:]
    yield from ("/" + "/".join(names[:length]) for length in range(len(names) + 1 if names[0] else 1))


def _children(tags: Iterable[str], scope: str) -> list[str]:
    """Return the scopes right below one that records with these tags are in."""
    below = _path(scope).rstrip("/") + "/"
    paths = [tag.removeprefix("scope:") for tag in tags if tag.startswith("scope:")]
    return sorted({path for path in paths if path.startswith(below) and path != "/" and "/" not in path[len(below) :]})


def _naive(at: datetime) -> datetime:
    """Return a time in UTC without a zone, as CrewAI makes them."""
    return at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at
