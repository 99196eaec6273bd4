"""Forgetting of facts: what they are worth to a policy, carrying out a pass, and taking it back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any, Final

from perdure.core.ids import FactId
from perdure.core.sources import TRUSTED
from perdure.features.facts.fading.policy import (
    PAGE,
    STATES,
    Judged,
    Reason,
    TidyItem,
    compute_worth,
    days_between,
    plan_pass,
)
from perdure.features.facts.tables import Facts
from perdure.features.facts.units.graphs import FactFields, change_fact
from perdure.features.facts.values.facts import KNOWN_STATES, Fact, FactChange, FactFilter, Graph
from perdure.features.facts.values.settings import Forgetting
from perdure.storage.tx import Tx

GROUP_MAX = 100
"""The most facts between two entities that are compared with each other, the newest."""
_CHANGES: Final[Mapping[Reason, FactChange]] = {
    "faded": "fade",
    "used": "restore",
    "unused": "archive",
    "duplicate": "merge",
}


def plan_facts(tx: Tx, graph: Graph, policy: Forgetting, *, at: datetime) -> Sequence[TidyItem]:
    """Return what a pass would change of a graph's facts at the time `at`; it changes nothing."""
    return plan_pass(_judge_all(tx, graph, policy, at=at), policy, at=at, compared_max=GROUP_MAX)


def _judge_all(tx: Tx, graph: Graph, policy: Forgetting, *, at: datetime) -> Iterator[Judged]:
    """Yield the known facts of a graph with what they are worth to a policy, oldest first."""
    after = 0
    while page := tx.of(Facts).page(graph.id, where=FactFilter(), above=after, limit=PAGE):
        after = page[-1].first_seq
        uses = tx.passages.use_counts(graph.fact_archive_id, list({fact.text_seq for fact in page}))
        yield from (judge_fact(fact, uses.get(fact.text_seq, 0), policy, at=at) for fact in page)


def judge_fact(fact: Fact, uses: int, policy: Forgetting, *, at: datetime) -> Judged:
    """Return the value of a fact, with so many uses, for a policy. The age of a fact that is no longer true counts from
    its end, and twice. Near-duplicates have the same entities, trust, scope and end."""
    end = fact.invalid_at if fact.invalid_at is not None and fact.invalid_at <= at else None
    days = days_between(max(fact.created_at, end or fact.created_at), at) * (1 if end is None else 2)
    return Judged(
        memory=fact,
        worth=compute_worth(fact.rating, days, uses, policy),
        uses=uses,
        since=fact.created_at,
        origin=fact.origin,
        importance=fact.rating,
        group=(fact.subject, fact.object),
        company=(fact.trust in TRUSTED, frozenset(fact.scope.items()), fact.invalid_at),
        relation=fact.relation,
    )


def tidy_facts(tx: Tx, graph: Graph, items: Sequence[TidyItem], *, pass_: str, at: datetime) -> Sequence[TidyItem]:
    """Carry out the planned changes of a pass; return those carried out. A fact that has changed since is skipped.
    `pass_`: the id of the pass, for the origin of the new versions."""
    done: list[TidyItem] = []
    for item in items:
        origin: dict[str, Any] = {"type": "policy", "pass": pass_, "reason": item.reason}
        fact = tx.of(Facts).get(FactId(item.memory.id))
        if fact.seq != item.memory.seq or fact.expired_at is not None:
            continue
        if item.reason == "faded":
            origin["uses"] = item.uses
        if item.into is not None:
            kept = tx.of(Facts).get(FactId(item.into.id))
            if kept.expired_at is not None or kept.state not in KNOWN_STATES:
                continue
            origin["into"] = _merge(tx, graph, kept, fact, origin=origin, at=at).id
        state = STATES[item.reason]
        change_fact(tx, graph, fact, {"state": state}, change=_CHANGES[item.reason], origin=origin, at=at)
        done.append(item)
    return done


def restore_facts(tx: Tx, graph: Graph, pass_: str, *, at: datetime, limit: int) -> Sequence[Fact]:
    """Take back what a pass did, by its id, and nobody has changed since; return the restored facts, at most `limit`. A
    fact that stayed for its duplicates keeps their sources, which say the same."""
    archived = [fact for fact in facts_of_passes(tx, graph) if fact.origin["pass"] == pass_][:limit]
    for id_ in dict.fromkeys(fact.origin["into"] for fact in archived if "into" in fact.origin):
        kept = tx.of(Facts).get(id_)
        if kept.expired_at is None and kept.change == "merge" and kept.origin.get("pass") == pass_:
            _restore(tx, graph, kept, pass_, at=at)
    return [_restore(tx, graph, fact, pass_, at=at) for fact in archived]


def _merge(tx: Tx, graph: Graph, kept: Fact, duplicate: Fact, *, origin: Mapping[str, Any], at: datetime) -> Fact:
    """Give the fact `kept` the sources of its duplicate, and the earlier beginning of the two; return it."""
    sources = tx.of(Facts).sources(graph.id, [duplicate.first_seq])[duplicate.first_seq]
    tx.of(Facts).add_sources(graph.id, [(kept.first_seq, episode) for episode in sources])
    begin = min((time for time in (kept.valid_at, duplicate.valid_at) if time is not None), default=None)
    if begin == kept.valid_at and kept.origin.get("pass") == origin["pass"]:
        return kept
    return change_fact(tx, graph, kept, {"valid_at": begin}, change="merge", origin={**origin}, at=at)


def _restore(tx: Tx, graph: Graph, fact: Fact, pass_: str, *, at: datetime) -> Fact:
    """Write again the version that a fact had before a pass; return it."""
    *_, before = takewhile(lambda one: one.origin.get("pass") != pass_, tx.of(Facts).versions(fact.id))
    fields: FactFields = {"state": before.state, "valid_at": before.valid_at}
    return change_fact(tx, graph, fact, fields, change="restore", origin=before.origin, at=at)


def facts_of_passes(tx: Tx, graph: Graph) -> Iterator[Fact]:
    """Yield the facts that passes have let fade or archived, and that are still so."""
    after = 0
    while page := tx.of(Facts).page(graph.id, where=FactFilter(states=("faded", "archived")), above=after, limit=PAGE):
        after = page[-1].first_seq
        yield from (fact for fact in page if fact.origin.get("type") == "policy" and "pass" in fact.origin)
