"""Every number of the ranking, with the measurement that set it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HYBRID", "LEXICAL", "PASSAGES", "Weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much each signal counts. The unit of the arms is one standard deviation over the scope."""

    lexical: float = 1.0
    dense: float = 0.0
    session: float = 0.6
    late: float = 0.0

    k1: float = 0.7
    length_share: float = 0.15
    """bm25's b. Small, because the shape of a row speaks for long ones and against short ones by itself."""
    before: tuple[float, ...] = (0.4, 0.2, 0.1)
    after: tuple[float, ...] = (0.2, 0.1, 0.05)
    """Share of a word that the row 1, 2, 3 before (after) this one has. Counted before bm25 saturates, so that a word
    in two neighbours is still one word found: +1.2 R@10, +2 MRR above sharing their scores."""
    dense_before: tuple[float, ...] = (0.4, 0.2)
    dense_after: tuple[float, ...] = (0.3, 0.1)

    floor: float = 0.08
    session_floor: float = 0.15
    """The spread of the words' scores is at least this part of the best possible score: in a scope of 100,000 rows,
    where nearly all score 0, one matching word would otherwise outweigh everything else."""

    speaker: float = 1.6
    role: float = 0.5
    length: float = 0.4
    asks: float = -0.5
    answers: float = 0.4
    when: float = 0.6
    span: float = 1.0

    recency: float = 0.05
    recency_days: float = 30.0
    use: float = 0.05
    """Largest effects of being new and of having been used often, as parts of the relevance."""


LEXICAL = Weights()
HYBRID = Weights(lexical=0.5, dense=0.5)
PASSAGES = Weights(lexical=0.5, dense=0.5, speaker=0.0, asks=0.0, answers=0.0, length=0.0)
