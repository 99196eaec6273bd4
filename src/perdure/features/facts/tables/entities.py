"""`tx.entities`: the entities of one transaction, with the names that lead to them, and their communities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, Unpack

from perdure.core.ids import EntityId, GraphId
from perdure.core.text.forms import name_key
from perdure.features.facts.tables.graphs import OWN_GRAPH, Graphs
from perdure.features.facts.values.facts import Community, Entity, Fact
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions, NumberWindow
from perdure.storage.tables.table import Table, first, locate, parts, register

_ENTITY = row_format.RowFormat(Entity)
_COMMUNITY = row_format.RowFormat(Community)

EntitySort = Literal["name", "-name", "type", "-type", "facts", "-facts"]
_ORDERS: Mapping[EntitySort, str] = {
    "name": "LOWER(name)",
    "-name": "LOWER(name) DESC",
    "type": "type",
    "-type": "type DESC",
    "facts": "fact_count",
    "-facts": "fact_count DESC",
}


class Entities(Table):
    """The entities and communities of graphs, in one transaction."""

    def add(self, entities: Sequence[Entity]) -> Sequence[Entity]:
        """Add entities of one graph, and return them with their numbers. Raises: NotFound."""
        if not entities:
            return ()
        graph_id = entities[0].graph_id
        number, _ = Graphs(self._db, self._org_id).take_numbers(graph_id, "entity", len(entities))
        added = [replace(entity, seq=number + index, fact_count=0) for index, entity in enumerate(entities)]
        register(self._db, self._org_id, graph_id, [(entity.id, entity.seq) for entity in added])
        self._db.run_many(row_format.insert_into("entities", _ENTITY.columns), list(map(_ENTITY.params, added)))
        self._add_names([entity for entity in added if entity.merged_into is None])
        return added

    def get(self, entity_id: EntityId) -> Entity:
        """Return the entity of this id. Raises: NotFound."""
        graph_id, seq = locate(self._db, self._org_id, "entity", entity_id)
        return first(self.list_by_seqs(GraphId(graph_id), [seq]), "entity", entity_id)

    def put(self, entity: Entity) -> None:
        """Store name, type, summary, aliases, attributes, `updated_at` and `merged_into` of an entity. No name leads to
        one that was merged. Raises: NotFound."""
        before = self.get(entity.id)
        columns = row_format.assignments("name, type, summary, aliases, attributes, updated_at, merged_into")
        params = _ENTITY.params(replace(entity, graph_id=before.graph_id, seq=before.seq))
        self._run(f"UPDATE entities SET {columns} WHERE graph_id = :graph_id AND seq = :seq", **params)
        delete_sql = "DELETE FROM entity_names WHERE graph_id = :graph_id AND name = :name AND seq = :seq"
        self._db.run_many(delete_sql, _name_rows([before]))
        if entity.merged_into is None:
            self._add_names([replace(entity, graph_id=before.graph_id, seq=before.seq)])

    def find_by_names(self, graph_id: GraphId, names: Sequence[str]) -> Mapping[str, Sequence[int]]:
        """Return each of `names` -> the numbers of the entities that have it as name or alias, in order."""
        keys = {name: name_key(name) for name in names}
        by_key: dict[str, list[int]] = {}
        for chunk in parts(list(dict.fromkeys(keys.values()))):
            where = Conditions("graph_id = :graph_id", OWN_GRAPH, graph_id=graph_id)
            where.among("name", chunk)
            sql = f"SELECT name, seq FROM entity_names WHERE {where} ORDER BY seq"
            for key, seq in self._rows(sql, **where.params):
                by_key.setdefault(row_format.restore(key), []).append(seq)
        return {name: by_key.get(key, []) for name, key in keys.items()}

    def list_by_seqs(self, graph_id: GraphId, seqs: Sequence[int]) -> Sequence[Entity]:
        """Return the entities with these numbers, in this order; a number that no entity has is left out."""
        condition, params = self._db.in_numbers("seq", "seqs", seqs)
        by_seq = {entity.seq: entity for entity in self._read(condition, graph_id=graph_id, **params)}
        return [by_seq[seq] for seq in dict.fromkeys(seqs) if seq in by_seq]

    def list_current(self, graph_id: GraphId, seqs: Sequence[int]) -> Mapping[int, Entity]:
        """Return number -> entity, or the entity that it was merged into, followed to the last one."""
        found = {entity.seq: entity for entity in self.list_by_seqs(graph_id, sorted(set(seqs)))}
        while after := {one.merged_into for one in found.values() if one.merged_into is not None} - found.keys():
            found |= {entity.seq: entity for entity in self.list_by_seqs(graph_id, sorted(after))}
        current = dict(found)
        while any(one.merged_into is not None for one in current.values()):
            current = {seq: found[one.merged_into or one.seq] for seq, one in current.items()}
        return {seq: current[seq] for seq in seqs if seq in current}

    def of_facts(self, graph_id: GraphId, facts: Sequence[Fact]) -> Mapping[int, Entity]:
        """Return number -> entity for the subjects and objects of these facts."""
        seqs = sorted({seq for fact in facts for seq in (fact.subject, fact.object)})
        return {entity.seq: entity for entity in self.list_by_seqs(graph_id, seqs)}

    def list(self, graph_id: GraphId, *, merged: bool = False, **window: Unpack[NumberWindow]) -> Sequence[Entity]:
        """Return entities in order; with `merged` also merged ones."""
        conditions = Conditions(*(() if merged else ("merged_into IS NULL",)))
        order = conditions.window("seq", window)
        return self._read(f"{conditions} {order}", graph_id=graph_id, **conditions.params)

    def list_sorted(self, graph_id: GraphId, sort: EntitySort, *, offset: int, limit: int) -> Sequence[Entity]:
        """Return entities in an order; those with the same value in order of creation."""
        where = f"merged_into IS NULL ORDER BY {_ORDERS[sort]}, seq LIMIT :limit OFFSET :offset"
        return self._read(where, graph_id=graph_id, limit=limit, offset=offset)

    def list_members(self, graph_id: GraphId, community_seq: int, *, limit: int = 100) -> Sequence[Entity]:
        """Return the entities of a community, in order of creation."""
        where = "community_seq = :community_seq ORDER BY seq LIMIT :limit"
        index = "entities_by_community"
        return self._read(where, index=index, graph_id=graph_id, community_seq=community_seq, limit=limit)

    def communities_of(self, graph_id: GraphId, seqs: Sequence[int]) -> Mapping[int, int | None]:
        """Return the number of each of these entities that exists -> that of its community; None: it is in none."""
        condition, params = self._db.in_numbers("seq", "seqs", seqs)
        sql = f"SELECT seq, community_seq FROM entities WHERE graph_id = :graph_id AND {OWN_GRAPH} AND {condition}"
        return {row[0]: row[1] for row in self._rows(sql, graph_id=graph_id, **params)}

    def set_community(self, graph_id: GraphId, seq: int, community_seq: int | None) -> None:
        """Move an entity into a community; None: out of any."""
        sql = f"UPDATE entities SET community_seq = :to WHERE graph_id = :graph_id AND seq = :seq AND {OWN_GRAPH}"
        self._run(sql, graph_id=graph_id, seq=seq, to=community_seq)

    def put_community(self, community: Community) -> None:
        """Add or update a community; one of size 0 is deleted. Raises: NotFound: there is no such graph."""
        Graphs(self._db, self._org_id).get(community.graph_id)
        if not community.size:
            sql = "DELETE FROM communities WHERE graph_id = :graph_id AND seq = :seq"
            self._run(sql, graph_id=community.graph_id, seq=community.seq)
            return
        columns = "name, summary, size, summary_due, updated_at"
        self._run(
            f"{row_format.insert_into('communities', _COMMUNITY.columns)}"
            f" ON CONFLICT (graph_id, seq) DO UPDATE SET {row_format.assignments(columns)}",
            **_COMMUNITY.params(community),
        )

    def find_community(self, graph_id: GraphId, seq: int) -> Community | None:
        """Return the community of this number; None: there is none."""
        return next(iter(self._communities("seq = :seq", graph_id=graph_id, seq=seq)), None)

    def list_communities(
        self, graph_id: GraphId, *, due: bool | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[Community]:
        """Return communities with numbers above `after`, in order; `due`: whether their summary is out of date."""
        which = "" if due is None else f" AND summary_due = {int(due)}"
        index = "communities_due" if due else ""
        where = f"seq > :after{which} ORDER BY seq LIMIT :limit"
        return self._communities(where, index=index, graph_id=graph_id, after=after, limit=limit)

    def _communities(self, where: str, *, index: str = "", **params: str | int) -> Sequence[Community]:
        """Read the communities of a graph that an SQL condition selects; `index` names the index to use."""
        source = f"communities{self._db.by_index(index) if index else ''}"
        self._db.lock("graphs", str(params["graph_id"]))
        sql = f"SELECT {_COMMUNITY.columns} FROM {source} WHERE graph_id = :graph_id AND {OWN_GRAPH} AND {where}"
        return self._all(_COMMUNITY, sql, **params)

    def _add_names(self, entities: Sequence[Entity]) -> None:
        """Store the names and aliases by which entities are found."""
        self._db.run_many(row_format.insert_into("entity_names", "graph_id, name, seq"), _name_rows(entities))

    def _read(self, where: str, *, index: str = "", **params: object) -> Sequence[Entity]:
        """Read the entities of a graph that an SQL condition selects; `index` names the index to use."""
        source = f"entities{self._db.by_index(index) if index else ''}"
        self._db.lock("graphs", str(params["graph_id"]))
        sql = f"SELECT {_ENTITY.columns} FROM {source} WHERE graph_id = :graph_id AND {OWN_GRAPH} AND {where}"
        return self._all(_ENTITY, sql, **params)


def _name_rows(entities: Sequence[Entity]) -> Sequence[Mapping[str, str | int]]:
    """Return a row of `entity_names` for each name and alias of the entities, in the form of `name_key`."""
    return [
        {"graph_id": entity.graph_id, "name": row_format.storable(key), "seq": entity.seq}
        for entity in entities
        for key in dict.fromkeys(map(name_key, (entity.name, *entity.aliases)))
    ]
