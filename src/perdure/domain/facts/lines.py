"""Facts of which one is true at a time, such as where somebody lives: each ends where the next one begins.

In whatever order they are read or go. A version that ends so names the next fact as `ended_by` in its origin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime

from perdure.core.facts.values import Fact, Graph
from perdure.core.ids import FactId
from perdure.storage.tx import Tx


def lines_of(
    tx: Tx, graph: Graph, facts: Sequence[Fact], *, joined: bool
) -> Iterator[Sequence[tuple[datetime, Fact, Fact]]]:
    """Yield each line that these facts are or were in, also through facts that are gone: in order of time, when each
    believed fact begins, the fact, and what it says by itself. `joined`: these are of one line from now on."""
    beside: defaultdict[FactId, set[FactId]] = defaultdict(set)
    ended = tx.facts.list_ended(graph.id, sorted({end for fact in facts for end in (fact.subject, fact.object)}))
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
            yield _in_order(tx, graph, [one for one in tx.facts.list_by_ids(list(line)) if one.expired_at is None])


def _in_order(tx: Tx, graph: Graph, line: Sequence[Fact]) -> Sequence[tuple[datetime, Fact, Fact]]:
    """Return when facts begin, by what they say or else when it was said, the facts, and what they say; in order."""
    sources = tx.facts.sources(graph.id, [fact.first_seq for fact in line])
    seqs = sorted({seq for of_fact in sources.values() for seq in of_fact})
    said_at = {one.seq: one.occurred_at for one in tx.episodes.list_by_seqs(graph.id, seqs)}
    order: list[tuple[datetime, int, int, Fact, Fact]] = []
    for first, versions in tx.facts.histories(graph.id, list(sources)).items():
        at, seq = min(((said_at[seq], seq) for seq in sources[first]), default=(versions[0].created_at, 0))
        own = own_version(versions)
        order.append((own.valid_at or at, seq, first, versions[-1], own))
    return [(begin, fact, own) for begin, _, _, fact, own in sorted(order, key=lambda one: one[:3])]


def own_version(versions: Sequence[Fact]) -> Fact:
    """Return the version that says last what a fact says by itself."""
    mute = ("fade", "archive", "delete", "retract")
    return [versions[0], *(one for one in versions if one.change not in mute and "ended_by" not in one.origin)][-1]
