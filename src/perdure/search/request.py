"""A search request: the query, and what the search needs to answer it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from perdure.search.archive_cache import ArchiveCache
    from perdure.search.history import Histories
    from perdure.search.hits import Arm
    from perdure.search.vectors.index import VectorIndexes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchRequest:
    """A query with all that its search needs beside the store: a unit of work has no clock and no model.

    Args:
        text: the query as the user wrote it.
        now: the clock, for what has no log of its own; a history is searched by its newest message's time.
        timezone: where days begin that the query names.
        vectors: embedding model -> the query's vector, of length 1.
        without: arm -> in plain words, why it can't run.
    """

    text: str
    now: datetime
    histories: Histories
    archives: ArchiveCache
    indexes: VectorIndexes | None = None
    timezone: str = "UTC"
    vectors: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    without: Mapping[Arm, str] = field(default_factory=dict)
