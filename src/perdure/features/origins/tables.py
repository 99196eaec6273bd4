"""Texts that are being removed from the store, and all writes of an agent's memory by what they came from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby

from perdure.core.ids import AgentId, RunId
from perdure.core.sources import MemoryWrite, Source
from perdure.features.origins.values import Erasure, SourceSummary
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import from_iso, restore
from perdure.storage.tables.sources import OWNERS, change_writes, read_writes
from perdure.storage.tables.table import OWN_AGENT, Table, first, own_agent, parts

_ERASURE = row_format.RowFormat(
    Erasure, {row_format.Codec(row_format.dump, lambda text: tuple(map(tuple, row_format.load(text)))): "targets"}
)
_KEY = "agent_id, number"
_PROGRESS = "text, targets, target, after, changed, passes, counts, updated_at, ended_at, owner"

_OWNED = f"owner_id IN ({OWNERS.format(agent=':agent_id', own=' AND o.org_id = :org_id')}) AND {OWN_AGENT}"


class Erasures(Table):
    """The erasures of texts, with how far each is."""

    def add(
        self, agent_id: AgentId, text: str, targets: Sequence[tuple[str, str]], *, at: datetime, owner: str = ""
    ) -> Erasure:
        """Add an erasure that begins. Raises: NotFound."""
        own = own_agent(self._db, self._org_id, agent_id, lock=True)
        number = self._next("erasures", "number", agent_id=own)
        erasure = Erasure(
            agent_id=agent_id, number=number, text=text, targets=targets, created_at=at, updated_at=at, owner=owner
        )
        self._run(row_format.insert_into("erasures", _ERASURE.columns), **_ERASURE.params(erasure))
        return erasure

    def get(self, agent_id: AgentId, number: int) -> Erasure:
        """Read an erasure and lock its row, so that processes take turns. Raises: NotFound."""
        sql = f"SELECT {_ERASURE.columns} FROM erasures WHERE agent_id = :agent_id AND number = :number AND {OWN_AGENT}"
        rows = self._rows(f"{sql}{self._db.for_update}", agent_id=agent_id, number=number)
        return _ERASURE.read(first(rows, "erasure", str(number)))

    def put(self, erasure: Erasure) -> Erasure:
        """Store the progress of an erasure."""
        self._set("erasures", _ERASURE.params(erasure, _KEY), **_ERASURE.params(erasure, _PROGRESS))
        return erasure

    def list_unended(self, agent_id: AgentId | None = None, *, limit: int = 20) -> Sequence[Erasure]:
        """The erasures that have not ended, of the agent or of all; the one with the oldest last step is first."""
        which = "" if agent_id is None else " AND e.agent_id = :agent_id"
        return self._all(
            _ERASURE,
            f"SELECT {_ERASURE.columns} FROM erasures e WHERE ended_at IS NULL{which} AND EXISTS"
            " (SELECT 1 FROM agents a WHERE a.id = e.agent_id AND a.org_id = :org_id) ORDER BY updated_at LIMIT :limit",
            limit=limit,
            **({} if agent_id is None else {"agent_id": agent_id}),
        )

    def release(self, owner: str) -> None:
        """Let any process go on with the erasures that the process `owner` carries out."""
        self._run(
            "UPDATE erasures SET owner = '' WHERE owner = :owner AND ended_at IS NULL"
            " AND EXISTS (SELECT 1 FROM agents a WHERE a.id = erasures.agent_id AND a.org_id = :org_id)",
            owner=owner,
        )

    def has_erased(self, agent_id: AgentId, *, since: datetime) -> bool:
        """Whether a text was erased from the agent's history after this time, also on behalf of another agent."""
        touched = "updated_at >= :since AND (agent_id = :agent_id OR targets LIKE :target)"
        sql = f"SELECT 1 FROM erasures WHERE {touched} AND {OWN_AGENT} LIMIT 1"
        return bool(self._rows(sql, since=row_format.iso(since), agent_id=agent_id, target=f'%"{agent_id}"%'))


class Journal(Table):
    """Writes of memory, as they are listed, and taken back."""

    def list_writes(
        self, agent_id: AgentId, source: Source | None = None, *, run_id: RunId | None = None, limit: int = 1_000
    ) -> Sequence[MemoryWrite]:
        """The writes of an agent's memory from a source, or of a run; the newest first."""
        where = Conditions(_OWNED)
        where.equal("run_id", run_id)
        if source is not None:
            where.equal("label", source.label)
            where.equal("name", source.name)
        keys = self._rows(
            f"SELECT DISTINCT owner_id, ref, created_at FROM memory_sources WHERE {where}"
            " ORDER BY created_at DESC, owner_id, ref LIMIT :limit",
            agent_id=agent_id,
            limit=limit,
            **where.params,
        )
        order = {(row[0], row[1]): place for place, row in enumerate(keys)}
        found: list[MemoryWrite] = []
        for owner_id, rows in groupby(sorted(order), key=lambda key: str(key[0])):
            for chunk in parts([row[1] for row in rows]):
                of_owner = Conditions("owner_id = :owner_id", owner_id=owner_id)
                of_owner.among("ref", chunk)
                found += read_writes(self._db, self._org_id, str(of_owner), **of_owner.params)
        return sorted(found, key=lambda write: order[write.owner_id, write.ref])

    def summarise(self, agent_id: AgentId, *, limit: int = 500) -> Sequence[SourceSummary]:
        """The sources of an agent's memory, the one with the newest write first."""
        kinds = ", ".join(
            f"SUM(CASE WHEN kind = '{kind}' AND reverted_by IS NULL THEN 1 ELSE 0 END)"
            for kind in ("block", "passage", "fact")
        )
        rows = self._rows(
            f"SELECT label, name, {kinds}, SUM(CASE WHEN reverted_by IS NULL THEN 0 ELSE 1 END), MIN(created_at),"
            f" MAX(created_at) FROM memory_sources WHERE {_OWNED} GROUP BY label, name"
            " ORDER BY MAX(created_at) DESC, label, name LIMIT :limit",
            agent_id=agent_id,
            limit=limit,
        )
        return [
            SourceSummary(
                source=Source(row[0], restore(row[1])),
                blocks=row[2],
                passages=row[3],
                facts=row[4],
                reverted=row[5],
                first_at=from_iso(row[6]),
                last_at=from_iso(row[7]),
            )
            for row in rows
        ]

    def mark_reverted(self, owner_id: str, refs: Sequence[str], reverted_by: str) -> None:
        """Note which correction took writes back. Raises: NotFound."""
        statement = "UPDATE memory_sources SET reverted_by = :reverted_by"
        change_writes(self._db, self._org_id, owner_id, refs, statement, reverted_by=reverted_by)

    def unmark_reverted(self, agent_id: AgentId, reverted_by: str) -> None:
        """Note that a correction of an agent, which took writes back, was undone."""
        self._run(
            f"UPDATE memory_sources SET reverted_by = NULL WHERE reverted_by = :reverted_by AND {OWN_AGENT}"
            " AND reverted_by LIKE :prefix",
            agent_id=agent_id,
            reverted_by=reverted_by,
            prefix=f"{agent_id}/%",
        )
