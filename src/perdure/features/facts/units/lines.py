"""Lines: facts of which one is true at a time, such as where somebody lives: each ends where the next one begins.

That holds in whatever order they are extracted or deleted. A version that ends so names the next fact as `ended_by` in
its origin.
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
"""A fact that begins so near to the time at which it was said does not tell when it began."""


class LinePlace(NamedTuple):
    """A fact in a line.

    Attributes:
        begin: when it begins.
        said: when and in which episodes it was said, oldest first.
        fact: its newest version.
        own: the version that says what the fact says without the facts before and after it.
    """

    begin: datetime
    said: Sequence[tuple[datetime, int]]
    fact: Fact
    own: Fact


def lines_of(tx: Tx, graph: Graph, facts: Sequence[Fact], *, joined: bool) -> Iterator[Sequence[LinePlace]]:
    """Yield each line that these facts are or were in: its believed facts in order of time. Facts are of one line if
    one ended another, directly or by way of facts that are deleted now. `joined`: these facts are of one line from now
    on."""
    beside: defaultdict[FactId, set[FactId]] = defaultdict(set)
    ended = tx.of(Facts).list_ended(graph.id, sorted({end for fact in facts for end in (fact.subject, fact.object)}))
    pairs = [(version.id, version.origin.get("ended_by")) for version in ended]
    for one, other in [*pairs, *((fact.id, facts[0].id) for fact in facts if joined)]:
        if other:
            beside[one].add(other)
            beside[other].add(one)
    while beside:
        line, reached = set[FactId](), {next(iter(beside))}
        while reached:
            line.add(id_ := reached.pop())
            reached |= beside.pop(id_, set()) - line
        if not line.isdisjoint(fact.id for fact in facts):
            yield _in_order(tx, graph, [one for one in tx.of(Facts).list_by_ids(list(line)) if one.expired_at is None])


def sources_of(tx: Tx, graph_id: GraphId, facts: Sequence[Fact]) -> Mapping[int, Sequence[Episode]]:
    """Return the number of each fact's first version -> the episodes that support it, oldest first."""
    by_fact = tx.of(Facts).sources(graph_id, [fact.first_seq for fact in facts])
    seqs = sorted({seq for of_fact in by_fact.values() for seq in of_fact})
    episodes = {episode.seq: episode for episode in tx.of(Episodes).list_by_seqs(graph_id, seqs)}
    return {fact: [episodes[seq] for seq in of_fact if seq in episodes] for fact, of_fact in by_fact.items()}


def _in_order(tx: Tx, graph: Graph, line: Sequence[Fact]) -> Sequence[LinePlace]:
    """Return the facts of a line ordered by when they begin, as stated, else by when it was said."""
    sources = sources_of(tx, graph.id, line)
    places: list[LinePlace] = []
    for first, versions in tx.of(Facts).histories(graph.id, list(sources)).items():
        said = sorted((source.occurred_at, source.seq) for source in sources[first]) or [(versions[0].created_at, 0)]
        own = own_version(versions)
        places.append(LinePlace(own.valid_at or said[0][0], said, versions[-1], own))
    places = [_before_moves(place, places) for place in places]
    return sorted(places, key=lambda place: (place.begin, place.said[0], place.fact.first_seq))


def _before_moves(place: LinePlace, places: Sequence[LinePlace]) -> LinePlace:
    """Return `place` moved before those of `places` that were said later but began earlier: after "I live in Oslo", "I
    moved to Bergen last week" means that Oslo was over when it was said."""
    if abs(place.begin - place.said[0][0]) > AT_ONCE:  # the text says when it began
        return place
    moves = [
        other.begin
        for other in places
        if other.begin <= place.begin
        and other.said[0][0] > place.said[-1][0]
        and (other.own.invalid_at is None or other.own.invalid_at > place.begin)
    ]
    return place._replace(begin=min(moves), own=replace(place.own, valid_at=None)) if moves else place


def own_version(versions: Sequence[Fact]) -> Fact:
    """Return the newest of a fact's versions, oldest first, whose times come from what was said of this fact alone: not
    from another fact that ended it, nor from a change of belief or recall."""
    mute = ("fade", "archive", "delete", "retract")
    return [versions[0], *(one for one in versions if one.change not in mute and "ended_by" not in one.origin)][-1]
