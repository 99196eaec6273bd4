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

RUNS_AHEAD = 2
"""Summaries are prepared when so many runs, as large as the largest in view, would not fit any more. Earlier they would
cover less, and be paid for where the conversation ends before."""

CHUNK_SHARE = 0.6
"""The largest share of the room for messages that one prepared summary replaces. Each call of its model costs a few
hundred tokens more than what it reads, so a small window has few."""

LAST_CHUNK_SHARE = 0.25
"""The least share of such a chunk that the newest of the messages to summarise must fill."""

TAIL_SHARE = 0.15
"""The least share of the room for messages that the newest ones keep which no prepared summary covers."""

LEAF_SHARE = 0.06
"""The size of a prepared summary relative to what it replaces. Its tokens cost five times as much as those it is made
of, and are read with each later request: at 0.12, conversations cost 5 % more."""

OUTPUT_PRICE = 5.0
"""What a token of an answer costs, relative to a plain one of a request."""

WASTE_SHARE = 0.2
"""The most that summaries may cost, relative to what the messages in view have cost, before the window is full for the
first time: a conversation that ends before has not much paid for nothing."""


def spent_on(sizes: Sequence[int], answers: Sequence[bool], *, fixed: int) -> float:
    """Return what the calls of a conversation have cost, in plain tokens: each wrote what was new and read the rest.

    Args:
        sizes: the tokens of its rows, oldest first.
        answers: whether a row is a model's answer, before which a call was made.
        fixed: the tokens before the rows.
    """
    spent, size = fixed * WRITE_PRICE, fixed
    for tokens, is_answer in zip(sizes, answers, strict=True):
        spent += tokens * WRITE_PRICE
        if is_answer:
            spent += size * READ_PRICE + tokens * OUTPUT_PRICE
        size += tokens
    return spent


def summary_price(source: int, summary: int) -> float:
    """Return what a summary costs, in plain tokens of its request and its answer."""
    return source + summary * OUTPUT_PRICE


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


def swap_reason(*, idle: timedelta | None, removed: int, kept: int, calls: float) -> str | None:
    """Return why prepared summaries take the place of their messages before the window is full; None: they do not.

    Args:
        idle: the time since the conversation's last call; None: there was none.
        removed, kept, calls: as in `pays_to_rewrite`.
    """
    if idle is None or idle > COLD_AFTER:
        return "cache_cold"
    return "pays" if pays_to_rewrite(removed=removed, kept=kept, calls=calls) else None
