"""When requests begin with a new prefix, as providers charge for their caches. All constants of the rule are here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

WRITE_PRICE, READ_PRICE = 1.25, 0.1
"""What a token costs that is written to a provider's cache, and one that is read from it, relative to a plain one."""

COLD_AFTER = timedelta(hours=1)
"""Providers drop a cached prefix that is unused for longer, so a rewrite then costs nothing."""

RUNS_MAX = 10
"""The last runs of a conversation, by which the calls of the next are expected."""


def expected_calls(runs: Sequence[int], *, runs_max: int = RUNS_MAX) -> float:
    """Return how many calls a run takes, as the mean of the last runs.

    Args:
        runs: the number of its run for each of the conversation's calls, newest first.
    """
    counts = {run: runs.count(run) for run in list(dict.fromkeys(runs))[:runs_max]}
    return sum(counts.values()) / max(1, len(counts))


def pays_to_rewrite(*, removed: int, kept: int, calls: float) -> bool:
    """Whether the next `calls` save more by not reading `removed` tokens than it costs to write `kept` tokens anew.

    Args:
        kept: what stands behind the place that changes.
    """
    return removed * READ_PRICE * calls > kept * (WRITE_PRICE - READ_PRICE)


def swap_reason(*, lost: str | None, idle: timedelta | None, removed: int, kept: int, calls: float) -> str | None:
    """Return why prepared summaries take the place of their messages before the window is full; None: they do not.

    Args:
        lost: why the prefix is written anew anyway; None: it is not.
        idle: the time since the conversation's last call; None: there was none.
        removed, kept, calls: as in `pays_to_rewrite`.
    """
    if lost is not None:
        return lost
    if idle is None or idle > COLD_AFTER:
        return "cache_cold"
    return "pays" if pays_to_rewrite(removed=removed, kept=kept, calls=calls) else None
