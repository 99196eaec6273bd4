"""The removal of everything that an organisation has, in bounded transactions."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.core.ids import AgentId, OrgId
from perdure.storage.database.base import Database
from perdure.storage.tables.agents import Agents
from perdure.storage.tables.table import OwnId
from perdure.storage.upkeep.deleted import CHARS, carry_out_delete, delete_graph, delete_group, delete_shared

_SHARED = ("folders", "archives", "blocks", "tools", "identities")

_PARTS: Mapping[str, tuple[str, str]] = {
    "file_uploads": ("file_id", "SELECT id FROM files WHERE org_id = :org_id"),
    "file_parts": ("file_id", "SELECT id FROM files WHERE org_id = :org_id"),
    "file_pages": ("file_id", "SELECT id FROM files WHERE org_id = :org_id"),
    "agent_files": ("file_id", "SELECT id FROM files WHERE org_id = :org_id"),
    "mcp_tools": ("server_id", "SELECT id FROM mcp_servers WHERE org_id = :org_id"),
}
"""Table -> its column that names a row of the organisation, and these rows."""

_REST = (
    *("files", "mcp_servers", "providers", "secrets", "sandbox_variables", "sandbox_configs", "token_factors"),
    *("model_traits", "batches", "runs", "vector_scopes", "ids"),
)
"""What is left after everything that has parts."""


def remove_some(db: Database, org_id: OrgId, *, limit: int) -> bool:
    """Remove some of what the organisation has. False: nothing is left."""
    if carry_out_delete(db, org_id, limit=limit, chars=CHARS):
        return True
    if agents := _ids(db, org_id, "agents"):
        Agents(db, org_id).delete(AgentId(agents[0]))
        return True
    for table, delete in (("groups", delete_group), ("graphs", delete_graph)):
        if ids := _ids(db, org_id, table):
            delete(db, org_id, OwnId(ids[0]))
            return True
    for table in _SHARED:
        if ids := _ids(db, org_id, table):
            delete_shared(db, org_id, table, OwnId(ids[0]))
            return True
    for table, (column, rows) in _PARTS.items():
        some = f"SELECT {column} FROM {table} WHERE {column} IN ({rows}) LIMIT 1"
        if db.run_counted(f"DELETE FROM {table} WHERE {column} IN ({some})", {"org_id": org_id}):
            return True
    return any(db.run_counted(f"DELETE FROM {table} WHERE org_id = :org_id", {"org_id": org_id}) for table in _REST)


def _ids(db: Database, org_id: OrgId, table: str) -> list[str]:
    """The id of the first row of the organisation, if there is one."""
    rows = db.rows(f"SELECT id FROM {table} WHERE org_id = :org_id ORDER BY number LIMIT 1", {"org_id": org_id})
    return [row[0] for row in rows]
