"""Forgetting of facts: what a policy would let fade, near-duplicates that become one, and taking a pass back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from perdure.core.ids import FactId
from perdure.core.sources import TRUSTED
from perdure.features.facts.fading.policy import (
    CHANGES_MAX,
    NEARLY_ALL,
    PAGE,
    TidyItem,
    compute_worth,
    count_words,
    days_between,
    judge,
    says_same,
)
from perdure.features.facts.tables import Facts
from perdure.features.facts.units.graphs import FactFields, change_fact
from perdure.features.facts.values.facts import KNOWN_STATES, Fact, FactChange, FactFilter, FactState, Graph
from perdure.features.facts.values.settings import Forgetting
from perdure.storage.tx import Tx

GROUP_MAX = 100
"""The most facts between two entities that are compared with each other, the newest."""
SAME_RELATION = 0.5
"""The share of common words from which two sentences of one relation are near-duplicates."""


def plan_facts(tx: Tx, graph: Graph, policy: Forgetting, *, at: datetime) -> Sequence[TidyItem]:
    """Return what a pass would change, near-duplicates first, then what matters least. It changes nothing."""
    facts: list[Fact] = []
    groups: dict[tuple[int, int], list[Fact]] = {}
    uses: dict[int, int] = {}
    after = 0
    while page := tx.of(Facts).page(graph.id, where=FactFilter(), after=after, limit=PAGE):
        after = page[-1].first_seq
        uses |= tx.passages.use_counts(graph.fact_archive_id, list({fact.text_seq for fact in page}))
        for fact in page:
            facts.append(fact)
            groups.setdefault((fact.subject, fact.object), []).append(fact)
    scores = {fact.seq: score(fact, uses.get(fact.text_seq, 0), policy, at=at) for fact in facts}
    items = [
        TidyItem(memory=fact, reason="duplicate", score=scores[fact.seq], into=kept)
        for group in groups.values()
        for fact, kept in duplicates(group[-GROUP_MAX:])
    ]
    done = {seq for item in items for seq in (_fact_of(item).seq, item.into.seq if item.into else -1)}
    youngest = at - timedelta(days=policy.min_age_days)
    single = []
    for fact in facts:
        is_old = fact.created_at <= youngest  # of a faded fact: whether it faded so long ago
        used = uses.get(fact.text_seq, 0)
        item = judge(fact, scores[fact.seq], used, policy, origin=fact.origin, is_old=is_old)
        if item is not None and fact.seq not in done:
            single.append(item)
    return [*items, *sorted(single, key=lambda item: (item.score, _fact_of(item).seq))][:CHANGES_MAX]


def score(fact: Fact, uses: int, policy: Forgetting, *, at: datetime) -> float:
    """Return what a fact is worth, by its rating; for one that has ceased to be true the age counts from its end, and
    twice."""
    end = fact.invalid_at if fact.invalid_at is not None and fact.invalid_at <= at else None
    days = days_between(max(fact.created_at, end or fact.created_at), at)
    return compute_worth(fact.rating, days * (1 if end is None else 2), uses, policy)


def duplicates(facts: Sequence[Fact]) -> Iterator[tuple[Fact, Fact]]:
    """Yield near-duplicates among facts of two entities, each with the one that stays: one that has not faded, the best
    rated, then the fullest sentence, then the oldest."""
    best = sorted(facts, key=lambda fact: (fact.state != "active", -fact.rating, -len(fact.text), fact.seq))
    kept: list[tuple[Fact, Counter[str]]] = []
    for fact in best:
        words = count_words(fact.text)
        same = next((one for one, of_one in kept if _says_same(one, of_one, fact, words)), None)
        if same is None:
            kept.append((fact, words))
        else:
            yield fact, same


def tidy_facts(tx: Tx, graph: Graph, items: Sequence[TidyItem], *, pass_: str, at: datetime) -> Sequence[TidyItem]:
    """Carry out a pass; return what it changed. What has changed since it was planned stays as it is."""
    done: list[TidyItem] = []
    for item in items:
        origin: dict[str, Any] = {"type": "policy", "pass": pass_, "reason": item.reason}
        planned = _fact_of(item)
        fact = tx.of(Facts).get(planned.id)
        if fact.seq != planned.seq or fact.expired_at is not None:
            continue
        change: FactChange = "archive"
        state: FactState = "archived"
        if item.reason == "faded":
            state, change, origin["uses"] = "faded", "fade", item.uses
        elif item.reason == "used":
            state, change = "active", "restore"
        if item.into is not None:
            kept = tx.of(Facts).get(FactId(item.into.id))
            if kept.expired_at is not None or kept.state not in KNOWN_STATES:
                continue
            kept = _merge(tx, graph, kept, fact, origin=origin, at=at)
            change, origin["into"] = "merge", kept.id
        change_fact(tx, graph, fact, {"state": state}, change=change, origin=origin, at=at)
        done.append(item)
    return done


def last_pass(tx: Tx, graph: Graph) -> str | None:
    """Return the latest pass of which a fact still is faded or archived."""
    passes = [str(fact.origin["pass"]) for fact in _of_passes(tx, graph)]
    return max(passes, default=None)


def restore_facts(tx: Tx, graph: Graph, pass_: str, *, at: datetime, limit: int = PAGE) -> Sequence[Fact]:
    """Take back what a pass did and nobody has changed since; return the facts as they are again, at most `limit`.
    A fact that stayed for its duplicates keeps their sources, which say the same."""
    archived = [fact for fact in _of_passes(tx, graph) if fact.origin["pass"] == pass_][:limit]
    for id_ in dict.fromkeys(fact.origin["into"] for fact in archived if "into" in fact.origin):
        kept = tx.of(Facts).get(id_)
        if kept.expired_at is None and kept.change == "merge" and kept.origin.get("pass") == pass_:
            _restore(tx, graph, kept, pass_, at=at)
    return [_restore(tx, graph, fact, pass_, at=at) for fact in archived]


def _merge(tx: Tx, graph: Graph, kept: Fact, duplicate: Fact, *, origin: Mapping[str, Any], at: datetime) -> Fact:
    """Give a fact the sources of its duplicate, and the earlier beginning of the two; return it."""
    sources = tx.of(Facts).sources(graph.id, [duplicate.first_seq])[duplicate.first_seq]
    tx.of(Facts).add_sources(graph.id, [(kept.first_seq, episode) for episode in sources])
    begin = min((time for time in (kept.valid_at, duplicate.valid_at) if time is not None), default=None)
    if begin == kept.valid_at and kept.origin.get("pass") == origin["pass"]:
        return kept
    return change_fact(tx, graph, kept, {"valid_at": begin}, change="merge", origin={**origin}, at=at)


def _restore(tx: Tx, graph: Graph, fact: Fact, pass_: str, *, at: datetime) -> Fact:
    """Write the version again that a fact had before a pass; return it."""
    *_, before = takewhile(lambda one: one.origin.get("pass") != pass_, tx.of(Facts).versions(fact.id))
    fields: FactFields = {"state": before.state, "valid_at": before.valid_at}
    return change_fact(tx, graph, fact, fields, change="restore", origin=before.origin, at=at)


def _of_passes(tx: Tx, graph: Graph) -> Iterator[Fact]:
    """Yield the facts that passes have let fade or archived."""
    after = 0
    while page := tx.of(Facts).page(graph.id, where=FactFilter(states=("faded", "archived")), after=after, limit=PAGE):
        after = page[-1].first_seq
        yield from (fact for fact in page if fact.origin.get("type") == "policy" and "pass" in fact.origin)


def _says_same(one: Fact, of_one: Counter[str], other: Fact, of_other: Counter[str]) -> bool:
    """Return whether two facts of the same entities are near-duplicates: equal in most words, trust, scope and end."""
    if (one.trust in TRUSTED) != (other.trust in TRUSTED) or one.scope != other.scope:
        return False
    if one.invalid_at != other.invalid_at:  # two periods of the same are two facts
        return False
    return says_same(of_one, of_other, share=SAME_RELATION if one.relation == other.relation else NEARLY_ALL)


def _fact_of(item: TidyItem) -> Fact:
    """Return the fact of an item of the plan of facts."""
    assert isinstance(item.memory, Fact)
    return item.memory
