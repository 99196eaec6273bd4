"""`tx.graphs`: the graphs of one transaction, which agents have them, and what must not be remembered in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ArchiveId, GraphId
from perdure.features.facts.values.facts import FactRule, Graph, GraphCounts
from perdure.storage.database import row_format
from perdure.storage.tables.deleted import delete_shared
from perdure.storage.tables.table import OWN_AGENT, NounTable, OwnId, first, lock_numbers, next_number, own_agent

_GRAPH = row_format.RowFormat(Graph, {row_format.TEXT: "id"})
_RULE = row_format.RowFormat(FactRule, columns="graph_id, seq, text, entity, relation, created_at")
_COUNTS = row_format.RowFormat(GraphCounts)

# Rows of a graph have no organisation column: the graph has.
OWN_GRAPH = "EXISTS (SELECT 1 FROM graphs WHERE id = :graph_id AND org_id = :org_id)"


class Graphs(NounTable[Graph]):
    """The graphs of an organisation, and the agents that have them, in one transaction."""

    _kind, _source, _format = "graph", "graphs", _GRAPH

    def add(self, graph: Graph) -> Graph:
        """Add an empty graph, and return it with its number."""
        graph = replace(graph, org_id=self._org_id, number=next_number(self._db), version=0)
        self._run(row_format.insert_into("graphs", _GRAPH.columns), **_GRAPH.params(graph))
        return graph

    def find_by_agent(self, agent_id: AgentId) -> Graph | None:
        """Return the agent's graph; None: nothing was extracted for it yet."""
        # Agents and graphs are two families of rows (`storage.distribution`), so this takes two statements.
        graphs = self._rows(
            f"SELECT graph_id FROM agent_graphs WHERE agent_id = :agent_id AND {OWN_AGENT}", agent_id=agent_id
        )
        return self._find("id = :graph_id", graph_id=graphs[0][0]) if graphs else None

    def find_by_archive(self, archive_id: ArchiveId) -> Graph | None:
        """Return the graph whose texts are in this archive; None: it is no archive of a graph."""
        where = "(fact_archive_id = :archive_id OR entity_archive_id = :archive_id)"
        return self._find(where, archive_id=row_format.storable(archive_id))

    def lock_names(self) -> None:
        """Keep others from adding graphs until the end of this transaction, in a database with concurrent writers."""
        lock_numbers(self._db)

    def lock(self, graph_id: GraphId) -> None:
        """Lock the graph, if there is one, until the end of this transaction, in a database with concurrent writers."""
        if self._db.for_update:
            self._run(f"SELECT 1 FROM graphs WHERE id = :id AND org_id = :org_id{self._db.for_update}", id=graph_id)

    def find_by_name(self, name: str) -> Graph | None:
        """Return the oldest graph of this name; None: there is none."""
        return self._find("name = :name ORDER BY number LIMIT 1", name=row_format.stored_key(name))

    def list(self, *, after: int = -1, limit: int = 100) -> Sequence[Graph]:
        """Return graphs with numbers above `after`, in order of creation."""
        return self._read("number > :after ORDER BY number LIMIT :limit", after=after, limit=limit)

    def put(self, graph: Graph) -> None:
        """Store name, settings and `updated_at` of a graph. Raises: NotFound."""
        columns = row_format.assignments("name, settings, updated_at")
        sql = f"UPDATE graphs SET {columns}, version = version + 1 WHERE id = :id AND org_id = :org_id"
        if not self._run_counted(sql, **_GRAPH.params(graph)):
            raise NotFound("graph", graph.id)

    def delete(self, graph_id: GraphId) -> None:
        """Delete a graph with all that it knows. Raises: NotFound; InvalidInput: an agent has it."""
        graph = self.get(graph_id)
        if agents := self.list_agents(graph_id, limit=1):
            raise InvalidInput(f"{graph_id} is the graph of {agents[0]}: give the agent another one, or delete it")
        delete_shared(self._db, self._org_id, "graphs", OwnId(graph.id))

    def attach(self, agent_id: AgentId, graph_id: GraphId) -> None:
        """Give the agent this graph in place of its present one. Raises: NotFound."""
        own = own_agent(self._db, self._org_id, agent_id, lock=True)
        self.get(graph_id)
        self._run(
            f"{row_format.insert_into('agent_graphs', 'agent_id, graph_id')}"
            " ON CONFLICT (agent_id) DO UPDATE SET graph_id = excluded.graph_id",
            agent_id=own,
            graph_id=graph_id,
        )

    def list_agents(self, graph_id: GraphId, *, limit: int = 100) -> Sequence[AgentId]:
        """Return the ids of the agents that have a graph, in order."""
        return self._agents_of("agent_graphs", "graph_id", OWN_GRAPH, graph_id, limit)

    def newest_of_people(self, graph_id: GraphId) -> int:
        """Return the number of the newest version of a fact that a person wrote; 0: there is none."""
        rows = self._rows("SELECT person_seq FROM graphs WHERE id = :id AND org_id = :org_id", id=graph_id)
        return int(rows[0][0]) if rows else 0

    def take_numbers(self, graph_id: GraphId, kind: str, count: int) -> tuple[int, int]:
        """Reserve `count` numbers for new rows; return the first of them, and the new version of the graph. `kind` says
        for which rows: `entity`, `fact`, `episode` or `rule`. The graph gets a new version, and for facts also the
        archive of their texts, so that caches of searches are renewed. Raises: NotFound."""
        column = {"entity": "entity_seq", "fact": "fact_seq", "episode": "episode_seq", "rule": "rule_seq"}[kind]
        rows = self._rows(
            f"UPDATE graphs SET {column} = {column} + :count, version = version + 1"
            f" WHERE id = :graph_id AND org_id = :org_id RETURNING {column}, version, fact_archive_id",
            graph_id=graph_id,
            count=count,
        )
        last, version, archive_id = first(rows, "graph", graph_id)
        if kind == "fact":
            self._run("UPDATE archives SET version = version + 1 WHERE id = :id AND org_id = :org_id", id=archive_id)
        return int(last) - count + 1, int(version)

    def count_dropped(self, graph_id: GraphId, dropped: Mapping[str, int]) -> None:
        """Add to the counts of what extraction left out: reason -> how many entities or facts. Raises: NotFound."""
        if not dropped:
            return
        self._db.lock("graphs", graph_id)
        before = self.counts(graph_id).dropped
        total = {reason: before.get(reason, 0) + dropped.get(reason, 0) for reason in sorted({*before, *dropped})}
        sql = "UPDATE graphs SET dropped = :dropped WHERE id = :graph_id AND org_id = :org_id"
        self._run(sql, graph_id=graph_id, dropped=row_format.dump(total))

    def count_calls(self, graph_id: GraphId, *, calls: int, input_tokens: int, output_tokens: int) -> None:
        """Add the model calls and tokens of an extraction; lock the graph for this transaction. Raises: NotFound."""
        rows = self._rows(
            "UPDATE graphs SET extraction_calls = extraction_calls + :calls, input_tokens = input_tokens + :input,"
            " output_tokens = output_tokens + :output WHERE id = :graph_id AND org_id = :org_id RETURNING id",
            graph_id=graph_id,
            calls=calls,
            input=input_tokens,
            output=output_tokens,
        )
        first(rows, "graph", graph_id)

    def counts(self, graph_id: GraphId) -> GraphCounts:
        """Count what a graph holds, and what extraction left out and took. Raises: NotFound."""
        believed, waiting = self._db.by_index("facts_believed"), self._db.by_index("episodes_waiting")
        rows = self._rows(
            f"SELECT (SELECT COUNT(*) FROM facts f{believed} WHERE f.graph_id = g.id AND f.expired_at IS NULL),"
            " (SELECT COUNT(*) FROM entities e WHERE e.graph_id = g.id AND e.merged_into IS NULL),"
            " (SELECT COUNT(*) FROM episodes p WHERE p.graph_id = g.id),"
            f" (SELECT COUNT(*) FROM episodes p{waiting} WHERE p.graph_id = g.id AND p.extracted_at IS NULL),"
            " g.dropped, g.extraction_calls, g.input_tokens, g.output_tokens"
            " FROM graphs g WHERE g.id = :graph_id AND g.org_id = :org_id",
            graph_id=graph_id,
        )
        return _COUNTS.read(first(rows, "graph", graph_id))

    def add_rule(self, rule: FactRule) -> FactRule:
        """Add a rule about what must not be remembered, and return it with its number. Raises: NotFound."""
        rule = replace(rule, seq=self.take_numbers(rule.graph_id, "rule", 1)[0])
        self._run(row_format.insert_into("fact_rules", _RULE.columns), **_RULE.params(rule))
        return rule

    def list_rules(self, graph_id: GraphId) -> Sequence[FactRule]:
        """Return the rules about what a graph must not remember, in order, with the names of their entities; a merged
        entity counts as the one it was merged into."""
        sql = (
            f"SELECT {_RULE.columns_of('r')}, e.merged_into, e.name FROM fact_rules r LEFT JOIN entities e"
            f" ON e.graph_id = r.graph_id AND e.seq = r.entity WHERE r.graph_id = :graph_id AND {OWN_GRAPH}"
            " ORDER BY r.seq"
        )
        rows = self._rows(sql, graph_id=graph_id)
        rules = [(_RULE.read(row), row[-2], row_format.TEXT.load(row[-1]) if row[-1] else "") for row in rows]
        return [replace(rule, entity=merged_into or rule.entity, entity_name=name) for rule, merged_into, name in rules]

    def delete_rule(self, graph_id: GraphId, seq: int) -> bool:
        """Delete a rule; return whether there was one."""
        sql = f"DELETE FROM fact_rules WHERE graph_id = :graph_id AND seq = :seq AND {OWN_GRAPH}"
        return self._run_counted(sql, graph_id=graph_id, seq=seq) > 0
