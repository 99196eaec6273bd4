"""Facts of which one is true at a time, such as where somebody lives: each ends where the next one begins.

In whatever order they are read or go. A version that ends so names the next fact as `ended_by` in its origin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from perdure.core.facts.values import Fact, FactChange, Graph
from perdure.core.ids import FactId
from perdure.storage.tx import Tx

_SAYS_NOTHING: Final = ("fade", "archive", "delete", "retract")


class Times(NamedTuple):
    """When a fact of a line is true, by itself or as far as `ended_by` in `origin` lets it be."""

    fact: Fact
    valid_at: datetime | None
    invalid_at: datetime | None
    change: FactChange
    origin: Mapping[str, Any]


def lines_of(tx: Tx, graph: Graph, facts: Sequence[Fact], *, joined: bool) -> Iterator[Sequence[Fact]]:
    """Yield the believed facts of each line that these are or were in; the line also leads through facts that are gone.

    Args:
        joined: whether these are of one line from now on.
    """
    beside: defaultdict[str, set[str]] = defaultdict(set)
    ended = tx.facts.list_ended(graph.id, sorted({end for fact in facts for end in (fact.subject, fact.object)}))
    pairs = [(version.id, version.origin.get("ended_by")) for version in ended]
    for one, other in [*pairs, *((fact.id, facts[0].id) for fact in facts if joined)]:
        if other:
            beside[one].add(other)
            beside[other].add(one)
    seen: set[str] = set()
    for fact in facts:
        line, found = list[FactId](), {str(fact.id)} - seen
        while found:
            seen.add(id_ := found.pop())
            line.append(FactId(id_))
            found |= beside[id_] - seen
        if len(line) > 1:
            yield [one for one in tx.facts.list_by_ids(line) if one.expired_at is None]


def own_version(versions: Sequence[Fact]) -> Fact:
    """Return the version that says last what a fact says by itself."""
    return next(one for one in reversed(versions) if one.change not in _SAYS_NOTHING and "ended_by" not in one.origin)


def times_of(tx: Tx, graph: Graph, line: Sequence[Fact]) -> Iterator[Times]:
    """Yield the times that facts of a line have to have, of those that have others. They begin when they say, or else
    when they were said."""
    versions = tx.facts.histories(graph.id, [fact.first_seq for fact in line])
    sources = tx.facts.sources(graph.id, list(versions))
    seqs = sorted({seq for of_fact in sources.values() for seq in of_fact})
    said_at = {one.seq: one.occurred_at for one in tx.episodes.list_by_seqs(graph.id, seqs)}
    order: list[tuple[datetime, int, int, Fact, Fact]] = []
    for fact in line:
        own = own_version(versions[fact.first_seq])
        said = min(((said_at[seq], seq) for seq in sources[fact.first_seq] if seq in said_at), default=None)
        at, seq = said or (versions[fact.first_seq][0].created_at, 0)
        order.append((own.valid_at or at, seq, fact.first_seq, fact, own))
    order.sort()
    for place, (*_, fact, own) in enumerate(order, 1):
        times = Times(fact, own.valid_at, own.invalid_at, "restore", own.origin)
        if place < len(order) and (own.invalid_at is None or own.invalid_at > order[place][0]):
            end, *_, after, of_after = order[place]
            origin = {name: value for name, value in of_after.origin.items() if name != "episode_id"}
            times = Times(fact, own.valid_at, end, "supersede", {**origin, "ended_by": after.id})
            if fact.origin.get("ended_by", after.id) == after.id and (fact.valid_at, fact.invalid_at) == times[1:3]:
                continue
        elif (fact.valid_at, fact.invalid_at) == times[1:3]:
            continue
        yield times
