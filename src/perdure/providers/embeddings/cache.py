"""A cache of vectors."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.core.ports import Embedder, EmbedPurpose, WordEmbedder
from perdure.providers.embeddings.vectors import prefix_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ENTRIES_MAX = 2_048


def with_cache(embedder: Embedder, *, entries: int = ENTRIES_MAX) -> CachedEmbedder:
    """The embedder behind a cache; a `WordEmbedder` stays one."""
    if isinstance(embedder, WordEmbedder):
        return CachedWordEmbedder(embedder, embedder, entries=entries)
    return CachedEmbedder(embedder, entries=entries)


class CachedEmbedder:
    """`Embedder` with a cache of the last vectors, by a digest of the text.

    Documents and queries share an entry unless the model has a prefix for each.

    Args:
        entries: the size of the cache in vectors; 2,048 of MiniLM take 3 MB.
    """

    def __init__(self, embedder: Embedder, *, entries: int = ENTRIES_MAX) -> None:
        self._embedder, self._entries = embedder, entries
        self._rows: OrderedDict[bytes, npt.NDArray[np.float32]] = OrderedDict()
        self.handle, self.local = embedder.handle, embedder.local
        self._has_prefixes = prefix_of(embedder.handle, "document") != prefix_of(embedder.handle, "query")

    @property
    def dimensions(self) -> int | None:
        return self._embedder.dimensions

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        """See `Embedder`. Equal texts of one call are embedded once. Raises: ModelError."""
        import numpy as np

        if not texts:
            return await self._embedder.embed(texts, purpose=purpose)
        keys = [self._key(text, purpose) for text in texts]
        rows_by_key = {key: row for key in keys if (row := self._rows.get(key)) is not None}
        if missing := {key: text for key, text in zip(keys, texts, strict=True) if key not in rows_by_key}:
            rows = await self._embedder.embed(list(missing.values()), purpose=purpose)
            # Copies, or one row would keep the memory of the whole batch.
            rows_by_key |= {key: row.copy() for key, row in zip(missing, rows, strict=True)}
        for key, row in rows_by_key.items():
            self._rows[key] = row
            self._rows.move_to_end(key)
        while len(self._rows) > self._entries:
            self._rows.popitem(last=False)
        return np.stack([rows_by_key[key] for key in keys])

    async def close(self) -> None:
        """Close the embedder."""
        await self._embedder.close()

    def _key(self, text: str, purpose: EmbedPurpose) -> bytes:
        """The digest under which a text's vector stands in the cache."""
        data = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=16, person=purpose.encode() if self._has_prefixes else b"").digest()


class CachedWordEmbedder(CachedEmbedder):
    """The same over an embedder that is a `WordEmbedder` too; vectors of words are not kept."""

    def __init__(self, embedder: Embedder, words: WordEmbedder, *, entries: int = ENTRIES_MAX) -> None:
        super().__init__(embedder, entries=entries)
        self._words = words

    async def embed_words(self, texts: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        """See `WordEmbedder`. Raises: ModelError."""
        return await self._words.embed_words(texts)
