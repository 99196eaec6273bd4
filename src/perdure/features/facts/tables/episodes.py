"""`tx.episodes`: the episodes of one transaction, and up to which message each conversation was extracted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain

from perdure.core.ids import AgentId, EpisodeId, GraphId
from perdure.core.text.forms import name_form
from perdure.features.facts.tables.graphs import OWN_GRAPH, Graphs
from perdure.features.facts.values.facts import Episode
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import RowFormat, dump, insert_into, iso
from perdure.storage.tables.table import OWN_AGENT, Table, first, locate, parts, register

_EPISODE = RowFormat(Episode)
_OF_CONVERSATION = f"agent_id = :agent_id AND conversation_seq = :conversation_seq AND {OWN_AGENT}"


class Episodes(Table):
    """The episodes of graphs, and how far conversations were extracted, in one transaction."""

    def add(self, episodes: Sequence[Episode]) -> Sequence[Episode]:
        """Add episodes of one graph, unless it has the `ref`; return them numbered, in order. Raises: NotFound."""
        if not episodes:
            return ()
        graph_id = episodes[0].graph_id
        by_ref = {one.ref: one for one in self.list_by_refs(graph_id, [episode.ref for episode in episodes])}
        new = {episode.ref: episode for episode in episodes if episode.ref not in by_ref}
        number, _ = Graphs(self._db, self._org_id).take_numbers(graph_id, "episode", len(new))
        for index, (ref, episode) in enumerate(new.items()):
            by_ref[ref] = replace(episode, seq=number + index)
        added = [by_ref[ref] for ref in new]
        register(self._db, self._org_id, graph_id, [(episode.id, episode.seq) for episode in added])
        self._db.run_many(insert_into("episodes", _EPISODE.columns), list(map(_EPISODE.params, added)))
        return [by_ref[episode.ref] for episode in episodes]

    def get(self, episode_id: EpisodeId) -> Episode:
        """Return the episode of this id. Raises: NotFound."""
        graph_id, seq = locate(self._db, self._org_id, "episode", episode_id)
        return first(self.list_by_seqs(GraphId(graph_id), [seq]), "episode", episode_id)

    def list_by_refs(self, graph_id: GraphId, refs: Sequence[str]) -> Sequence[Episode]:
        """Return the episodes of these messages, passages, documents and texts, in order of number."""
        found: list[Episode] = []
        for chunk in parts(list(dict.fromkeys(refs))):
            where = Conditions()
            where.among("ref", chunk)
            found += self._read(str(where), index="episodes_by_ref", graph_id=graph_id, **where.params)
        return sorted(found, key=lambda episode: episode.seq)

    def find(self, refs: Sequence[str]) -> Sequence[Episode]:
        """Return the episodes of these messages and passages, by their ids, in all graphs of the organisation."""
        graphs = "graph_id IN (SELECT id FROM graphs WHERE org_id = :org_id)"
        sql = f"SELECT ref, {_EPISODE.columns} FROM episodes WHERE {{keys}} AND {graphs}"
        found = _EPISODE.read_each(self._rows_of_each(sql, "ref", refs)).values()
        return sorted(chain.from_iterable(found), key=lambda episode: (episode.graph_id, episode.seq))

    def list_by_messages(self, agent_id: AgentId, message_seqs: Sequence[int]) -> Sequence[Episode]:
        """Return the episodes of these messages of an agent, by their numbers, in all graphs of the organisation."""
        condition, params = self._db.in_numbers("message_seq", "seqs", message_seqs)
        graphs = "graph_id IN (SELECT id FROM graphs WHERE org_id = :org_id)"
        sql = f"SELECT {_EPISODE.columns} FROM episodes WHERE agent_id = :agent_id AND {condition} AND {graphs}"
        return self._all(_EPISODE, f"{sql} ORDER BY graph_id, seq", agent_id=agent_id, **params)

    def list_by_seqs(self, graph_id: GraphId, seqs: Sequence[int]) -> Sequence[Episode]:
        """Return the episodes with these numbers that exist, in order of number."""
        condition, params = self._db.in_numbers("seq", "seqs", seqs)
        return self._read(f"{condition} ORDER BY seq", graph_id=graph_id, **params)

    def list_waiting(self, graph_id: GraphId, *, limit: int = 100) -> Sequence[Episode]:
        """Return the oldest episodes that wait for extraction, in order."""
        where = "extracted_at IS NULL ORDER BY seq LIMIT :limit"
        return self._read(where, index="episodes_waiting", graph_id=graph_id, limit=limit)

    def list_next(self, graph_id: GraphId, *, limit: int) -> Sequence[Episode]:
        """Return the oldest waiting episodes that extraction has not tried; if there are none, those tried least."""
        for where in ("extracted_at IS NULL AND tries = 0 ORDER BY seq", "extracted_at IS NULL ORDER BY tries, seq"):
            sql = f"{where} LIMIT :limit"
            if found := self._read(sql, index="episodes_waiting", graph_id=graph_id, limit=limit):
                return found
        return ()

    def list(
        self, graph_id: GraphId, *, scope: Mapping[str, str] | None = None, newest_first: bool = False, limit: int = 100
    ) -> Sequence[Episode]:
        """Return episodes, in order or newest first, whose scope has all of `scope`."""
        where = Conditions()
        for name, value in name_form(scope or {}).items():
            where.add("REPLACE(scope, ?, '') <> scope", dump({name: value})[1:-1])
        order = "DESC" if newest_first else "ASC"
        sql = f"{where} ORDER BY seq {order} LIMIT :limit"
        return self._read(sql, graph_id=graph_id, limit=limit, **where.params)

    def mark_extracted(self, graph_id: GraphId, seqs: Sequence[int], *, at: datetime) -> int:
        """Store that the facts of these episodes were stored at `at`; return how many of them had waited."""
        return self._change(graph_id, seqs, "extracted_at = :at", "extracted_at IS NULL", at=iso(at))

    def mark_waiting(self, graph_id: GraphId, seqs: Sequence[int]) -> None:
        """Have these episodes extracted once more, by the next extraction."""
        self._change(graph_id, seqs, "extracted_at = NULL, tries = 0")

    def count_tries(self, graph_id: GraphId, seqs: Sequence[int]) -> None:
        """Count that extraction of these episodes failed once more."""
        self._change(graph_id, seqs, "tries = tries + 1")

    def _change(self, graph_id: GraphId, seqs: Sequence[int], changes: str, where: str = "1 = 1", **params: str) -> int:
        """Change those of these episodes that fulfil `where`, both in SQL with `params`; return how many."""
        condition, numbers = self._db.in_numbers("seq", "seqs", seqs)
        own = f"graph_id = :graph_id AND {OWN_GRAPH} AND {condition} AND {where}"
        return self._run_counted(f"UPDATE episodes SET {changes} WHERE {own}", graph_id=graph_id, **numbers, **params)

    def delete(self, graph_id: GraphId, seqs: Sequence[int]) -> int:
        """Delete episodes; return how many there were. `Facts.remove_sources` removes the links to them."""
        found = self.list_by_seqs(graph_id, seqs)
        self._db.run_many("DELETE FROM ids WHERE id = :id", [{"id": episode.id} for episode in found])
        self._db.run_many(
            "DELETE FROM episodes WHERE graph_id = :graph_id AND seq = :seq",
            [{"graph_id": graph_id, "seq": episode.seq} for episode in found],
        )
        return len(found)

    def last_seq(self, agent_id: AgentId, conversation_seq: int) -> int:
        """Return the number of the last message of a conversation that extraction has read; -1: it has read none. A
        `conversation_seq` below 0 stands for the archive of number `-1 - conversation_seq`, and its passages."""
        sql = f"SELECT upto_seq FROM extractions WHERE {_OF_CONVERSATION}"
        rows = self._rows(sql, agent_id=agent_id, conversation_seq=conversation_seq)
        return int(rows[0][0]) if rows else -1

    def list_behind(self, *, limit: int) -> Sequence[tuple[AgentId, int]]:
        """Return agent and number of the conversations with unread messages among the newest `limit` of all."""
        rows = self._rows(
            "SELECT DISTINCT m.agent_id, m.conversation_seq FROM (SELECT agent_id, conversation_seq, seq, created_at"
            " FROM messages ORDER BY created_at DESC, agent_id DESC, seq DESC LIMIT :limit) m"
            " JOIN agents a ON a.id = m.agent_id AND a.org_id = :org_id"
            " LEFT JOIN extractions e ON e.agent_id = m.agent_id AND e.conversation_seq = m.conversation_seq"
            " WHERE e.upto_seq IS NULL OR e.upto_seq < m.seq ORDER BY m.agent_id, m.conversation_seq",
            limit=limit,
        )
        return [(AgentId(row[0]), int(row[1])) for row in rows]

    def list_behind_of(self, agent_id: AgentId) -> Sequence[int]:
        """Return the numbers of an agent's conversations with messages that extraction has not read."""
        rows = self._rows(
            "SELECT c.seq FROM conversations c LEFT JOIN extractions e ON e.agent_id = c.agent_id"
            " AND e.conversation_seq = c.seq WHERE c.agent_id = :agent_id AND c.removed_at IS NULL"
            " AND EXISTS (SELECT 1 FROM messages m WHERE m.agent_id = c.agent_id AND m.conversation_seq = c.seq"
            f" AND m.seq > COALESCE(e.upto_seq, -1)) AND {OWN_AGENT} ORDER BY c.seq",
            agent_id=agent_id,
        )
        return [int(row[0]) for row in rows]

    def count_line_tries(self, agent_id: AgentId, conversation_seq: int, *, at: datetime) -> int:
        """Count a failed extraction of a conversation; return how many failed since it moved on. Raises: NotFound."""
        rows = self._rows(
            "INSERT INTO extractions (agent_id, conversation_seq, upto_seq, extracted_at, tries)"
            f" SELECT :agent_id, :conversation_seq, -1, :at, 1 WHERE {OWN_AGENT}"
            " ON CONFLICT (agent_id, conversation_seq) DO UPDATE SET tries = extractions.tries + 1 RETURNING tries",
            agent_id=agent_id,
            conversation_seq=conversation_seq,
            at=iso(at),
        )
        return int(first(rows, "agent", agent_id)[0])

    def put_last_seq(self, agent_id: AgentId, conversation_seq: int, upto_seq: int, *, at: datetime) -> None:
        """Store the number of the last message that extraction has read, see `last_seq`. Raises: NotFound."""
        self._put_upto("extractions", "extracted_at", agent_id, conversation_seq, upto_seq, at, resets="tries")

    def _read(self, where: str, *, index: str = "", **params: object) -> Sequence[Episode]:
        """Read the episodes of a graph that an SQL condition selects; `index` names the index to use."""
        source = f"episodes{self._db.by_index(index) if index else ''}"
        sql = f"SELECT {_EPISODE.columns} FROM {source} WHERE graph_id = :graph_id AND {OWN_GRAPH} AND {where}"
        return self._all(_EPISODE, sql, **params)
