"""The budget: what a request may take, what it takes, and the certificate that it fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Certificate",
    "Segment",
    "SegmentName",
    "factor_after_overflow",
    "overcount_after",
    "overcount_measured",
    "reserve_tokens",
]

SHRUNK = 0.75
"""After a provider found a request too large, the next may take so much of what that one took."""

SegmentName = Literal[
    "tools", "system prompt", "memory blocks", "files", "summary", "messages", "newest turn", "status", "recalled"
]
"""The parts of a request, in its order. `files` is there only where an agent has folders, `recalled` where
something was."""

PLAUSIBLE = (0.4, 2.5)
"""Measured tokens, as a share of the estimate. What is outside is no measurement of the whole request: some servers
leave out what they had cached, or report nothing."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a request, in the order of the request, with the upper estimate of its tokens."""

    name: SegmentName
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a request takes of a window.

    Args:
        overcount: by how much the segments' sum is known to be too high; negative if it is too low.
        factor: what the corrected sum is multiplied with, after a provider refused a request that was certified.
        reserve_tokens: kept free for the answer.
    """

    window_tokens: int
    reserve_tokens: int
    segments: tuple[Segment, ...]
    overcount: int = 0
    factor: float = 1.0

    @property
    def estimated_tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)

    @property
    def tokens(self) -> int:
        """The estimate, corrected."""
        return math.ceil((self.estimated_tokens - self.overcount) * self.factor)

    @property
    def budget_tokens(self) -> int:
        return self.window_tokens - self.reserve_tokens

    @property
    def over_tokens(self) -> int:
        """How much has to go before the request fits; 0 if it does."""
        return max(0, self.tokens - self.budget_tokens)

    @property
    def fits(self) -> bool:
        return self.tokens <= self.budget_tokens


def reserve_tokens(window_tokens: int, wanted: int) -> int:
    """What is kept free for the answer: as wanted, but of a small window at most a quarter."""
    return min(wanted, window_tokens // 4)


def overcount_measured(estimated: int, measured: int, *, window_tokens: int, before: Sequence[int] = ()) -> int | None:
    """By how much a request was overestimated; None if `measured` can't be the size of all of it, and nothing else.

    Args:
        window_tokens: of the model, which answered the request: it was not larger.
        before: what was measured of earlier requests that this one only added to.
    """
    low, high = PLAUSIBLE
    if measured > window_tokens or not estimated * low <= measured <= estimated * high:
        return None
    return None if before and measured < max(before) else estimated - measured


def factor_after_overflow(budget_tokens: int, refused_tokens: int) -> float:
    """The factor by which a request of `refused_tokens`, as certified, counts as so far over the budget that `SHRUNK`
    of it just fits. Either the tokens are more than estimated or the window is smaller than known: this is right for
    both."""
    return max(1.0, budget_tokens / (SHRUNK * max(1, refused_tokens)))


def overcount_after(overcount: int, *, estimated: int, dropped: int, dropped_at_least: int) -> int:
    """What is left of an overcount when a part of what was measured goes: `dropped` of `estimated`, but perhaps
    `dropped_at_least` only, and then the overcount was in the rest. The result is safe for whatever stays.

    With U estimated and M measured of the whole, what stays takes at most min(U - dropped, M - dropped_at_least). Where
    the estimate was too low, its share of what was missing goes with what goes: or one wrong measurement, larger than
    all that can stay, would be held against a conversation for ever.
    """
    if overcount < 0:
        return -math.ceil(-overcount * max(0.0, 1 - dropped / max(1, estimated)))
    return max(0, overcount - max(0, dropped - dropped_at_least))
