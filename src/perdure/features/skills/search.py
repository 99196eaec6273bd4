"""Searching skills by words and by meaning: an agent has few of them, so all are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.core.documents import Chunk
from perdure.features.skills.values import SkillView

if TYPE_CHECKING:
    from perdure.engine.search.search import Search
    from perdure.search.output import OutputParts

TEXT_CHARS = 4_000
"""What is searched of a skill's text."""


async def rank_skills(search: Search, skills: Sequence[SkillView], query: str) -> Sequence[SkillView]:
    """Return the skills that fit a query, best first. Raises: TooMany: the query is too long."""
    from perdure.engine.search.tools import rank_by_meaning
    from perdure.search.output import EMBEDDED

    search.check_query(query)
    if not skills:
        return []
    found, order = await asyncio.to_thread(_match_words, skills, query)
    if search.has_embedder:
        near = [*dict.fromkeys((*order, *range(len(skills))))][:EMBEDDED]
        order = await rank_by_meaning(search, found, near, query) or order
    return [skills[place] for place in order]


def _match_words(skills: Sequence[SkillView], query: str) -> tuple[OutputParts, Sequence[int]]:
    """The texts as a search takes them, and the places of those with words of the query, best first."""
    from perdure.search.output import count_words

    texts = [
        f"{one.name.replace('-', ' ').replace('_', ' ')}: {one.description}\n{one.text[:TEXT_CHARS]}" for one in skills
    ]
    found = count_words([Chunk(text=text, first_line=1, last_line=1) for text in texts], query)
    return found, found.rank()
