"""Pauses that grow with each failure in a row."""

from __future__ import annotations

_FACTORS_MAX = 64
"""So often a pause grows at most: a longer power than this is no number of seconds."""


def backoff_s(failures: int, *, first_s: float, most_s: float, factor: float = 2.0) -> float:
    """Return the pause after failures in a row: `first_s` after one, times `factor` for each more, at most `most_s`."""
    return min(most_s, first_s * factor ** min(max(failures, 1) - 1, _FACTORS_MAX))
