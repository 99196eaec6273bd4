"""What is known stays consistent on both time axes under any history, also of a clock that goes back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.ids import FactId
from perdure.features.facts.tables import Entities, Episodes, Facts
from perdure.features.facts.units.graphs import (
    FactFields,
    add_facts,
    change_fact,
    delete_episodes,
    delete_facts,
    restore_fact,
)
from perdure.features.facts.values.facts import FACT_STATES, Episode, Fact, FactFilter, Graph
from perdure.storage.tx import Tx
from perdure.testing import InlineStore
from perdure.testing.clock import START
from tests.contracts.base import Contract, match_passages
from tests.support.strategies import effort

ENTITIES = 4
TEXTS = ("Ada lives in Turin.", "Ada lived in Oslo.", "Turin is warm.", "Ada likes Oslo \ud800.")
TICK = timedelta(microseconds=1)
TIMES = st.none() | st.integers(0, 9).map(lambda days: START + timedelta(days=days))


@dataclass(kw_only=True)
class Version:
    """What the model keeps of a version."""

    fact: int
    fields: dict[str, Any]
    created_at: datetime
    expired_at: datetime | None = None

    def is_believed(self, at: datetime | None) -> bool:
        if at is None:
            return self.expired_at is None
        return self.created_at <= at and (self.expired_at is None or at < self.expired_at)

    def is_true(self, at: datetime) -> bool:
        start, end = self.fields["valid_at"], self.fields["invalid_at"]
        return (start is None or start <= at) and (end is None or at < end)


@dataclass(kw_only=True)
class Step:
    """One change. `pick` chooses a fact or an episode among those that are there, `tick` moves the clock."""

    kind: str
    pick: int
    fields: dict[str, Any]
    sources: list[int]
    tick: int


@dataclass
class Model:
    """The versions of every fact, oldest first, and its sources."""

    facts: list[list[Version]] = field(default_factory=list)
    sources: list[set[int]] = field(default_factory=list)
    persons: set[int] = field(default_factory=set)

    def add(self, fields: dict[str, Any], sources: set[int], at: datetime) -> None:
        self.facts.append([Version(fact=len(self.facts), fields=fields, created_at=at)])
        self.sources.append(sources)

    def change(self, fact: int, fields: dict[str, Any], at: datetime) -> None:
        last = self.facts[fact][-1]
        at = max(at, last.expired_at or last.created_at)
        last.expired_at = last.expired_at or at
        self.facts[fact].append(Version(fact=fact, fields={**last.fields, **fields}, created_at=at))

    def expire(self, fact: int, at: datetime) -> None:
        last = self.facts[fact][-1]
        last.expired_at = last.expired_at or max(at, last.created_at)

    def drop_source(self, source: int, at: datetime) -> None:
        for fact, sources in enumerate(self.sources):
            if source in sources:
                sources.discard(source)
                if not sources and fact not in self.persons:
                    self.expire(fact, at)

    def view(self, as_of: datetime | None, at: datetime | None = None) -> list[tuple[int, dict[str, Any]]]:
        return [
            (version.fact, version.fields)
            for versions in self.facts
            for version in versions
            if version.is_believed(as_of) and (at is None or version.is_true(at))
        ]


@st.composite
def any_fields(draw: st.DrawFn) -> dict[str, Any]:
    subject, object_ = draw(st.permutations(range(1, ENTITIES + 1)))[:2]
    start, end = draw(TIMES), draw(TIMES)
    if start and end and end < start:
        start, end = end, start
    text, state = draw(st.sampled_from(TEXTS)), draw(st.sampled_from(FACT_STATES))
    return {
        **{"text": text, "subject": subject, "object": object_, "relation": draw(st.sampled_from(["IS_IN", "LIKES"]))},
        **{"valid_at": start, "invalid_at": end, "state": state},
    }


KINDS = ["add", "add", "change", "supersede", "delete", "restore", "drop", "back"]
STEPS = st.lists(
    st.builds(
        Step,
        kind=st.sampled_from(KINDS),
        pick=st.integers(0, 30),
        fields=any_fields(),
        sources=st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True),
        tick=st.integers(-3, 5),
    ),
    max_size=25,
)


@pytest.mark.slow
@effort(40, 3000)
@given(STEPS)
def test_any_history_is_told_as_it_was(steps: list[Step]) -> None:
    """At most one version of a fact is believed, versions follow one another, `as_of` answers what a plain model
    answers, what was extracted has a source, and a deletion that is taken back leaves no trace in a view."""
    asyncio.run(InlineStore().write(_tell, steps))


def _tell(tx: Tx, steps: list[Step]) -> None:
    units, model, clock = Contract(), Model(), START
    graph = units.add_graph(tx)
    units.add_entities(tx, graph.id, *map(str, range(ENTITIES)))
    episodes = dict(enumerate(tx.of(Episodes).add([units.new_episode(graph.id, str(place)) for place in range(6)])))
    ids: list[FactId] = []
    for step in steps:
        clock += timedelta(seconds=step.tick)
        _do(tx, units, graph, step, model, episodes, ids, clock)
        _check_now(tx, graph, model, ids)
    _check_history(tx, graph, model, ids)


def _do(
    tx: Tx,
    units: Contract,
    graph: Graph,
    step: Step,
    model: Model,
    episodes: dict[int, Episode],
    ids: list[FactId],
    at: datetime,
) -> None:
    """Carry out one step in the store and in the model."""
    origin = {"type": "extraction"}

    def add() -> None:
        supports = [place for place in step.sources if place in episodes] or [next(iter(episodes))]
        new = cast(FactFields, step.fields)
        links = [[episodes[place] for place in supports]]
        (fact,) = add_facts(tx, graph, [new], origin=origin, ids=units.ids, at=at, episodes=links)
        ids.append(fact.id)
        model.add(step.fields, set(supports), at)

    def drop() -> None:
        place = sorted(episodes)[step.pick % len(episodes)]
        if len(episodes) > 1:
            delete_episodes(tx, graph, [episodes.pop(place)], at=at)
            model.drop_source(place, at)

    if step.kind == "add" or not ids:
        add()
        return
    if step.kind == "drop":
        drop()
        return
    place = step.pick % len(ids)
    fact = tx.of(Facts).get(ids[place])
    is_believed = fact.expired_at is None
    if step.kind == "change" and is_believed:
        change_fact(tx, graph, fact, _changes(step), change="update", origin=origin, at=at)
        model.change(place, step.fields, at)
    elif step.kind == "supersede" and is_believed:
        end = max(fact.valid_at or at, at)
        change_fact(tx, graph, fact, {"invalid_at": end}, change="supersede", origin=origin, at=at)
        model.change(place, {"invalid_at": end}, at)
        add()
    elif step.kind == "delete":
        delete_facts(tx, graph, [fact], origin=origin, at=at)
        model.expire(place, at)
    elif step.kind == "restore" and not is_believed:
        restore_fact(tx, graph, fact.id, origin={"type": "person"}, at=at)
        model.change(place, {}, at)
        model.persons.add(place)
    elif step.kind == "back" and is_believed:
        before = _view(tx, graph), _found(tx, graph)
        delete_facts(tx, graph, [fact], origin=origin, at=at)
        assert (_view(tx, graph), _found(tx, graph)) != before
        restore_fact(tx, graph, fact.id, origin=origin, at=at)
        assert (_view(tx, graph), _found(tx, graph)) == before
        model.expire(place, at)
        model.change(place, {}, at)


def _check_now(tx: Tx, graph: Graph, model: Model, ids: list[FactId]) -> None:
    """The current view is the model's, entities count it, and what is believed has a source."""
    facts = _page(tx, graph)
    assert [(ids.index(fact.id), _fields(fact)) for fact in facts] == model.view(None)
    where = FactFilter(states=FACT_STATES, entities=(1, 3))
    page = tx.of(Facts).page(graph.id, where=where, newest_first=True, limit=3)
    assert page == [fact for fact in reversed(facts) if {fact.subject, fact.object} & {1, 3}][:3]
    named = [seq for fact in facts for seq in (fact.subject, fact.object)]
    assert {one.seq: one.fact_count for one in tx.of(Entities).list(graph.id)} == {
        seq: named.count(seq) for seq in range(1, ENTITIES + 1)
    }
    for fact in facts:
        place = ids.index(fact.id)
        assert tx.of(Facts).sources(graph.id, [fact.first_seq])[fact.first_seq] or place in model.persons


def _check_history(tx: Tx, graph: Graph, model: Model, ids: list[FactId]) -> None:
    """Versions follow one another, and every moment is answered as the model answers it."""
    moments = {START}
    for place, fact_id in enumerate(ids):
        versions = [one for one in tx.of(Facts).versions(fact_id) if not one.is_deletion]
        told = [(_fields(one), one.created_at, one.expired_at) for one in versions]
        assert told == [(one.fields, one.created_at, one.expired_at) for one in model.facts[place]]
        assert [one.seq for one in versions] == sorted({one.seq for one in versions})
        for one, following in pairwise(versions):
            assert one.expired_at is not None and one.created_at <= one.expired_at <= following.created_at
        for one in versions:
            assert not (one.valid_at and one.invalid_at) or one.valid_at <= one.invalid_at
            moments |= {one.created_at, one.expired_at or one.created_at}
    for moment in sorted({moment + offset for moment in moments for offset in (-TICK, 0 * TICK, TICK)}):
        for at in (None, START + timedelta(days=4)):
            facts = _page(tx, graph, as_of=moment, at=at)
            assert [(ids.index(fact.id), _fields(fact)) for fact in facts] == model.view(moment, at)


def _page(tx: Tx, graph: Graph, **conditions: Any) -> list[Fact]:
    return list(tx.of(Facts).page(graph.id, where=FactFilter(states=FACT_STATES, **conditions), limit=1_000))


def _view(tx: Tx, graph: Graph) -> list[Any]:
    return [(fact.id, _fields(fact)) for fact in _page(tx, graph)]


def _found(tx: Tx, graph: Graph) -> list[Any]:
    """What searches for two words find: the passages, and the facts that are believed with their texts."""
    seqs = [match_passages(tx, graph.fact_archive_id, word) for word in ("Ada", "Oslo")]
    where = FactFilter(states=FACT_STATES)
    facts = [tx.of(Facts).list_by_texts(graph.id, found, where=where) for found in seqs]
    return [seqs, [sorted((fact.id, fact.text_seq) for fact in found) for found in facts]]


def _fields(fact: Fact) -> dict[str, Any]:
    names = ("text", "subject", "object", "relation", "valid_at", "invalid_at", "state")
    return {name: getattr(fact, name) for name in names}


def _changes(step: Step) -> FactFields:
    return cast(FactFields, step.fields)
