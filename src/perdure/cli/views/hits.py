"""What features find beside the messages and passages of a search of the command line."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.core.features import Point
from perdure.core.passages import PassageState
from perdure.library.agent import AsyncAgent
from perdure.search.ranking.hits import SearchReport, Why


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """A search of the command line, as features get it to add hits; without an agent they add none."""

    text: str
    agent: AsyncAgent | None = None
    tags: Sequence[str] = ()
    states: Sequence[PassageState] = ()
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 10
    explain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureHits:
    """What a feature has found in a search of the command line.

    Args:
        name: the key of `shapes`, the hits as JSON objects, in the JSON for programs.
        ran: how it searched; None: it did not.
        rows: (time, place, text, explanation) of each hit, for people.
    """

    name: str
    ran: SearchReport | None
    shapes: Sequence[Mapping[str, Any]]
    rows: Sequence[tuple[datetime, str, str, Why | None]]


FOUND_BY_WORDS: Point[[SearchOptions], Awaitable[FeatureHits]] = Point("found_by_words")
"""A search of the command line asks for more hits."""


async def search_more(searching: SearchOptions) -> Sequence[FeatureHits]:
    """The hits that features add to a search, one entry for each feature."""
    return [await found for found in FOUND_BY_WORDS(searching)]
