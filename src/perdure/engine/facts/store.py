"""Storing what an extraction found, in one transaction with the position up to which was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from perdure.core.facts.extraction import Extraction
from perdure.core.facts.values import FACT_STATES, TRUSTED, Episode, Fact, FactFilter, Graph
from perdure.core.ids import Ids
from perdure.domain.facts.batches import LoadedBatch, episodes_of, scope_of
from perdure.domain.facts.graphs import NewFact, add_facts, change_fact, delete_facts, graph_of_agent, store_entities
from perdure.engine.facts.plan import Plan, PlannedFact
from perdure.storage.tx import Tx

SAME_MAX = 100
"""How many facts of an entity and relation are compared with a new one."""


def store_plan(
    tx: Tx, loaded: LoadedBatch, plan: Plan, *, extraction: Extraction, ids: Ids, at: datetime
) -> Sequence[Fact]:
    """Store a plan and mark its batch as extracted; return the facts that are new. If another process has stored the
    batch, nothing happens.

    Raises: NotFound.
    """
    if not _claim(tx, loaded, at=at):
        return ()
    if not (plan.facts or plan.dropped or extraction.calls) and loaded.graph is None:
        return ()
    graph = _graph_of(tx, loaded, ids=ids, at=at)
    tx.graphs.count_calls(
        graph.id,
        calls=extraction.calls,
        input_tokens=extraction.input_tokens,
        output_tokens=extraction.output_tokens,
    )
    tx.graphs.count_dropped(graph.id, plan.dropped)
    if not plan.facts:
        return ()
    entities = [entity.seq for entity in store_entities(tx, graph, plan.entities, ids=ids, at=at)]
    episodes = tx.episodes.add(episodes_of(loaded, graph, ids=ids, at=at))
    added = []
    for planned in plan.facts:
        supports = [episodes[number - 1] for number in planned.turns]
        origin = _origin(loaded, planned, extraction)
        fact = _store_fact(tx, graph, planned, entities, loaded, supports, origin=origin, ids=ids, at=at)
        if fact is not None:
            added.append(fact)
    return added


def _origin(loaded: LoadedBatch, planned: PlannedFact, extraction: Extraction) -> Mapping[str, Any]:
    """Return who found a fact, and in which message of which run; none of a passage or a text that was given."""
    origin: dict[str, Any] = {"type": "extraction", "model": extraction.model}
    if loaded.messages:
        message = loaded.messages[max(planned.turns) - 1]
        origin |= {"message_id": message.id, "run_id": message.run_id, "step_id": message.step_id}
    return {name: value for name, value in origin.items() if value is not None}


def pass_over(tx: Tx, loaded: LoadedBatch, *, ids: Ids, at: datetime) -> int:
    """Mark a batch as extracted without its facts, and count its turns as dropped; return how many. If another process
    has stored the batch, nothing happens.

    Raises: NotFound.
    """
    turns = len(loaded.batch.turns)
    if not _claim(tx, loaded, at=at):
        return 0
    tx.graphs.count_dropped(_graph_of(tx, loaded, ids=ids, at=at).id, {"extraction failed": turns})
    return turns


def _graph_of(tx: Tx, loaded: LoadedBatch, *, ids: Ids, at: datetime) -> Graph:
    """Return the graph of a batch, a new one if its agent has none. Raises: NotFound."""
    if loaded.line is not None:
        return graph_of_agent(tx, loaded.line[0], ids=ids, at=at)
    return tx.graphs.get(loaded.episodes[0].graph_id)


def _claim(tx: Tx, loaded: LoadedBatch, *, at: datetime) -> bool:
    """Move the position over the batch; return whether it still was before it."""
    if loaded.line is None:
        seqs = [episode.seq for episode in loaded.episodes]
        return tx.episodes.mark_extracted(loaded.episodes[0].graph_id, seqs, at=at) == len(seqs)
    agent_id, conversation_seq = loaded.line
    tx.agents.lock(agent_id)
    if tx.episodes.last_seq(agent_id, conversation_seq) != loaded.from_seq:
        return False
    tx.episodes.put_last_seq(agent_id, conversation_seq, loaded.upto_seq, at=at)
    return True


def _store_fact(
    tx: Tx,
    graph: Graph,
    planned: PlannedFact,
    entities: Sequence[int],
    loaded: LoadedBatch,
    supports: Sequence[Episode],
    *,
    origin: Mapping[str, Any],
    ids: Ids,
    at: datetime,
) -> Fact | None:
    """Carry out the decision about one fact; return it if it is new."""
    known = planned.known and tx.facts.get(planned.known.id)
    if known is not None and known.expired_at is not None and planned.decision != "SUPERSEDE":
        known = None  # it was deleted since the batch was read: what was said stands by itself
        if planned.decision in ("DELETE", "NONE"):
            return None
    pairs = [(known.first_seq, episode.seq) for episode in supports] if known else []
    if known is not None and planned.decision == "DELETE":
        delete_facts(tx, graph, [known], origin=origin, at=at)
        return None
    if known is not None and planned.decision == "NONE":
        tx.facts.add_sources(graph.id, pairs)
        return None
    if entities[planned.subject] == entities[planned.object]:
        tx.graphs.count_dropped(graph.id, {"subject is object": 1})
        return None
    if known is not None and planned.decision == "UPDATE":
        changed = change_fact(
            tx,
            graph,
            known,
            {
                "text": planned.text,
                "subject": entities[planned.subject],
                "relation": planned.relation,
                "object": entities[planned.object],
                "type": planned.type or known.type,
                "rating": max(planned.rating, known.rating),
                "valid_at": planned.valid_at or known.valid_at,
                "invalid_at": planned.invalid_at or known.invalid_at,
                "trust": known.trust if known.trust in TRUSTED else planned.trust,
            },
            change="update",
            origin=origin,
            at=at,
        )
        tx.facts.add_sources(graph.id, pairs)
        return changed
    if known is not None and known.expired_at is None:
        end = planned.valid_at or max(turn.occurred_at for turn in loaded.batch.turns if turn.number in planned.turns)
        if known.invalid_at is None or known.invalid_at > end:
            ends = {"invalid_at": max(end, known.valid_at or end)}
            change_fact(tx, graph, known, {**ends}, change="supersede", origin=origin, at=at)  # type: ignore[typeddict-item]
    if (
        planned.decision == "ADD"
        and (same := _find_same(tx, graph, planned, entities, scope_of(supports[0]))) is not None
    ):
        tx.facts.add_sources(graph.id, [(same.first_seq, episode.seq) for episode in supports])
        return None
    new = NewFact(
        text=planned.text,
        subject=entities[planned.subject],
        relation=planned.relation,
        object=entities[planned.object],
        type=planned.type,
        rating=planned.rating,
        valid_at=planned.valid_at,
        invalid_at=planned.invalid_at,
        state="proposed" if loaded.settings.capture == "ask" else "active",
        trust=planned.trust,
        scope=supports[0].scope,
    )
    return add_facts(tx, graph, [new], origin=origin, ids=ids, at=at, episodes=[supports])[0]


def _find_same(
    tx: Tx, graph: Graph, planned: PlannedFact, entities: Sequence[int], scope: tuple[tuple[str, str], ...]
) -> Fact | None:
    """Return the believed fact of a scope that says the same of the same time: one may have come since the batch was
    read."""
    subject, object_ = entities[planned.subject], entities[planned.object]
    where = FactFilter(entities=(subject,), relations=(planned.relation,), states=FACT_STATES, scope=scope)
    for fact in tx.facts.page(graph.id, where=where, newest_first=True, limit=SAME_MAX):
        if (fact.subject, fact.object, fact.trust) == (subject, object_, planned.trust) and (
            planned.invalid_at in (None, fact.invalid_at)
            and (planned.valid_at is None or fact.is_true_at(planned.valid_at))
        ):
            return fact
    return None
