"""Storing what an extraction found, in one transaction with the position up to which was read."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from perdure.core.errors import InvalidInput, NotFound, VersionConflict
from perdure.core.ids import FactId, Ids
from perdure.core.messages import Message
from perdure.core.passages import Passage
from perdure.core.sources import OUTSIDE, TRUSTED, MemoryWrite
from perdure.core.text.forms import match_form, name_key
from perdure.engine.reading import ModelInput
from perdure.features.facts.extraction.plan import FactPlan, PlannedFact, with_facts, with_name_alone
from perdure.features.facts.extraction.times import merge_times
from perdure.features.facts.tables import Entities, Episodes, Facts, Graphs
from perdure.features.facts.units.batches import LoadedBatch, episodes_of, load_again, scope_of
from perdure.features.facts.units.citations import count_citations
from perdure.features.facts.units.communities import Changes
from perdure.features.facts.units.graphs import (
    FactFields,
    add_facts,
    change_fact,
    delete_facts,
    graph_of_agent,
    settle,
    store_entities,
)
from perdure.features.facts.values.extraction import Extraction
from perdure.features.facts.values.facts import Episode, Fact, Graph
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

SAME_MAX = 100
"""How many facts between the entities of a new fact are compared with it, the newest."""


def store_plan(
    tx: Tx, loaded: LoadedBatch, plan: FactPlan, *, extraction: Extraction, ids: Ids, at: datetime
) -> Sequence[Fact] | None:
    """Store a plan and mark its batch as extracted; return the facts that are new. None: nothing happens, because
    another process has stored the batch, or what the extractor read has changed. Raises: NotFound."""
    if not _reading(loaded).holds(tx):
        return None
    _mark_extracted(tx, loaded, at=at)
    if loaded.conversation_key is not None:  # of a changed message they were counted before
        count_citations(tx, loaded.graph, loaded.messages)
    if loaded.agent is None or (loaded.messages and not any(message.run_id for message in loaded.messages)):
        plan = with_name_alone(loaded.batch, plan)  # no run has put the name into a block
    if not (plan.facts or plan.dropped or extraction.calls) and loaded.graph is None:
        return ()
    graph = _graph_of(tx, loaded, ids=ids, at=at)
    tx.of(Graphs).count_calls(
        graph.id, calls=extraction.calls, input_tokens=extraction.input_tokens, output_tokens=extraction.output_tokens
    )
    plan = _within_policy(loaded, plan)
    tx.of(Graphs).count_dropped(graph.id, plan.dropped)
    if not plan.facts:  # a name is no fact of an agent
        store_entities(tx, graph, [one for one in plan.entities if one.known and one.is_new_name], ids=ids, at=at)
        return ()
    entities = [entity.seq for entity in store_entities(tx, graph, plan.entities, ids=ids, at=at)]
    episodes = tx.of(Episodes).add(episodes_of(loaded, graph, ids=ids, at=at))
    tx.sources.add(_writes_of(loaded, plan, graph, episodes, at=at))
    known = tx.of(Facts).list_by_ids(list(dict.fromkeys(planned.known.id for planned in plan.facts if planned.known)))
    storing = _FactWriter(tx, graph, loaded, entities, {fact.id: fact for fact in known}, ids, at)
    added = []
    for planned in plan.facts:
        supports = [episodes[number - 1] for number in planned.turns]
        origin = {**_origin(loaded, planned, extraction), "episode_id": supports[-1].id}
        try:
            fact = storing.store(planned, supports, origin)
        except (InvalidInput, NotFound, VersionConflict) as error:  # it alone: the others of the batch are stored
            log.warning("a fact of %s is left out: %s", graph.id, error)
            tx.of(Graphs).count_dropped(graph.id, {"it can't be stored": 1})
        else:
            added += [] if fact is None else [fact]
    return storing.end(added)


def _within_policy(loaded: LoadedBatch, plan: FactPlan) -> FactPlan:
    """Return the plan without the facts that the agent's policy keeps out; it counts these as dropped."""
    kept = [planned for planned in plan.facts if loaded.policy != "block" or planned.trust not in OUTSIDE]
    if not (left_out := len(plan.facts) - len(kept)):
        return plan
    return replace(with_facts(plan, kept), dropped={**plan.dropped, "from outside": left_out})


def _writes_of(
    loaded: LoadedBatch, plan: FactPlan, graph: Graph, episodes: Sequence[Episode], *, at: datetime
) -> Sequence[MemoryWrite]:
    """Return an origin record for each of these `episodes` that supports facts of the plan and has sources."""
    if loaded.policy == "allow":
        return ()
    numbers = sorted({number for planned in plan.facts for number in planned.turns if number in loaded.sources})
    writes = []
    for number in numbers:
        message = loaded.messages[number - 1] if loaded.messages else None
        writes.append(
            MemoryWrite(
                kind="fact",
                owner_id=graph.id,
                ref=episodes[number - 1].id,
                sources=loaded.sources[number],
                agent_id=None if loaded.agent is None else loaded.agent.id,
                run_id=None if message is None else message.run_id,
                message_id=None if message is None else message.id,
                created_at=at,
            )
        )
    return writes


def _origin(loaded: LoadedBatch, planned: PlannedFact, extraction: Extraction) -> Mapping[str, Any]:
    """Return the `origin` of a planned fact: the model, and the newest message that says it, if messages do."""
    origin: dict[str, Any] = {"type": "extraction", "model": extraction.model}
    if loaded.messages:
        message = loaded.messages[max(planned.turns) - 1]
        origin |= {"message_id": message.id, "run_id": message.run_id, "step_id": message.step_id}
    return {name: value for name, value in origin.items() if value is not None}


def pass_over(tx: Tx, loaded: LoadedBatch, *, ids: Ids, at: datetime) -> int:
    """Mark a batch as extracted without storing facts, and count its turns as dropped; return how many. Nothing happens
    if it has changed, or another process has stored it. Raises: NotFound."""
    turns = len(loaded.batch.turns)
    if not _reading(loaded).holds(tx):
        return 0
    _mark_extracted(tx, loaded, at=at)
    tx.of(Graphs).count_dropped(_graph_of(tx, loaded, ids=ids, at=at).id, {"extraction failed": turns})
    return turns


def _graph_of(tx: Tx, loaded: LoadedBatch, *, ids: Ids, at: datetime) -> Graph:
    """Return the graph of a batch, which is created if its agent has none. Raises: NotFound."""
    if loaded.conversation_key is not None:
        return graph_of_agent(tx, loaded.conversation_key[0], ids=ids, at=at)
    return tx.of(Graphs).get(loaded.episodes[0].graph_id)


def _mark_extracted(tx: Tx, loaded: LoadedBatch, *, at: datetime) -> None:
    """Store that a batch is extracted: its episodes, or its conversation up to its last row."""
    if loaded.conversation_key is None:
        seqs = [episode.seq for episode in loaded.episodes]
        tx.of(Episodes).mark_extracted(loaded.episodes[0].graph_id, seqs, at=at)
    else:
        tx.of(Episodes).put_last_seq(*loaded.conversation_key, loaded.upto_seq, at=at)


def _reading(loaded: LoadedBatch) -> ModelInput:
    """Return what the extractor read and what decides about its answer, to see later whether it has changed."""
    facts = [(fact.id, fact.seq) for fact in loaded.batch.facts]
    names = {entity.seq: frozenset((entity.name, *entity.aliases)) for entity in loaded.batch.entities}

    def again(tx: Tx) -> object:
        """Load the same as it is now, with agents and graph locked; None: it is not to be extracted any more."""
        agents = {episode.agent_id for episode in loaded.episodes if episode.agent_id is not None}
        for agent_id in sorted(agents | ({loaded.agent.id} if loaded.agent is not None else set())):
            tx.agents.lock(agent_id)
        graph = loaded.graph
        if graph is None and loaded.agent is not None:
            graph = tx.of(Graphs).find_by_agent(loaded.agent.id)
        if graph is not None:
            tx.of(Graphs).lock(graph.id)
        now = load_again(tx, loaded)
        newest = tx.of(Facts).list_by_ids([id_ for id_, _ in facts])
        known = [(one.id, one.seq) for one in newest if one.expired_at is None]
        entities = tx.of(Entities).list_by_seqs(graph.id, list(names)) if graph is not None else ()
        # An entity may have gained names since, but must not have lost one.
        kept_names = {one.seq: names[one.seq] & {one.name, *one.aliases} for one in entities}
        return None if now is None else (_turns(now), known, kept_names)

    return ModelInput((_turns(loaded), facts, names), again)


def _turns(loaded: LoadedBatch) -> object:
    """Return the turns of a batch, and the settings and rules by which they are extracted, to be compared."""
    rows: Sequence[Message | Passage | Episode] = [*loaded.messages, *loaded.passages, *loaded.episodes]
    refs = [row.id for row in rows]
    batch = replace(loaded.batch, entities=(), facts=())
    graph_id = None if loaded.graph is None else loaded.graph.id
    return refs, graph_id, batch, loaded.settings, loaded.sources, loaded.policy


@dataclass(slots=True)
class _FactWriter:
    """The storing of a plan's facts, one by one; `end` writes the sources and communities of all.

    Args:
        entities: the numbers of the plan's entities, in its order.
        known: id -> the newest version of the facts that the plan decides about.
        sources: pairs of the `first_seq` of a fact and the number of an episode that supports it.
        stored: number of a fact in the answer -> its id.
    """

    tx: Tx
    graph: Graph
    loaded: LoadedBatch
    entities: Sequence[int]
    known: dict[FactId, Fact]
    ids: Ids
    at: datetime
    sources: list[tuple[int, int]] = field(default_factory=list)
    stored: dict[int, FactId] = field(default_factory=dict)
    changes: Changes = field(default_factory=Changes)

    def end(self, added: Sequence[Fact]) -> Sequence[Fact]:
        """Write sources and communities of all facts; return the facts of `added` that are still believed."""
        self.tx.of(Facts).add_sources(self.graph.id, self.sources)
        self.changes.update_communities(self.tx, self.graph, at=self.at)
        newest = [self.known[id_] for id_ in dict.fromkeys(fact.id for fact in added)]
        return [fact for fact in newest if fact.expired_at is None]

    def store(self, planned: PlannedFact, supports: Sequence[Episode], origin: Mapping[str, Any]) -> Fact | None:
        """Carry out the decision about a fact of these episodes, with author `origin`; return it if it is new."""
        id_ = planned.known.id if planned.known else self.stored.get(planned.earlier or 0)
        known = self.known[id_] if id_ is not None else None
        if known is not None and known.expired_at is not None and planned.decision != "SUPERSEDE":
            known = None  # it was deleted since the batch was read: the fact is a new one
        if known is None and planned.decision in ("DELETE", "NONE"):
            return None
        if known is not None and known.is_decision and not self._is_said_since(planned, known):
            planned = replace(
                planned, decision="NONE" if planned.decision in ("UPDATE", "DELETE") else planned.decision
            )
        if known is not None and planned.decision == "DELETE":
            self._support(planned, known, supports)  # if the episode that denies it is deleted, it is believed again
            delete_facts(self.tx, self.graph, [known], origin=origin, at=self.at, together=self.changes)
            self._settle(known, known)
            return None
        if known is not None and planned.decision == "NONE":
            self._support(planned, known, supports)
            return None
        subject, object_ = self.entities[planned.subject], self.entities[planned.object]
        if subject == object_:
            self.tx.of(Graphs).count_dropped(self.graph.id, {"subject is object": 1})
            return None
        if self._is_deleted(planned, subject, object_, supports):
            self.tx.of(Graphs).count_dropped(self.graph.id, {"deleted by a person": 1})
            return None
        tx, graph, ids, at, together = self.tx, self.graph, self.ids, self.at, self.changes
        if known is not None and planned.decision == "UPDATE":
            fields = self._merged_fields(known, planned)
            changed = change_fact(tx, graph, known, fields, change="update", origin=origin, at=at, together=together)
            self.known[known.id] = changed
            self._support(planned, known, supports)
            return changed
        if (same := self._find_same(planned, supports)) is not None:
            self._support(planned, same, supports)
            self._settle(same, known)
            return None
        waits = self.loaded.policy == "approve" and planned.trust in OUTSIDE  # until a person accepts it
        new = FactFields(
            text=planned.text,
            subject=subject,
            relation=planned.relation,
            object=object_,
            type=planned.type,
            rating=planned.rating,
            valid_at=planned.valid_at,
            invalid_at=planned.invalid_at,
            state="proposed" if waits or self.loaded.settings.capture == "ask" else "active",
            trust=planned.trust,
            scope=supports[0].scope,
        )
        (fact,) = add_facts(tx, graph, [new], origin=origin, ids=ids, at=at, episodes=[supports], together=together)
        self._support(planned, fact, supports)
        self._settle(fact, known)
        return fact

    def _settle(self, fact: Fact, known: Fact | None) -> None:
        """End a fact, and the one that it replaces, at the times that their order gives; None: it replaces none."""
        if known is not None:
            tx, graph, at, together = self.tx, self.graph, self.at, self.changes
            settle(tx, graph, [fact, known], joined=True, at=at, together=together)
            self.known = {one.id: one for one in tx.of(Facts).list_by_ids(list(self.known))}

    def _is_deleted(self, planned: PlannedFact, subject: int, object_: int, supports: Sequence[Episode]) -> bool:
        """Return whether a person deleted or corrected the fact that says this, and the user has not said it since."""
        scope = set(scope_of(supports[0]))
        same = {
            version.first_seq
            for version in self.tx.of(Facts).list_between(self.graph.id, subject, object_, limit=SAME_MAX)
            if version.relation == planned.relation or match_form(version.text) == match_form(planned.text)
        }
        return any(
            fact.is_decision
            and (fact.is_deletion or (fact.subject, fact.object) != (subject, object_))
            and scope <= set(fact.scope.items())
            and not self._is_said_since(planned, fact)
            for fact in self.tx.of(Facts).list_by_firsts(self.graph.id, sorted(same))
        )

    def _is_said_since(self, planned: PlannedFact, version: Fact) -> bool:
        """Return whether the user repeated a fact after this version of it was written. If all turns that say it are
        newer, any user's turn counts; else it has to name the fact's object."""
        turns = [turn for turn in self.loaded.batch.turns if turn.number in planned.turns]
        later = [
            turn for turn in turns if turn.is_user and turn.trust == "user" and turn.occurred_at > version.created_at
        ]
        if not later or len(later) == len(turns):
            return bool(later)
        object_ = self.entities[planned.object]
        (entity,) = self.tx.of(Entities).list_by_seqs(self.graph.id, [object_])
        names = list(map(name_key, (entity.name, *entity.aliases)))
        return any(name in name_key(turn.text) for turn in later for name in names)

    def _merged_fields(self, known: Fact, planned: PlannedFact) -> FactFields:
        """Return the fields of a new version of a known fact that `planned` says better or more fully."""
        before = known.valid_at, known.invalid_at
        valid_at, invalid_at = merge_times(planned.valid_at, planned.invalid_at, before=before)
        return {
            "text": planned.text,
            "subject": self.entities[planned.subject],
            "relation": planned.relation,
            "object": self.entities[planned.object],
            "type": planned.type or known.type,
            "rating": max(planned.rating, known.rating),
            "valid_at": valid_at,
            "invalid_at": invalid_at,
            "trust": known.trust if known.trust in TRUSTED else planned.trust,
        }

    def _support(self, planned: PlannedFact, fact: Fact, supports: Sequence[Episode]) -> None:
        """Note that these episodes support a fact, and which number it has in the answer."""
        self.stored[planned.number] = fact.id
        self.known.setdefault(fact.id, fact)
        self.sources += [(fact.first_seq, episode.seq) for episode in supports]

    def _find_same(self, planned: PlannedFact, supports: Sequence[Episode]) -> Fact | None:
        """Return the believed fact of the same scope, content and time, which may be newer than the batch; or None."""
        ends, scope = (self.entities[planned.subject], self.entities[planned.object]), set(scope_of(supports[0]))
        at = planned.valid_at or supports[-1].occurred_at
        for fact in self.tx.of(Facts).list_between(self.graph.id, *ends, planned.relation, limit=SAME_MAX):
            is_over = fact.invalid_at is not None and fact.invalid_at <= at
            if (
                fact.trust == planned.trust
                and scope <= set(fact.scope.items())
                and (fact.invalid_at == planned.invalid_at or (planned.invalid_at is None and not is_over))
                and (planned.valid_at is None or fact.is_true_at(planned.valid_at))
            ):
                return fact
        return None
