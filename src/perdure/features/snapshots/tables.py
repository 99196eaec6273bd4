"""`tx.of(Snapshots)`: the moments of agents that are kept."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from perdure.core.ids import AgentId
from perdure.features.snapshots.values import SavePoint, Snapshot
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables.table import OWN_AGENT, Table, first, own_agent


@functools.cache
def moment_adapter() -> TypeAdapter[SavePoint]:
    """What makes JSON of a moment, and reads it."""
    return TypeAdapter(SavePoint)


_MOMENT = row_format.Codec(
    lambda moment: row_format.dump(moment_adapter().dump_python(moment, mode="json")),
    lambda text: moment_adapter().validate_python(row_format.load(text)),
)
_SNAPSHOT = row_format.RowFormat(
    Snapshot,
    {_MOMENT: "body"},
    columns="agent_id, number, reason, body, note, created_by, created_at",
    attributes={"body": "moment"},
    build=lambda body, **columns: Snapshot(moment=body, **columns),
)


class Snapshots(Table):
    """The snapshots of the agents of an organisation, numbered for each agent, in one transaction."""

    def add(self, snapshot: Snapshot) -> Snapshot:
        """Add a snapshot, and return it with its number. The caller has locked the agent. Raises: NotFound."""
        own = own_agent(self._db, self._org_id, snapshot.agent_id)
        snapshot = replace(snapshot, number=self._next("snapshots", "number", agent_id=own))
        self._run(row_format.insert_into("snapshots", _SNAPSHOT.columns), **_SNAPSHOT.params(snapshot))
        return snapshot

    def get(self, agent_id: AgentId, number: int) -> Snapshot:
        """Return a snapshot. Raises: NotFound."""
        found = self._read("agent_id = :agent_id AND number = :number", 1, agent_id=agent_id, number=number)
        return first(found, "snapshot", str(number), hint="`perdure agent snapshots` lists them")

    def list(self, agent_id: AgentId, *, limit: int = 50, before: int | None = None) -> Sequence[Snapshot]:
        """The snapshots of an agent, newest first: those with a number below `before`."""
        where = Conditions("agent_id = :agent_id")
        where.add("number < ?", before)
        return self._read(str(where), limit, agent_id=agent_id, **where.params)

    def delete(self, agent_id: AgentId, number: int) -> None:
        """Delete a snapshot. Raises: NotFound."""
        sql = f"DELETE FROM snapshots WHERE agent_id = :agent_id AND number = :number AND {OWN_AGENT}"
        self._change_one("snapshot", str(number), sql, agent_id=agent_id, number=number)

    def _read(self, where: str, limit: int, **params: Any) -> Sequence[Snapshot]:
        """Snapshots, newest first."""
        sql = f"SELECT {_SNAPSHOT.columns} FROM snapshots WHERE {where} AND {OWN_AGENT}"
        return self._all(_SNAPSHOT, f"{sql} ORDER BY number DESC LIMIT :limit", limit=limit, **params)
