"""A cache of vectors, which also joins small calls that wait at the same time."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.core.ports import Embedder, EmbedPurpose, WordEmbedder
from perdure.providers.embeddings.texts import prefix_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ENTRIES_MAX = 2_048
JOIN_MAX = 16
"""Calls with more texts run alone."""


def with_cache(embedder: Embedder, *, entries: int = ENTRIES_MAX) -> CachedEmbedder:
    """The embedder behind a cache; a `WordEmbedder` stays one."""
    if isinstance(embedder, WordEmbedder):
        return CachedWordEmbedder(embedder, embedder, entries=entries)
    return CachedEmbedder(embedder, entries=entries)


@dataclass(slots=True)
class _Call:
    texts: Sequence[str]
    rows: asyncio.Future[npt.NDArray[np.float32]]


class CachedEmbedder:
    """`Embedder` with a cache of the last vectors, by a digest of the text.

    Documents and queries share an entry unless the model has a prefix for each. Calls of a few texts that wait for a
    local embedder are joined: eight queries at once take less than half the time. `hits` and `misses` count texts.

    Args:
        entries: the size of the cache in vectors; 2,048 of MiniLM take 3 MB.
    """

    def __init__(self, embedder: Embedder, *, entries: int = ENTRIES_MAX) -> None:
        self._embedder, self._entries = embedder, entries
        self._rows: OrderedDict[bytes, npt.NDArray[np.float32]] = OrderedDict()
        self._has_prefixes = prefix_of(embedder.handle, "document") != prefix_of(embedder.handle, "query")
        self._waiting: dict[EmbedPurpose, list[_Call]] = {}
        self._working: set[asyncio.Task[None]] = set()
        self.hits = self.misses = 0

    @property
    def handle(self) -> str:
        return self._embedder.handle

    @property
    def dimensions(self) -> int | None:
        return self._embedder.dimensions

    @property
    def local(self) -> bool:
        return self._embedder.local

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        """See `Embedder`. Equal texts of one call are embedded once. Raises: ModelError."""
        import numpy as np

        keys = [self._key(text, purpose) for text in texts]
        rows_by_key: dict[bytes, npt.NDArray[np.float32]] = {}
        missing: dict[bytes, str] = {}
        for key, text in zip(keys, texts, strict=True):
            if (row := self._rows.get(key)) is None:
                missing[key] = text
            else:
                self._rows.move_to_end(key)
                rows_by_key[key] = row
        self.misses += len(missing)
        self.hits += len(texts) - len(missing)
        if missing or not texts:
            rows = await self._embed(list(missing.values()), purpose)
            if not texts:
                return rows
            for key, row in zip(missing, rows, strict=True):
                rows_by_key[key] = self._rows[key] = row.copy()  # not a part of the whole batch's memory
            while len(self._rows) > self._entries:
                self._rows.popitem(last=False)
        return np.stack([rows_by_key[key] for key in keys])

    async def close(self) -> None:
        """Close the embedder after the running calls."""
        await asyncio.gather(*self._working, return_exceptions=True)
        await self._embedder.close()

    def _key(self, text: str, purpose: EmbedPurpose) -> bytes:
        data = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=16, person=purpose.encode() if self._has_prefixes else b"").digest()

    async def _embed(self, texts: list[str], purpose: EmbedPurpose) -> npt.NDArray[np.float32]:
        if not self.local or not 0 < len(texts) <= JOIN_MAX:
            return await self._embedder.embed(texts, purpose=purpose)
        call = _Call(texts, asyncio.get_running_loop().create_future())
        waiting = self._waiting.get(purpose)
        if waiting is not None:
            waiting.append(call)
        else:
            self._waiting[purpose] = [call]
            task = asyncio.create_task(self._work(purpose))
            self._working.add(task)
            task.add_done_callback(self._working.discard)
        return await call.rows

    async def _work(self, purpose: EmbedPurpose) -> None:
        """Embed the waiting calls together until none waits."""
        try:
            while calls := self._waiting[purpose]:
                self._waiting[purpose] = []
                await self._embed_calls(calls, purpose)
        finally:
            del self._waiting[purpose]

    async def _embed_calls(self, calls: list[_Call], purpose: EmbedPurpose) -> None:
        calls = [call for call in calls if not call.rows.done()]  # without cancelled calls
        try:
            rows = await self._embedder.embed([text for call in calls for text in call.texts], purpose=purpose)
        except BaseException as error:
            for call in calls:
                if isinstance(error, Exception) and not call.rows.done():
                    call.rows.set_exception(error)
                call.rows.cancel()
            if not isinstance(error, Exception):
                raise
            return
        start = 0
        for call in calls:
            if not call.rows.done():
                call.rows.set_result(rows[start : start + len(call.texts)])
            start += len(call.texts)


class CachedWordEmbedder(CachedEmbedder):
    """The same over an embedder that is a `WordEmbedder` too; vectors of words are not kept."""

    def __init__(self, embedder: Embedder, words: WordEmbedder, *, entries: int = ENTRIES_MAX) -> None:
        super().__init__(embedder, entries=entries)
        self._words = words

    async def embed_words(self, texts: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        """See `WordEmbedder`. Raises: ModelError."""
        return await self._words.embed_words(texts)
