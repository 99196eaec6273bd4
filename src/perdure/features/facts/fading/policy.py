"""Forgetting, of facts and of passages: what a policy still gives for one, and which sentences say the same.

A memory fades out of automatic recall first. If nothing has used it since, a later pass archives it, so that only a
search that asks for it finds it; else it is recalled again. Nothing is deleted, and all of it can be taken back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from perdure.core.passages import Passage
from perdure.features.facts.values.facts import Fact
from perdure.features.facts.values.settings import Forgetting

PAGE = 1_000
CHANGES_MAX = 1_000
"""The most facts, and the most passages, that one pass changes; the next one goes on."""
USE_DAYS = 30.0
"""How much younger one use makes a memory."""
NEARLY_ALL = 0.8
"""The share of common words from which two sentences are near-duplicates."""
_WORD = re.compile(r"[^\W_\u3400-\u9fff\u3040-\u30ff]+|[\u3400-\u9fff\u3040-\u30ff]")
_TELLING: Final = frozenset({"not", "no", "never", "don't", "t", "without", "不", "没", "無", "无", "非"})
"""Words that turn a sentence round: sentences that differ in one of them, or in a number, say different things."""

Reason = Literal["faded", "unused", "used", "duplicate"]
"""`unused`: it had faded before. `used`: it had faded, and is active again."""
Memory = Fact | Passage


@dataclass(frozen=True, slots=True, kw_only=True)
class TidyItem:
    """A fact or passage that fades, or is archived or active again.

    Attributes:
        score: how much the policy still gives for it, 0 to 1.
        into: of a near-duplicate the one that stays, and gains its sources.
        uses: how often one that fades was used before.
    """

    memory: Memory
    reason: Reason
    score: float
    into: Memory | None = None
    uses: int = 0

    @property
    def kind(self) -> Literal["fact", "passage"]:
        """What it is."""
        return kind_of(self.memory)


def kind_of(memory: Memory) -> Literal["fact", "passage"]:
    """Return what a memory is."""
    return "fact" if isinstance(memory, Fact) else "passage"


def compute_worth(importance: float, days: float, uses: int, policy: Forgetting) -> float:
    """Return what a memory of this age is worth: its importance, halved with each half-life of its age. Each use takes
    days off its age."""
    age = max(0.0, days - uses * USE_DAYS)
    return float(importance * 0.5 ** (age / policy.half_life_days))


def days_between(begin: datetime, end: datetime) -> float:
    """Return the days from one time to another, at least 0."""
    return max(0.0, (end - begin).total_seconds() / 86_400)


def judge(
    memory: Memory, worth: float, uses: int, policy: Forgetting, *, origin: Mapping[str, Any], is_old: bool
) -> TidyItem | None:
    """Return what becomes of a memory that is no duplicate; None: it stays as it is.

    Args:
        origin: why it is in its state.
        is_old: whether it is in its state for as long as the policy leaves it there.
    """
    if memory.state == "active" and is_old and worth < policy.min_score:
        return TidyItem(memory=memory, reason="faded", score=worth, uses=uses)
    if memory.state == "faded" and uses > origin.get("uses", uses):
        return TidyItem(memory=memory, reason="used", score=worth)
    if memory.state == "faded" and is_old:
        return TidyItem(memory=memory, reason="unused", score=worth)
    return None


def count_words(text: str) -> Counter[str]:
    """Return how often each word stands in a sentence; of scripts without spaces each character is one."""
    return Counter(match.group().casefold() for match in _WORD.finditer(text))


def says_same(one: Counter[str], other: Counter[str], *, share: float = NEARLY_ALL) -> bool:
    """Return whether two sentences have this share of their words in common, in one order, and differ in no number or
    negation; if nearly all are in common, neither has a word in place of another's."""
    common = sum(min(one[word], other[word]) for word in one.keys() & other.keys())
    if common < share * max(1, one.total() + other.total() - common):
        return False
    if share >= NEARLY_ALL and one - other and other - one:
        return False  # "enable it" and "disable it"
    if [word for word in one if word in other] != [word for word in other if word in one]:
        return False  # "Ann owes Ben" and "Ben owes Ann"
    return not any(word in _TELLING or word.isnumeric() for word in one.keys() ^ other.keys())
