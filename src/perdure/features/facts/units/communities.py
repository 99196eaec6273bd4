"""Communities: entities that many facts connect, found by label propagation, one change at a time.

A change of a fact looks at its two entities and a bounded number of their neighbours, whatever the size of the graph.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from perdure.core.ids import PassageId, derived_id
from perdure.core.passages import Passage
from perdure.core.sources import TRUSTED
from perdure.features.facts.tables import Entities, Facts
from perdure.features.facts.values.extraction import CommunityFacts
from perdure.features.facts.values.facts import Community, Entity, Fact, FactFilter, Graph
from perdure.storage.tx import Tx

TAG = "community"
"""The tag of the passages with summaries, in the archive of the graph's entities."""
NEIGHBOURS_MAX = 32
"""The newest facts of an entity that decide its community."""
VISITS_MAX = 8
"""The most entities that one change may move, for each entity of the facts."""
MEMBERS_MAX = 30
SUMMARY_FACTS = 5
SUMMARY_CHARS = 1_000
SIZE_MIN = 2
"""Smaller communities have no summary."""


def update_communities(tx: Tx, graph: Graph, facts: Sequence[Fact], *, at: datetime, is_removal: bool = False) -> None:
    """Move the entities of added or expired facts to the communities that most of their facts lead to; summaries are
    rewritten in the background. With `is_removal`, summaries that may mention these facts are deleted at once."""
    seqs = sorted({seq for fact in facts for seq in (fact.subject, fact.object)}, reverse=True)
    if not seqs:
        return
    moves = _CommunityMoves(tx, graph)
    queue, visits = deque(seqs), 0
    while queue and visits < VISITS_MAX * len(seqs):
        visits += 1
        queue.extend(seq for seq in moves.visit(queue.popleft()) if seq not in queue)
    moves.store(seqs, at=at, is_removal=is_removal)


@dataclass(slots=True)
class Changes:
    """The facts that a unit of work adds and expires, whose entities move into communities together at its end."""

    added: Sequence[Fact] = ()
    expired: Sequence[Fact] = ()

    def extend(self, new: Changes) -> None:
        """Add further changes."""
        self.added, self.expired = [*self.added, *new.added], [*self.expired, *new.expired]

    def update_communities(self, tx: Tx, graph: Graph, *, at: datetime) -> None:
        """Move the entities of all these facts into their communities, at the time `at`."""
        update_communities(tx, graph, self.expired, at=at, is_removal=True)
        update_communities(tx, graph, self.added, at=at)


class _CommunityMoves:
    """The moves of entities between communities that one change of facts causes; `store` writes them together."""

    def __init__(self, tx: Tx, graph: Graph) -> None:
        self._tx, self._graph = tx, graph
        # Number of an entity -> the number of its community, in the store and after the moves.
        self._before: dict[int, int | None] = {}
        self._now: dict[int, int | None] = {}

    def visit(self, seq: int) -> Sequence[int]:
        """Move an entity, by its number, if its facts lead elsewhere; return neighbours that may have to follow."""
        others = [
            one if two == seq else two
            for one, two in self._tx.of(Facts).neighbours(self._graph.id, [seq], limit=NEIGHBOURS_MAX)
        ]
        self._load([seq, *others])
        if seq not in self._now:
            return ()
        label = choose_label(seq, self._now[seq], [(other, self._now[other]) for other in others if other in self._now])
        if label == self._now[seq]:
            return ()
        self._now[seq] = label
        return [other for other in dict.fromkeys(others) if self._now.get(other) != label]

    def store(self, seqs: Sequence[int], *, at: datetime, is_removal: bool) -> None:
        """Store the moves; mark as due the summaries of communities that changed, or whose facts of `seqs` did."""
        sizes: Counter[int] = Counter()
        for seq, label in self._now.items():
            if label != (before := self._before[seq]):
                self._tx.of(Entities).set_community(self._graph.id, seq, label)
                if before is not None:
                    sizes[before] -= 1
                if label is not None:
                    sizes[label] += 1
        due = {label for seq in seqs for label in (self._now.get(seq), self._before.get(seq)) if label is not None}
        for label in sorted({*sizes, *due}):
            stored = self._tx.of(Entities).find_community(self._graph.id, label)
            community = stored or Community(graph_id=self._graph.id, seq=label, name="", updated_at=at)
            size = community.size + sizes[label]
            if is_removal or not size:
                community = replace(community, name="", summary="")
                drop_passage(self._tx, self._graph, _passage_id(self._graph, label))
            self._tx.of(Entities).put_community(replace(community, size=size, summary_due=True, updated_at=at))

    def _load(self, seqs: Sequence[int]) -> None:
        """Load the communities of these entities that are not loaded yet."""
        missing = [seq for seq in dict.fromkeys(seqs) if seq not in self._now]
        communities = self._tx.of(Entities).communities_of(self._graph.id, missing) if missing else {}
        self._before.update(communities)
        self._now.update(communities)


def choose_label(seq: int, label: int | None, neighbours: Sequence[tuple[int, int | None]]) -> int | None:
    """Return the number of an entity's community: the one of most of its neighbours; None: it has no facts. On a tie
    the present one, `label`, wins, then the oldest. `neighbours`: (number, community) for each connecting fact; one
    without a community counts as one that begins with it."""
    counts = Counter(other if other_label is None else other_label for other, other_label in neighbours)
    if not counts:
        return None
    most = max(counts.values())
    labels = {one for one, count in counts.items() if count == most}
    if label is None:
        # Of two that are new, the later one joins the earlier, which then begins the community.
        return min({*labels, seq} if all(other_label is None for _, other_label in neighbours) else labels)
    return label if label in labels else min(labels)


def summary_facts(tx: Tx, graph: Graph, community: Community, *, at: datetime) -> CommunityFacts:
    """Load what a summary of a community is made from: its members, most facts first, and the texts of its best facts.
    These are true at `at` and from trusted sources, first those between two members. A community below `SIZE_MIN` has
    none."""
    members = community_members(tx, graph, community)
    without_texts = CommunityFacts(name=members[0].name if members else "", members=tuple(one.name for one in members))
    if not members or community.size < SIZE_MIN:
        return without_texts
    seqs = {entity.seq for entity in members}
    where = FactFilter(at=at, entities=tuple(sorted(seqs)), trust=tuple(sorted(TRUSTED)))
    facts = tx.of(Facts).page(graph.id, where=where, newest_first=True, limit=10 * SUMMARY_FACTS)
    facts = sorted(facts, key=lambda fact: ({fact.subject, fact.object} <= seqs, fact.rating), reverse=True)
    return replace(without_texts, texts=tuple(fact.text for fact in facts[:SUMMARY_FACTS]))


def community_members(tx: Tx, graph: Graph, community: Community) -> Sequence[Entity]:
    """Load at most `MEMBERS_MAX` entities of a community, those of most facts first."""
    members = tx.of(Entities).list_members(graph.id, community.seq, limit=MEMBERS_MAX)
    return sorted(members, key=lambda entity: -entity.fact_count)


def best_facts_summary(texts: Sequence[str]) -> str:
    """Return a summary that needs no model: the texts of the best facts, cut at `SUMMARY_CHARS`."""
    return " ".join(" ".join(text.split()) for text in texts)[:SUMMARY_CHARS]


def store_summary(tx: Tx, graph: Graph, community: Community, name: str, summary: str, *, at: datetime) -> None:
    """Store name and summary of a community, and the passage by which search finds it. If the community has changed
    since it was loaded, it waits for the next time."""
    if tx.of(Entities).find_community(graph.id, community.seq) != community:
        return
    tx.of(Entities).put_community(replace(community, name=name, summary=summary, summary_due=False, updated_at=at))
    drop_passage(tx, graph, _passage_id(graph, community.seq))
    if summary:
        passage = Passage(
            id=_passage_id(graph, community.seq),
            archive_id=graph.entity_archive_id,
            text=f"{name}: {summary}",
            tags=(TAG,),
            source={"type": "community", "community_seq": community.seq},
            created_at=at,
            occurred_at=at,
        )
        tx.passages.add([passage])


def drop_passage(tx: Tx, graph: Graph, passage_id: PassageId) -> None:
    """Delete a passage by which searches found an entity or a community, if it is there."""
    for _, seq in tx.passages.find_places([passage_id]).values():
        tx.passages.delete(graph.entity_archive_id, [seq])


def _passage_id(graph: Graph, seq: int) -> PassageId:
    """Return the id of the passage with the summary of community `seq`."""
    return PassageId(derived_id("passage", graph.id, TAG, str(seq)))
