"""Shared by all embedders: the prefixes that some models need, the check of vectors, and a cache of them."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perdure.core.errors import ModelReplyInvalid
from perdure.core.ports import Embedder, EmbedPurpose, WordEmbedder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    _RowsAndWords = tuple[npt.NDArray[np.float32], list[npt.NDArray[np.float32]]]

# Models that were trained with other beginnings for what is searched than for what is searched with. Servers don't add
# them. (name, before a document, before a query)
_PREFIXES: Sequence[tuple[re.Pattern[str], str, str]] = (
    (re.compile(r"nomic-embed-text"), "search_document: ", "search_query: "),
    (re.compile(r"(?:^|[/_-])e5-(?:small|base|large)(?!-instruct)"), "passage: ", "query: "),
    (
        re.compile(r"mxbai-embed|snowflake-arctic-embed|bge-(?:small|base|large)-en"),
        "",
        "Represent this sentence for searching relevant passages: ",
    ),
    (re.compile(r"embeddinggemma|embedding-gemma"), "title: none | text: ", "task: search result | query: "),
)

ENTRIES_MAX = 2_048
QUERIES_MAX = 128
"""The cache of queries with the vectors of their words: 2 MB of MiniLM's."""


def prefix_of(model: str, purpose: EmbedPurpose) -> str:
    """The prefix of a text for this model; empty for most.

    >>> prefix_of("nomic-embed-text:v1.5", "query") 'search_query: '
    """
    for pattern, document, query in _PREFIXES:
        if pattern.search(model.lower()):
            return query if purpose == "query" else document
    return ""


def unit_rows(
    vectors: Sequence[Any] | npt.NDArray[np.float32], *, texts: int, dimensions: int | None, who: str
) -> npt.NDArray[np.float32]:
    """The vectors as float32 rows of length 1, shape (texts, dimensions).

    Args:
        texts: how many were sent; `dimensions`: how many numbers earlier vectors had, None if there was none.
        who: the model, for the message.
    Raises: ModelReplyInvalid: another count, another dimension, vectors of unequal length, something that is no number,
        a vector of zeros.
    """
    import numpy as np

    if len(vectors) != texts:
        raise ModelReplyInvalid(f"{who} gave {len(vectors)} vectors for {texts} texts")
    if texts == 0:
        return np.zeros((0, dimensions or 0), np.float32)
    lengths = {len(vector) for vector in vectors}
    shortest, longest = min(lengths), max(lengths)
    if shortest == 0:
        raise ModelReplyInvalid(f"{who} gave a vector without numbers")
    if shortest != longest:
        raise ModelReplyInvalid(f"{who} gave vectors of {shortest} and of {longest} numbers")
    if dimensions not in (None, longest):
        raise ModelReplyInvalid(
            f"{who} gave vectors of {longest} numbers, and {dimensions} before: is it another model by now?"
        )
    try:
        rows = np.array(vectors, np.float64)
    except (ValueError, TypeError) as error:
        raise ModelReplyInvalid(f"{who} gave a vector that holds something else than numbers") from error
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise ModelReplyInvalid(f"{who} gave a vector with a number that is NaN or infinite")
    if not norms.all():
        raise ModelReplyInvalid(f"{who} gave a vector of zeros, which is near to nothing")
    unit: npt.NDArray[np.float32] = (rows / norms).astype(np.float32)
    return unit


def with_cache(embedder: Embedder, *, entries: int = ENTRIES_MAX) -> CachedEmbedder:
    """The embedder behind a cache; a `WordEmbedder` stays one."""
    if isinstance(embedder, WordEmbedder):
        return CachedWordEmbedder(embedder, entries=entries)
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
    """`CachedEmbedder` of a `WordEmbedder`; the vectors of words are cached for queries only."""

    def __init__(self, embedder: WordEmbedder, *, entries: int = ENTRIES_MAX) -> None:
        super().__init__(embedder, entries=entries)
        self._with_words = embedder
        self._queries: OrderedDict[tuple[bytes, ...], _RowsAndWords] = OrderedDict()

    async def embed_with_words(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> _RowsAndWords:
        """See `WordEmbedder`. Raises: ModelError."""
        if purpose == "document":
            return await self._with_words.embed_with_words(texts)
        keys = tuple(self._key(text, purpose) for text in texts)
        if (found := self._queries.get(keys)) is None:
            found = self._queries[keys] = await self._with_words.embed_with_words(texts, purpose=purpose)
        self._queries.move_to_end(keys)
        if len(self._queries) > QUERIES_MAX:
            self._queries.popitem(last=False)
        rows, words = found
        return rows.copy(), [word.copy() for word in words]
