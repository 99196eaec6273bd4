"""How much of the evidence a search finds, by turns and by sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from perdure.features.benchmarks.sets.values import CaseQuestion, CaseTurn

DEPTHS = (5, 10)


def ranks_of(question: CaseQuestion, found: Sequence[CaseTurn]) -> Mapping[str, Any]:
    """Return at which places, from 1, a search found the turns of the evidence and their sessions, and how many there
    are. Sessions are ranked by their first turn."""
    sessions = list(dict.fromkeys(turn.session for turn in found))
    return {
        "turns": [place for place, turn in enumerate(found, 1) if turn.id in question.evidence],
        "turn_count": len(question.evidence),
        "sessions": [place for place, session in enumerate(sessions, 1) if session in question.sessions],
        "session_count": len(question.sessions),
    }


def recall_of(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
    """Return, for turns and sessions, the share of the evidence among the first k (R@k), and of the questions of which
    any evidence is (any@k); without rows nothing."""
    figures: dict[str, float] = {}
    for unit in ("turn", "session"):
        counted = [(row[f"{unit}s"], row[f"{unit}_count"]) for row in rows if row[f"{unit}_count"]]
        for depth in DEPTHS if counted else ():
            hits = [(sum(place <= depth for place in places), count) for places, count in counted]
            figures[f"{unit} R@{depth}"] = fmean(found / count for found, count in hits)
            figures[f"{unit} any@{depth}"] = fmean(found > 0 for found, _ in hits)
    return figures
