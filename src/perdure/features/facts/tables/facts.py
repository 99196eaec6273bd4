"""`tx.facts`: the facts of one transaction, version by version, and the episodes that support them.

A version is written once and then only expires. Its text is a passage of the graph's archive; versions with the same
text share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Unpack

from perdure.core.ids import FactId, GraphId, PassageId, derived_id
from perdure.core.passages import Passage
from perdure.features.facts.tables.graphs import OWN_GRAPH, Graphs
from perdure.features.facts.values.facts import EventKind, Fact, FactEvent, FactFilter, Graph
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions, NumberWindow
from perdure.storage.tables.passages import Passages
from perdure.storage.tables.table import Table, find_all, first, locate, register


def fact_conditions(where: FactFilter) -> Conditions:
    """Return the SQL conditions of a filter on rows of `facts f`."""
    conditions = Conditions()
    if where.as_of is None:
        conditions.add("f.expired_at IS NULL")
    else:
        conditions.add("f.created_at <= ?", row_format.iso(where.as_of))
        conditions.add("(f.expired_at IS NULL OR f.expired_at > ?)", row_format.iso(where.as_of))
    for start, end in ((where.at, where.at), (where.since, where.until)):
        conditions.add("(f.invalid_at IS NULL OR f.invalid_at > ?)", start and row_format.iso(start))
        conditions.add("(f.valid_at IS NULL OR f.valid_at <= ?)", end and row_format.iso(end))
    conditions.add("f.invalid_at <= ?", where.ended_at and row_format.iso(where.ended_at))
    if where.entities:
        listed = ", ".join("?" * len(where.entities))  # numbers in the text would make each statement a new one
        conditions.add(f"(f.subject IN ({listed}) OR f.object IN ({listed}))", *where.entities, *where.entities)
    conditions.among("f.relation", where.relations or None)
    conditions.among("f.type", where.types or None)
    conditions.among("f.state", where.states)
    conditions.among("f.trust", where.trust)
    conditions.add("f.rating >= ?", where.min_rating if where.min_rating > 0 else None)
    for name, value in where.scope:
        conditions.add("REPLACE(f.scope, ?, '') <> f.scope", row_format.dump({name: value})[1:-1])
    return conditions


_ROW = (
    "graph_id, seq, id, first_seq, text_seq, subject, object, relation, type, rating, valid_at, invalid_at, created_at,"
    " expired_at, state, change, trust, scope, origin"
)
_STORED = row_format.RowFormat(Fact, columns=_ROW)
_FACT = row_format.RowFormat(Fact, columns=f"{_ROW}, text")
_SELECT = (
    f"SELECT {_STORED.columns_of('f')}, p.text FROM facts f{{index}} JOIN graphs g ON g.id = f.graph_id"
    " JOIN passages p ON p.archive_id = g.fact_archive_id AND p.seq = f.text_seq"
    " WHERE f.graph_id = :graph_id AND g.org_id = :org_id"
)


class Facts(Table):
    """The versions of facts, and the links to the episodes that support them, in one transaction."""

    def add(self, graph: Graph, versions: Sequence[Fact]) -> Sequence[Fact]:
        """Add versions of facts; return them with their numbers. A version without `first_seq` begins a new fact; every
        other one continues the fact that began with that number, whose last version has to be expired. Raises:
        NotFound."""
        if not versions:
            return ()
        seq, graph_version = Graphs(self._db, self._org_id).take_numbers(graph.id, "fact", len(versions))
        texts = self._texts(graph, versions)
        added = [
            replace(version, graph_id=graph.id, seq=seq + index, text_seq=texts[version.text])
            for index, version in enumerate(versions)
        ]
        added = [replace(version, first_seq=version.first_seq or version.seq) for version in added]
        new = [(version.id, version.seq) for version in added if version.first_seq == version.seq]
        register(self._db, self._org_id, graph.id, new)
        rows = [{**_STORED.params(version), "graph_version": graph_version} for version in added]
        self._db.run_many(row_format.insert_into("facts", f"{_ROW}, graph_version"), rows)
        self._change_fact_counts(graph.id, [version for version in added if version.expired_at is None], 1)
        if of_people := [version.seq for version in added if version.is_of_person]:
            sql = "UPDATE graphs SET person_seq = :seq WHERE id = :graph_id AND org_id = :org_id"
            self._run(sql, graph_id=graph.id, seq=of_people[-1])
        return added

    def expire(self, graph_id: GraphId, seqs: Sequence[int], *, at: datetime) -> Sequence[Fact]:
        """Store that these versions are believed no longer; return those that were believed, as they were."""
        expired = [fact for fact in self.list_by_seqs(graph_id, seqs) if fact.expired_at is None]
        if not expired:
            return expired
        _, version = Graphs(self._db, self._org_id).take_numbers(graph_id, "fact", 0)
        sql = "UPDATE facts SET expired_at = :at, graph_version = :version WHERE graph_id = :graph_id AND seq = :seq"
        own: dict[str, Any] = {"graph_id": graph_id, "version": version}
        ends = [(fact.seq, row_format.iso(max(at, fact.created_at))) for fact in expired]
        self._db.run_many(sql, [own | {"seq": seq, "at": end} for seq, end in ends])
        self._change_fact_counts(graph_id, expired, -1)
        return expired

    def get(self, fact_id: FactId) -> Fact:
        """Return the newest version of a fact, expired or not. Raises: NotFound."""
        return self.versions(fact_id)[-1]

    def versions(self, fact_id: FactId) -> Sequence[Fact]:
        """Return all versions of a fact, oldest first. Raises: NotFound."""
        graph_id, seq = locate(self._db, self._org_id, "fact", fact_id)
        found = self._read("f.first_seq = :seq ORDER BY f.seq", index="facts_by_first", graph_id=graph_id, seq=seq)
        first(found, "fact", fact_id)
        return found

    def list_by_ids(self, ids: Sequence[FactId]) -> Sequence[Fact]:
        """Return the newest version of each fact with one of these ids, in their order; unknown ids are left out."""
        by_graph: dict[str, list[int]] = {}
        for _, graph_id, seq in find_all(self._db, self._org_id, ids):
            by_graph.setdefault(graph_id, []).append(seq)
        found = (self.list_by_firsts(GraphId(graph_id), seqs) for graph_id, seqs in by_graph.items())
        newest = {fact.id: fact for facts in found for fact in facts}
        return [newest[fact_id] for fact_id in dict.fromkeys(ids) if fact_id in newest]

    def list_by_seqs(self, graph_id: GraphId, seqs: Sequence[int]) -> Sequence[Fact]:
        """Return the versions with these numbers that exist, in the order of `seqs`."""
        condition, params = self._db.in_numbers("f.seq", "seqs", seqs)
        by_seq = {fact.seq: fact for fact in self._read(condition, graph_id=graph_id, **params)}
        return [by_seq[seq] for seq in dict.fromkeys(seqs) if seq in by_seq]

    def list_by_firsts(self, graph_id: GraphId, first_seqs: Sequence[int]) -> Sequence[Fact]:
        """Return the newest versions of the facts that began with these versions, in order of number."""
        newest = [versions[-1] for versions in self.histories(graph_id, first_seqs).values()]
        return sorted(newest, key=lambda fact: fact.seq)

    def histories(self, graph_id: GraphId, first_seqs: Sequence[int]) -> Mapping[int, Sequence[Fact]]:
        """Return the number of a fact's first version -> all its versions, oldest first; of facts that exist."""
        condition, params = self._db.in_numbers("f.first_seq", "seqs", first_seqs)
        by_first: dict[int, list[Fact]] = {}
        for fact in self._read(f"{condition} ORDER BY f.seq", index="facts_by_first", graph_id=graph_id, **params):
            by_first.setdefault(fact.first_seq, []).append(fact)
        return by_first

    def list_ended(self, graph_id: GraphId, entities: Sequence[int]) -> Sequence[Fact]:
        """Return the versions about these entities, believed or not, which end because another fact began."""
        found: list[Fact] = []
        for column in ("subject", "object"):
            condition, params = self._db.in_numbers(f"f.{column}", "entities", entities)
            where, index = f"{condition} AND f.change = 'supersede'", f"facts_by_{column}"
            found += self._read(where, index=index, graph_id=graph_id, **params)
        return found

    def list_of_people(self, graph_id: GraphId, *, after: int, limit: int) -> Sequence[Fact]:
        """Return the newest versions that people wrote, with numbers above `after`, newest first."""
        sql = "f.origin LIKE '%\"person\"%' AND f.seq > :after ORDER BY f.seq DESC LIMIT :limit"
        found = self._read(sql, index="facts_of_people", graph_id=graph_id, after=after, limit=limit)
        return [version for version in found if version.is_of_person]

    def list_by_texts(self, graph_id: GraphId, text_seqs: Sequence[int], *, where: FactFilter) -> Sequence[Fact]:
        """Return the versions with these texts, by the numbers of their passages, that match; in order of number."""
        condition, params = self._db.in_numbers("f.text_seq", "texts", text_seqs)
        conditions = fact_conditions(where)
        sql = f"{condition} AND {conditions} ORDER BY f.seq"
        return self._read(sql, index="facts_by_text", graph_id=graph_id, **params, **conditions.params)

    def list_by_text(self, graph_id: GraphId, text: str) -> Sequence[Fact]:
        """Return the believed facts with exactly this text, oldest first."""
        found = find_all(self._db, self._org_id, [PassageId(derived_id("passage", graph_id, text))])
        return self.list_by_texts(graph_id, [seq for _, _, seq in found], where=FactFilter())

    def page(self, graph_id: GraphId, *, where: FactFilter, **window: Unpack[NumberWindow]) -> Sequence[Fact]:
        """The versions that match, at most one of each fact, in order of `first_seq` between `above` and `below`. Both
        are excluded. In this order a change, or a deletion that is taken back, moves no fact to another place."""
        conditions, index = fact_conditions(where), "facts_believed"
        if where.as_of is not None:  # later versions, of which there may be many, are not read
            index, later = "facts_by_first", self._last_seq(graph_id, where.as_of) + 1
            below = window.get("below")
            window["below"] = later if below is None else min(below, later)
        elif where.states and "active" not in where.states:
            index = "facts_by_state"
            conditions.add("f.state <> 'active'")
        elif len(where.relations) == 1:
            index = "facts_by_relation"
        order = conditions.window("f.first_seq", window)
        sql = f"{conditions} {order}"
        if where.entities:
            # Each index is read in order up to the limit, so that an entity of many facts costs no more than a page.
            numbers, index = {f"entity_{place}": int(seq) for place, seq in enumerate(where.entities)}, ""
            listed = ", ".join(f":{name}" for name in numbers)
            conditions.params.update(numbers)
            named = (
                f"SELECT seq FROM (SELECT f.seq FROM facts f{self._db.by_index(f'facts_by_{column}')} WHERE"
                f" f.graph_id = :graph_id AND f.{column} IN ({listed}) AND {sql}) AS {column}s"
                for column in ("subject", "object")
            )
            sql = f"f.seq IN ({' UNION '.join(named)}) {order.replace('f.', '+f.')}"
        return self._read(sql, index=index, graph_id=graph_id, **conditions.params)

    def list_among(self, graph_id: GraphId, entities: Sequence[int], *, limit: int) -> Sequence[Fact]:
        """Return the believed active facts whose subject and object are both among these entities, newest first."""
        conditions = fact_conditions(FactFilter())
        listed = ", ".join("?" * len(entities)) or "NULL"
        conditions.add(f"f.subject IN ({listed}) AND f.object IN ({listed})", *entities, *entities)
        sql = f"{conditions} ORDER BY f.first_seq DESC LIMIT :limit"
        return self._read(sql, index="facts_believed", graph_id=graph_id, limit=limit, **conditions.params)

    def list_newest_by_relation(
        self, graph_id: GraphId, entity: int, *, where: FactFilter, most: int
    ) -> Sequence[row_format.Row]:
        """Return (seq, subject, object, relation, rank) of an entity's matching facts, newest first: the newest `most`
        of each relation, ranked from 1."""
        conditions = fact_conditions(where)
        ends = " UNION ALL ".join(
            "SELECT f.seq, f.subject, f.object, f.relation, f.first_seq"
            f" FROM facts f{self._db.by_index(f'facts_by_{column}')}"
            f" WHERE f.graph_id = :graph_id AND f.{column} = :entity AND {conditions}"
            for column in ("subject", "object")
        )
        place = "ROW_NUMBER() OVER (PARTITION BY relation ORDER BY first_seq DESC)"
        ranked = f"SELECT seq, subject, object, relation, first_seq, {place} AS place FROM ({ends}) AS e"
        sql = f"SELECT seq, subject, object, relation, place FROM ({ranked}) AS t WHERE place <= :most AND {OWN_GRAPH}"
        order, values = " ORDER BY first_seq DESC", conditions.params
        return self._rows(sql + order, graph_id=graph_id, entity=entity, most=most, **values)

    def _last_seq(self, graph_id: GraphId, at: datetime) -> int:
        """Return the number of the last version that was written at or before `at`; -1: there was none."""
        sql = (
            f"SELECT MAX(seq) FROM facts{self._db.by_index('facts_by_creation')}"
            " WHERE graph_id = :graph_id AND created_at <= :at"
        )
        found = self._value(sql, graph_id=graph_id, at=row_format.iso(at))
        return -1 if found is None else int(found)

    def timeline(
        self,
        graph_id: GraphId,
        *,
        where: FactFilter,
        since: datetime | None = None,
        until: datetime | None = None,
        tags: Sequence[str] = (),
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[FactEvent]:
        """Return when the versions that match began and ceased to be true, from `since` until before `until`, in order
        of time. `tags` are relations and types of facts, one of which each has; empty: any. Events beyond `limit` are
        left out."""
        conditions, order = fact_conditions(where), "DESC" if newest_first else "ASC"
        if tags:
            marks, values = ", ".join("?" * len(tags)), [row_format.storable(tag) for tag in tags]
            conditions.add(f"(f.relation IN ({marks}) OR f.type IN ({marks}))", *values, *values)
        events: list[FactEvent] = []
        kinds: tuple[tuple[EventKind, str], ...] = (("begin", "valid_at"), ("end", "invalid_at"))
        for kind, column in kinds:
            of_kind = Conditions(f"f.{column} IS NOT NULL", *conditions.clauses, **conditions.params)
            of_kind.add(f"f.{column} >= ?", since and row_format.iso(since))
            of_kind.add(f"f.{column} < ?", until and row_format.iso(until))
            sql = f"{of_kind} ORDER BY f.{column} {order}, f.seq {order} LIMIT :limit"
            found = self._read(sql, graph_id=graph_id, limit=limit, **of_kind.params)
            events += [FactEvent(at=getattr(fact, column), kind=kind, fact=fact) for fact in found]
        # What ends at the moment at which another begins ends before it.
        events.sort(key=lambda event: (event.at, event.kind == "begin", event.fact.seq), reverse=newest_first)
        return events[:limit]

    def list_between(
        self, graph_id: GraphId, subject: int, object_: int, relation: str | None = None, *, limit: int = 100
    ) -> Sequence[Fact]:
        """Return the newest versions of facts from `subject` to `object_`, the newest facts first. With a relation only
        those that have it and are believed."""
        where, params = "f.object = :object AND f.subject = :subject", dict[str, Any](subject=subject, object=object_)
        if relation is not None:
            params["relation"] = row_format.storable(relation)
            where += " AND f.relation = :relation AND f.expired_at IS NULL"
        where += " ORDER BY f.first_seq DESC, f.seq DESC LIMIT :limit"
        return self._read(where, index="facts_by_object", graph_id=graph_id, limit=limit, **params)

    def put_text(self, graph: Graph, text_seq: int, text: str) -> None:
        """Replace the text of a passage in all versions that have it, and delete the passage. Raises: NotFound."""
        where, by_text = "f.text_seq = :text_seq ORDER BY f.seq LIMIT 1", "facts_by_text"
        for version in self._read(where, index=by_text, graph_id=graph.id, text_seq=text_seq):
            if version.text == text:
                return
            _, graph_version = Graphs(self._db, self._org_id).take_numbers(graph.id, "fact", 0)
            new_seq = self._texts(graph, [replace(version, text=text)])[text]
            self._run(
                f"UPDATE facts{self._db.by_index(by_text)} SET text_seq = :new_seq, graph_version = :version"
                " WHERE graph_id = :graph_id AND text_seq = :text_seq",
                graph_id=graph.id,
                new_seq=new_seq,
                version=graph_version,
                text_seq=text_seq,
            )
        Passages(self._db, self._org_id).delete(graph.fact_archive_id, [text_seq])

    def neighbours(self, graph_id: GraphId, seqs: Sequence[int], *, limit: int) -> Sequence[tuple[int, int]]:
        """Return (subject, object) of the believed facts that name one of these entities, newest first."""
        rows: set[tuple[int, int, int]] = set()
        for seq in dict.fromkeys(seqs):
            for column in ("subject", "object"):
                # In the index's order, so that an entity of many facts costs no more than the limit.
                found = self._rows(
                    f"SELECT first_seq, subject, object FROM facts{self._db.by_index(f'facts_by_{column}')}"
                    f" WHERE graph_id = :graph_id AND {column} = :seq"
                    f" AND expired_at IS NULL AND {OWN_GRAPH} ORDER BY first_seq DESC LIMIT :limit",
                    graph_id=graph_id,
                    seq=seq,
                    limit=limit,
                )
                rows.update((row[0], row[1], row[2]) for row in found)
        return [(subject, object_) for _, subject, object_ in sorted(rows, reverse=True)[:limit]]

    def columns(self, graph_id: GraphId, *, after_version: int = -1) -> Sequence[row_format.Row]:
        """Return the versions that were written or changed after this version of the graph, as rows in order. A row is
        (seq, text_seq, subject, object, rating, valid_at, invalid_at, created_at, expired_at, state, trust,
        graph_version, relation, type, scope); times and `scope` are texts as the store has them."""
        which, index = "", ""
        if after_version >= 0:
            which, index = " AND graph_version > :after_version", self._db.by_index("facts_by_version")
        rows = self._rows(
            "SELECT seq, text_seq, subject, object, rating, valid_at, invalid_at, created_at, expired_at, state, trust,"
            f" graph_version, relation, type, scope FROM facts{index} WHERE graph_id = :graph_id AND {OWN_GRAPH}{which}"
            " ORDER BY seq",
            graph_id=graph_id,
            **({"after_version": after_version} if which else {}),
        )
        return [(*row[:-3], *(text and row_format.restore(text) for text in row[-3:])) for row in rows]

    def add_sources(self, graph_id: GraphId, sources: Sequence[tuple[int, int]]) -> None:
        """Link facts with episodes that support them; a link may exist already. `sources` are pairs: the number of a
        fact's first version, and the number of an episode. Raises: NotFound."""
        Graphs(self._db, self._org_id).get(graph_id)
        self._db.run_many(
            f"{row_format.insert_into('fact_sources', 'graph_id, first_seq, episode_seq')} ON CONFLICT DO NOTHING",
            [{"graph_id": graph_id, "first_seq": fact, "episode_seq": episode} for fact, episode in sources],
        )

    def remove_sources(self, graph_id: GraphId, episode_seqs: Sequence[int]) -> Sequence[int]:
        """Remove the links to these episodes; return the `first_seq` of the facts that no episode supports now."""
        condition, params = self._db.in_numbers("episode_seq", "seqs", episode_seqs)
        rows = self._rows(
            f"DELETE FROM fact_sources{self._db.by_index('fact_sources_by_episode')}"
            f" WHERE graph_id = :graph_id AND {OWN_GRAPH} AND {condition} RETURNING first_seq",
            graph_id=graph_id,
            **params,
        )
        facts = sorted({row[0] for row in rows})
        remaining = self.sources(graph_id, facts)
        return [fact for fact in facts if not remaining[fact]]

    def sources(self, graph_id: GraphId, first_seqs: Sequence[int]) -> Mapping[int, Sequence[int]]:
        """Return the number of a fact's first version -> the numbers of the episodes that support it, in order."""
        condition, params = self._db.in_numbers("first_seq", "seqs", first_seqs)
        rows = self._rows(
            f"SELECT first_seq, episode_seq FROM fact_sources WHERE graph_id = :graph_id AND {OWN_GRAPH}"
            f" AND {condition} ORDER BY first_seq, episode_seq",
            graph_id=graph_id,
            **params,
        )
        by_fact: dict[int, list[int]] = {seq: [] for seq in first_seqs}
        for fact, episode in rows:
            by_fact[fact].append(episode)
        return by_fact

    def first_seqs(self, graph_id: GraphId, episode_seq: int) -> Sequence[int]:
        """Return the `first_seq` of the facts that an episode supports, believed or not, in order."""
        rows = self._rows(
            f"SELECT first_seq FROM fact_sources{self._db.by_index('fact_sources_by_episode')}"
            f" WHERE graph_id = :graph_id AND {OWN_GRAPH} AND episode_seq = :episode_seq ORDER BY first_seq",
            graph_id=graph_id,
            episode_seq=episode_seq,
        )
        return [row[0] for row in rows]

    def list_by_episodes(self, graph_id: GraphId, episode_seqs: Sequence[int]) -> Sequence[Fact]:
        """Return the believed versions of the facts that these episodes support, in order of number."""
        condition, params = self._db.in_numbers("s.episode_seq", "seqs", episode_seqs)
        where = (
            "f.expired_at IS NULL AND f.first_seq IN (SELECT s.first_seq FROM fact_sources s"
            f"{self._db.by_index('fact_sources_by_episode')}"
            f" WHERE s.graph_id = :graph_id AND {condition}) ORDER BY f.seq"
        )
        return self._read(where, index="facts_believed", graph_id=graph_id, **params)

    def _texts(self, graph: Graph, versions: Sequence[Fact]) -> dict[str, int]:
        """Return text of a version -> the number of its passage, which is added if it is new."""
        passages = Passages(self._db, self._org_id)
        ids = {version.text: PassageId(derived_id("passage", graph.id, version.text)) for version in versions}
        seqs = {row[0]: row[2] for row in find_all(self._db, self._org_id, list(ids.values()))}
        missing = {version.text: version for version in versions if ids[version.text] not in seqs}
        added = passages.add(
            [
                Passage(
                    id=ids[text],
                    archive_id=graph.fact_archive_id,
                    text=text,
                    source={"type": "fact"},
                    created_at=version.created_at,
                    occurred_at=version.valid_at or version.created_at,
                )
                for text, version in missing.items()
            ]
        )
        seqs |= {passage.id: passage.seq for passage in added}
        return {text: seqs[passage_id] for text, passage_id in ids.items()}

    def _change_fact_counts(self, graph_id: GraphId, facts: Sequence[Fact], by: int) -> None:
        """Add `by` to the fact counts of the entities that these believed versions name."""
        sql = "UPDATE entities SET fact_count = fact_count + :by WHERE graph_id = :graph_id AND seq = :seq"
        named = [seq for fact in facts for seq in (fact.subject, fact.object)]
        self._db.run_many(sql, [{"by": by, "graph_id": graph_id, "seq": seq} for seq in named])

    def _read(self, where: str, *, index: str = "", **params: object) -> Sequence[Fact]:
        """Read the versions of a graph that an SQL condition on `facts f` selects; `index` names the index to use."""
        select = _SELECT.replace("{index}", self._db.by_index(index) if index else "")
        self._db.lock("graphs", str(params["graph_id"]))
        return self._all(_FACT, f"{select} AND {where}", **params)
