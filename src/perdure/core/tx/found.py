"""What a full-text match gives back."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Found"]


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate of a full-text search. `score` is the database's own rank over the whole file, higher is better: good
    for choosing candidates, not for comparing agents."""

    seq: int
    score: float
