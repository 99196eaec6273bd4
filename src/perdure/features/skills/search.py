"""Searching skills by words and by meaning: an agent has few of them, so all are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.core.documents import Chunk
from perdure.engine.search.search import QUERY_TIMEOUT_S, Search

if TYPE_CHECKING:
    from perdure.search.output import OutputParts

BODY_CHARS = 8_000
VECTOR_CHARS = 1_000
"""What is searched of a text by words, and what its vector is of."""


@dataclass(frozen=True, slots=True)
class SkillText:
    """A skill as a search looks at it. `layer`: where it is from, or L2 or L3."""

    name: str
    layer: str
    description: str
    body: str

    @property
    def text(self) -> str:
        """What is searched."""
        return f"{self.name.replace('-', ' ').replace('_', ' ')}: {self.description}\n{self.body[:BODY_CHARS]}"


async def rank_texts(search: Search, texts: Sequence[SkillText], query: str) -> Sequence[int]:
    """Return the places of the texts that fit a query, best first. Raises: TooMany: the query is too long."""
    search.check_query(query)
    if not texts:
        return []
    found, order = await asyncio.to_thread(_match_words, texts, query)
    return (await _rank_by_meaning(search, found, order, query) if search.has_embedder else None) or order


def _match_words(texts: Sequence[SkillText], query: str) -> tuple[OutputParts, Sequence[int]]:
    """Return the texts as a search takes them, and the places of those with words of the query, best first."""
    from perdure.search.output import count_words

    found = count_words([Chunk(text=one.text, first_line=1, last_line=1) for one in texts], query)
    return found, found.rank()


async def _rank_by_meaning(
    search: Search, found: OutputParts, order: Sequence[int], query: str
) -> Sequence[int] | None:
    """Return the places by words, and by the vectors of those that words rank first and some others; None: there are no
    vectors in time."""
    import numpy as np

    from perdure.search.output import EMBEDDED

    near = [*dict.fromkeys((*order, *range(len(found.parts))))][:EMBEDDED]
    wanted = await search.embed([query], purpose="query", timeout_s=QUERY_TIMEOUT_S)
    vectors = await search.embed([found.parts[row].text[:VECTOR_CHARS] for row in near])
    if wanted is None or vectors is None:
        return None
    dense = np.full(len(found.parts), np.nan)
    dense[near] = vectors @ wanted[0]
    return await asyncio.to_thread(found.rank, dense)
