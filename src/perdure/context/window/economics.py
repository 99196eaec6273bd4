"""When it pays to begin requests with a new prefix, as providers charge for their caches."""

from __future__ import annotations

from collections.abc import Sequence

WRITE_PRICE, READ_PRICE = 1.25, 0.1
"""What a token costs that is written to a provider's cache, and one that is read from it, relative to a plain one."""


def expected_calls(runs: Sequence[int], *, runs_max: int = 10) -> float:
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
