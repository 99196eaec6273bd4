"""Late interaction: the first hits of a search put in order once more, word by word, within a time limit.

The words of a text are embedded when it first comes near the top of a search, and kept as signs: 2 kB for a message.
What there is no time for keeps its place.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.core.errors import ModelError
from perdure.core.ports import WordEmbedder

if TYPE_CHECKING:
    from perdure.search.ranking.fuse import Ranking
    from perdure.search.ranking.pool import Column

POOL_ROWS = 30
KEPT_TEXTS = 20_000
TEXTS_AT_ONCE = 8


class LateInteraction:
    """Compares the first rows of a ranking with the query word by word, and puts them in a new order."""

    def __init__(self, embedder: WordEmbedder, *, deadline_s: float) -> None:
        self._embedder, self._deadline_s = embedder, deadline_s
        self._words: OrderedDict[str, Column] = OrderedDict()

    async def rerank(self, ranked: Ranking, query: str, texts: Sequence[str]) -> tuple[Ranking, str]:
        """Return the ranking with its first `POOL_ROWS` rows in a new order, and in plain words what was left out.

        Args:
            texts: of the first rows of `ranked.order`, in that order.
        """
        import numpy as np

        from perdure.search.ranking.fuse import add_late, late_scores

        until = time.monotonic() + self._deadline_s
        texts = texts[:POOL_ROWS]
        try:
            (query_words,) = await self._embedder.embed_words([query])
            omissions = await self._embed(texts, until)
        except ModelError as error:
            return ranked, str(error)
        rows = [self._words.get(text) for text in texts]
        embedded = [index for index, words in enumerate(rows) if words is not None]
        scores = np.full(len(texts), np.nan)
        scores[embedded] = late_scores(
            query_words, [words for words in rows if words is not None], out_of_time=lambda: time.monotonic() > until
        )
        return add_late(ranked, ranked.order[: len(texts)], scores), omissions

    async def _embed(self, texts: Sequence[str], until: float) -> str:
        """Embed the words of these texts, the first texts first, as far as there is time; what was left out, in plain
        words."""
        from perdure.search.ranking.fuse import pack_signs

        for text in texts:
            if text in self._words:
                self._words.move_to_end(text)
        missing = [text for text in dict.fromkeys(texts) if text not in self._words]
        for first in range(0, len(missing), TEXTS_AT_ONCE):
            if (remaining_s := until - time.monotonic()) <= 0:
                return f"no time for {len(missing) - first} of {len(texts)} texts"
            batch = missing[first : first + TEXTS_AT_ONCE]
            try:
                async with asyncio.timeout(remaining_s):
                    words = await self._embedder.embed_words(batch)
            except TimeoutError:
                return f"no time for {len(missing) - first} of {len(texts)} texts"
            for text, vectors in zip(batch, words, strict=True):
                self._words[text] = pack_signs(vectors)
            while len(self._words) > KEPT_TEXTS:
                self._words.popitem(last=False)
        return ""
