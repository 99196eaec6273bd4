"""Forgetting, of facts and of passages: what a policy still gives for one, and which sentences say the same.

A memory fades out of automatic recall first. If nothing has used it since, a later pass archives it, so that only a
search that asks for it finds it; else it is recalled again. Nothing is deleted, and all of it can be taken back.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from perdure.core.ids import FactId, PassageId
from perdure.core.passages import Passage, PassageState
from perdure.features.facts.values.facts import Fact
from perdure.features.facts.values.settings import Forgetting

PAGE = 1_000
CHANGES_MAX = 1_000
"""The most facts, and the most passages, that one pass changes; the next pass changes others."""
USE_DAYS = 30.0
"""By how many days one use makes a memory younger."""
NEARLY_ALL, SAME_RELATION = 0.8, 0.5
"""The share of common words from which two sentences are near-duplicates, and two facts of one relation."""
_WORD = re.compile(r"[^\W_\u3400-\u9fff\u3040-\u30ff]+|[\u3400-\u9fff\u3040-\u30ff]")
_TELLING: Final = frozenset({"not", "no", "never", "don't", "t", "without", "不", "没", "無", "无", "非"})
"""Words that reverse a sentence: sentences that differ in one of them, or in a number, say different things."""

Reason = Literal["faded", "unused", "used", "duplicate"]
"""Why a memory changes its state. `faded`: it is worth little. `unused`: it had faded, and nothing has used it since.
`used`: it had faded, was used, and is active again. `duplicate`: another one says nearly the same."""
Memory = Fact | Passage
STATES: Final[Mapping[Reason, PassageState]] = {
    "faded": "faded",
    "used": "active",
    "unused": "archived",
    "duplicate": "archived",
}
"""Reason -> the state that a memory gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TidyItem:
    """A change of a memory's state in a pass.

    Attributes:
        memory: as it was before.
        score: what it is worth to the policy, 0 to 1.
        into: for a near-duplicate the memory that stays in its place, and gains its sources.
        uses: how often a memory that fades was used before.
    """

    memory: Memory
    reason: Reason
    score: float
    into: Memory | None = None
    uses: int = 0

    @property
    def kind(self) -> Literal["fact", "passage"]:
        """Whether it is a fact or a passage."""
        return kind_of(self.memory)


def kind_of(memory: Memory) -> Literal["fact", "passage"]:
    """Return whether a memory is a fact or a passage."""
    return "fact" if isinstance(memory, Fact) else "passage"


def compute_worth(importance: float, days: float, uses: int, policy: Forgetting) -> float:
    """Return the importance of a memory, 0 to 1, halved for each half-life of its age less `USE_DAYS` for each use."""
    age = max(0.0, days - uses * USE_DAYS)
    return float(importance * 0.5 ** (age / policy.half_life_days))


def days_between(begin: datetime, end: datetime) -> float:
    """Return the days from one time to another; 0 if the second is earlier."""
    return max(0.0, (end - begin).total_seconds() / 86_400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A memory with what a policy has to know of it.

    Attributes:
        worth: what the memory is worth to the policy, 0 to 1.
        since: when it came into its state; `origin` says why.
        importance: how much it matters, 0 to 1, whatever its age.
        group: memories of one group are compared with each other; None: it is compared with none.
        company: what near-duplicates have in common beside their words.
        relation: that of a fact; None: it is a passage.
    """

    memory: Memory
    worth: float
    uses: int
    since: datetime
    origin: Mapping[str, Any]
    importance: float
    group: Hashable
    company: Hashable
    relation: str | None = None

    @property
    def place(self) -> tuple[bool, float, int, int]:
        """The sort key of near-duplicates; the one to keep comes first: not faded, most important, longest, oldest."""
        return self.memory.state != "active", -self.importance, -len(self.memory.text), self.memory.seq


def plan_pass(judged: Iterable[Judged], policy: Forgetting, *, at: datetime, compared_max: int) -> Sequence[TidyItem]:
    """Return the changes that a pass would make to these memories, given oldest first: near-duplicates, then the least
    valuable, at most `CHANGES_MAX`. The newest `compared_max` of a group are compared with each other."""
    groups: dict[Hashable, deque[Judged]] = {}
    single: list[TidyItem] = []
    for one in judged:
        if one.group is not None:
            groups.setdefault(one.group, deque(maxlen=compared_max)).append(one)
        # Of a faded memory: whether it faded so long ago.
        if item := _judge(one, policy, is_old=one.since <= at - timedelta(days=policy.min_age_days)):
            single.append(item)
    items = [
        TidyItem(memory=one.memory, reason="duplicate", score=one.worth, into=kept.memory)
        for group in groups.values()
        for one, kept in find_duplicates(group)
    ]
    done = {memory.id for item in items for memory in (item.memory, item.into) if memory is not None}
    others = [item for item in single if item.memory.id not in done]
    return [*items, *sorted(others, key=lambda item: (item.score, item.memory.seq))][:CHANGES_MAX]


def _judge(one: Judged, policy: Forgetting, *, is_old: bool) -> TidyItem | None:
    """Return the change of a memory that is no duplicate, or None; `is_old`: its state is older than `min_age_days`."""
    memory, worth, uses = one.memory, one.worth, one.uses
    if memory.state == "active" and is_old and worth < policy.min_score:
        return TidyItem(memory=memory, reason="faded", score=worth, uses=uses)
    if memory.state == "faded" and uses > one.origin.get("uses", uses):
        return TidyItem(memory=memory, reason="used", score=worth)
    if memory.state == "faded" and is_old:
        return TidyItem(memory=memory, reason="unused", score=worth)
    return None


def find_duplicates(judged: Sequence[Judged]) -> Iterator[tuple[Judged, Judged]]:
    """Yield pairs of a near-duplicate and the memory that stays in its place."""
    words = {one.memory.id: count_words(one.memory.text) for one in judged}
    counts = Counter(word for of_one in words.values() for word in of_one)
    kept: list[Judged] = []
    places: dict[Hashable, list[int]] = {}  # the kept ones by their rarest words
    for one in sorted(judged, key=lambda one: one.place):
        own = words[one.memory.id]
        keys = [
            (one.company, word) for word in _rarest(own, counts, NEARLY_ALL if one.relation is None else SAME_RELATION)
        ]
        near = sorted({place for key in keys for place in places.get(key, ())})
        same = next((kept[place] for place in near if _are_duplicates(kept[place], one, words)), None)
        if same is not None:
            yield one, same
            continue
        for key in keys:
            places.setdefault(key, []).append(len(kept))
        kept.append(one)


def _are_duplicates(one: Judged, other: Judged, words: Mapping[FactId | PassageId, Counter[str]]) -> bool:
    """Return whether two memories say the same; `words` are their words by id. Facts of one relation need fewer."""
    share = SAME_RELATION if one.relation is not None and one.relation == other.relation else NEARLY_ALL
    return are_similar(words[one.memory.id], words[other.memory.id], share=share)


def _rarest(words: Counter[str], counts: Counter[str], share: float) -> Sequence[tuple[str, int]]:
    """Return the rarest words of a text, enough that any two texts which share this fraction of words have one of them
    in common. A repeated word counts as a word of its own, (word, 1). `counts`: word -> number of texts with it."""
    every = [(word, place) for word, count in words.items() for place in range(count)]
    every.sort(key=lambda word: (counts[word[0]], word))
    return every[: len(every) - math.ceil(share * len(every)) + 1]


def count_words(text: str) -> Counter[str]:
    """Return word -> how often a sentence has it; in scripts without spaces each character is a word."""
    return Counter(match.group().casefold() for match in _WORD.finditer(text))


def are_similar(one: Counter[str], other: Counter[str], *, share: float = NEARLY_ALL) -> bool:
    """Return whether two sentences, given by their words in order, say the same: they share `share` of their words, in
    one order, and differ in no number or negation. If nearly all are shared, neither may have a word in place of
    another's."""
    common = sum(min(one[word], other[word]) for word in one.keys() & other.keys())
    if common < share * max(1, one.total() + other.total() - common):
        return False
    if share >= NEARLY_ALL and one - other and other - one:
        return False  # "enable it" and "disable it"
    if [word for word in one if word in other] != [word for word in other if word in one]:
        return False  # "Ann owes Ben" and "Ben owes Ann"
    return not any(word in _TELLING or word.isnumeric() for word in one.keys() ^ other.keys())
