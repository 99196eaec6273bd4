"""Every number of the ranking, with the measurement that set it.

Measured with `benchmarks/ranking_weights.py` on five conversations of LoCoMo (2,960 turns, 1,018 questions), as the
evidence found among the first ten (R@10, in points of 100) and the mean reciprocal rank of the first (MRR). All optima
are broad: no number here, moved by a quarter, costs half a point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much each signal counts. Arms are in standard deviations over the scope, all else is added to them as it is.

    Attributes:
        lexical: the query's words in the row and beside it.
        dense: the cosine of row and query, with a share of its neighbours'.
        related: without vectors, the count of a related word for each of its degrees, 1 to 9; a query's own word counts
            1. +1.5 R@10, +1 MRR, +3.5 R@10 on multi-hop questions; 0.035 to 0.07 are alike. Related words of the
            rows beside it don't count: that costs 0.2 to 0.5.
        session: the query's words in the whole session: +2 to +3 R@10 at 0.3 to 0.9, most at 0.6 without vectors;
            with them more than 0.6 costs multi-hop questions up to 3.
        late: late interaction over the first 60 rows: +1.5 R@10, +0.7 MRR, +4.8 R@10 on multi-hop questions.
        k1: bm25's; 0.5 to 1.0 are alike.
        length_share: bm25's b. Small, because `length` speaks for long rows by itself: 0.75 costs 2 MRR.
        before: shares of a word that stands in the row 1, 2, 3 before; after: in the row 1, 2, 3 after. They are
            counted before bm25 saturates, so that a word in two neighbours is still one word found: +1.2 R@10 and +2
            MRR above sharing the neighbours' scores.
        dense_before, dense_after: shares of a neighbour's cosine; wider or narrower by half costs 0.2.
        floor, session_floor: the spread of the words' scores is at least this part of the best possible score. In a
            scope of 100,000 rows, where nearly all score 0, one matching word would otherwise outweigh everything
            else; in one of 600 it gives +0.2.
        speaker: the query names who said it. 1.0: -0.6 R@10, 2.0: the same.
        role: the same in a chat with an assistant ("what did you suggest"); not measured, so it only breaks near-ties.
        length: per standard deviation of a message's length; asks: it asks something; answers: the row before it does.
            The three together: +1.5 to +2.3 R@10, +3.6 MRR. More length costs recall in 4,000 characters.
        first_person: the row says "I" or "we", so it tells of its speaker: +0.3 to +0.5 R@10, +0.3 MRR; 0.3 to 0.5 are
            alike. Like length, it never lifts a row without a match over one with a match.
        when: the query asks for a time and the row names one: +0.5 MRR.
        name: the query asks for a name; for each in the row, up to four: +0.2 R@10, +0.5 MRR; 0.2 to 0.8 are alike.
        span: the row is from a time that the query names, or from the week after it. On the 158 questions that name
            one +4 R@10, +5.5 MRR at 1.0, +8 and +9 at 2.0; 3.0: another +0.2 over all questions.
        recency: the part of its relevance that a row of now gains, halved every `recency_days`; use: the part that
            one which was used very often gains. Not measured here (the questions come long after all turns), so they
            are kept below what any of the other signals can do.
    """

    lexical: float = 1.0
    dense: float = 0.0
    related: float = 0.05
    session: float = 0.6
    late: float = 0.0

    k1: float = 0.7
    length_share: float = 0.15
    before: tuple[float, ...] = (0.4, 0.2, 0.1)
    after: tuple[float, ...] = (0.2, 0.1, 0.05)
    dense_before: tuple[float, ...] = (0.4, 0.2)
    dense_after: tuple[float, ...] = (0.4, 0.1)
    floor: float = 0.08
    session_floor: float = 0.15

    speaker: float = 1.6
    role: float = 0.5
    length: float = 0.4
    asks: float = -0.7
    answers: float = 0.5
    first_person: float = 0.4
    when: float = 0.6
    name: float = 0.5
    span: float = 3.0

    recency: float = 0.05
    recency_days: float = 30.0
    use: float = 0.05


LEXICAL = Weights()
"""Messages by their words alone."""

HYBRID = Weights(lexical=0.5, dense=0.5, session=0.5, length=0.3, first_person=0.3, late=0.8)
"""Messages by words and vectors. 0.4 to 0.6 of each are alike; without late interaction 0.5 of each is best."""

PASSAGES = replace(HYBRID, session=0.3, speaker=0.0, role=0.0, length=0.0, asks=0.0, answers=0.0)
"""Passages and parts of documents: nobody speaks, and all are of much the same length. A document's or archive's other
parts say less of one than the rest of a talk does."""
