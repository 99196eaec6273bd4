"""Search for tools by words in their name, tags or description."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.core.text.words import index_words
from perdure.core.tools.spec import Tool, ToolFilter
from perdure.storage.tx import Tx

LOOKED_AT = 2_000
"""How many of the newest tools are searched."""

NAME_WEIGHT, TAG_WEIGHT = 3.0, 2.0
"""How much more a word counts in a tool's name and tags than in its description."""


@dataclass(frozen=True, slots=True)
class ToolHit:
    """A tool and its score: higher is better, no unit."""

    tool: Tool
    score: float


def search_tools(tx: Tx, query: str, *, where: ToolFilter, limit: int) -> Sequence[ToolHit]:
    """Return the best tools first; for a query without words the newest, with a score of 0.

    Source: sum of inverse document frequencies, after Robertson and Sparck Jones, 1976; words as in every search here.
    """
    tools = tx.tools.page(where=where, limit=LOOKED_AT)
    words = set(index_words(query).split())
    if not words:
        return [ToolHit(tool, 0.0) for tool in tools[:limit]]
    matches = [(tool, _weights(tool, words)) for tool in tools]
    counts = Counter(word for _, weights in matches for word in weights)
    rare = {word: math.log(1 + len(tools) / count) for word, count in counts.items()}
    hits = [ToolHit(tool, sum(rare[word] * weight for word, weight in weights.items())) for tool, weights in matches]
    return sorted((hit for hit in hits if hit.score > 0), key=lambda hit: -hit.score)[:limit]


def text_of_tool(tool: Tool) -> str:
    """Return the searched text of a tool."""
    return "\n".join(filter(None, (tool.spec.name, " ".join(tool.tags), tool.spec.description)))


def _weights(tool: Tool, words: set[str]) -> dict[str, float]:
    """Return the words of the query that a tool has, each with its weight."""
    weights: dict[str, float] = {}
    name = tool.spec.name
    fields: Iterable[tuple[str, float]] = (
        (tool.spec.description, 1.0),
        (" ".join(tool.tags), TAG_WEIGHT),
        (f"{name} {name.replace('_', ' ').replace('-', ' ')}", NAME_WEIGHT),
    )
    for text, weight in fields:
        weights |= dict.fromkeys(words.intersection(index_words(text).split()), weight)
    return weights
