"""Facts of which one is true at a time, such as where somebody lives: each ends where the next one begins.

In whatever order they are read or go. A version that ends so names the next fact as `ended_by` in its origin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from perdure.core.ids import FactId, GraphId
from perdure.features.facts.tables import Episodes, Facts
from perdure.features.facts.values.facts import Episode, Fact, Graph
from perdure.storage.tx import Tx

AT_ONCE = timedelta(days=1)
"""What begins so near to the time at which it was said tells no beginning: models write whole seconds, or the day."""


def lines_of(
    tx: Tx, graph: Graph, facts: Sequence[Fact], *, joined: bool
) -> Iterator[Sequence[tuple[datetime, Fact, Fact]]]:
    """Yield each line that these facts are or were in, also through facts that are gone: in order of time, when each
    believed fact begins, the fact, and what it says by itself. `joined`: these are of one line from now on."""
    beside: defaultdict[FactId, set[FactId]] = defaultdict(set)
    ended = tx.of(Facts).list_ended(graph.id, sorted({end for fact in facts for end in (fact.subject, fact.object)}))
    pairs = [(version.id, version.origin.get("ended_by")) for version in ended]
    for one, other in [*pairs, *((fact.id, facts[0].id) for fact in facts if joined)]:
        if other:
            beside[one].add(other)
            beside[other].add(one)
    while beside:
        line, found = set[FactId](), {next(iter(beside))}
        while found:
            line.add(id_ := found.pop())
            found |= beside.pop(id_, set()) - line
        if not line.isdisjoint(fact.id for fact in facts):
            yield _in_order(tx, graph, [one for one in tx.of(Facts).list_by_ids(list(line)) if one.expired_at is None])


class _Place(NamedTuple):
    """A fact in a line: when it begins, when and in which episodes it was said, the fact, and what it says itself."""

    begin: datetime
    said: Sequence[tuple[datetime, int]]
    fact: Fact
    own: Fact


def sources_of(tx: Tx, graph_id: GraphId, facts: Sequence[Fact]) -> Mapping[int, Sequence[Episode]]:
    """The number of a fact's first version -> the episodes that support it, oldest first."""
    by_fact = tx.of(Facts).sources(graph_id, [fact.first_seq for fact in facts])
    seqs = sorted({seq for of_fact in by_fact.values() for seq in of_fact})
    episodes = {episode.seq: episode for episode in tx.of(Episodes).list_by_seqs(graph_id, seqs)}
    return {fact: [episodes[seq] for seq in of_fact if seq in episodes] for fact, of_fact in by_fact.items()}


def _in_order(tx: Tx, graph: Graph, line: Sequence[Fact]) -> Sequence[tuple[datetime, Fact, Fact]]:
    """Return when facts begin, by what they say or else when it was said, the facts, and what they say; in order."""
    sources = sources_of(tx, graph.id, line)
    places: list[_Place] = []
    for first, versions in tx.of(Facts).histories(graph.id, list(sources)).items():
        said = sorted((one.occurred_at, one.seq) for one in sources[first]) or [(versions[0].created_at, 0)]
        own = own_version(versions)
        places.append(_Place(own.valid_at or said[0][0], said, versions[-1], own))
    places = [_before_moves(one, places) for one in places]
    places.sort(key=lambda one: (one.begin, one.said[0], one.fact.first_seq))
    return [(one.begin, one.fact, one.own) for one in places]


def _before_moves(one: _Place, places: Sequence[_Place]) -> _Place:
    """Return the place of a fact before those that were said later and began earlier: it was over when it was said, as
    with "I live in Oslo" and then "I moved to Bergen last week". When it began is unknown."""
    if abs(one.begin - one.said[0][0]) > AT_ONCE:  # it says when
        return one
    moves = [
        other.begin
        for other in places
        if other.begin <= one.begin
        and other.said[0][0] > one.said[-1][0]
        and (other.own.invalid_at is None or other.own.invalid_at > one.begin)
    ]
    return one._replace(begin=min(moves), own=replace(one.own, valid_at=None)) if moves else one


def own_version(versions: Sequence[Fact]) -> Fact:
    """Return the version that says last what a fact says by itself."""
    mute = ("fade", "archive", "delete", "retract")
    return [versions[0], *(one for one in versions if one.change not in mute and "ended_by" not in one.origin)][-1]
