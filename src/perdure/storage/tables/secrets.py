"""`tx.secrets`: secrets, whose values the caller has encrypted."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import OrgId
from perdure.core.limits import DEFAULT_LIMITS, Limits
from perdure.core.secrets import ORGANISATION, Secret
from perdure.core.text.words import storable
from perdure.storage.database.base import OWN_AGENT, Database, Row, from_iso, iso

_COLUMNS = "owner_id, name, value, created_at, updated_at"


class Secrets:
    def __init__(self, db: Database, org_id: OrgId, limits: Limits = DEFAULT_LIMITS) -> None:
        self._db, self._org_id, self._limits = db, org_id, limits

    def put(self, owner_id: str, name: str, sealed: bytes, *, at: datetime) -> Secret:
        """Create or update a secret. Raises: NotFound: no such agent."""
        owned = "" if owner_id == ORGANISATION else f" AND {OWN_AGENT}"
        rows = self._db.rows(
            "INSERT INTO secrets (org_id, owner_id, name, value, created_at, updated_at)"
            f" SELECT :org_id, :agent_id, :name, :value, :at, :at WHERE 1 = 1{owned}"
            " ON CONFLICT (org_id, owner_id, name) DO UPDATE SET value = excluded.value,"
            f" updated_at = excluded.updated_at RETURNING {_COLUMNS}",
            self._params(owner_id, name) | {"value": base64.b64encode(sealed).decode(), "at": iso(at)},
        )
        if not rows:
            raise NotFound("agent", owner_id)
        if rows[0][3] == rows[0][4]:  # it is new
            counted = "SELECT COUNT(*) FROM secrets WHERE org_id = :org_id AND owner_id = :agent_id"
            self._limits.check("secrets_per_owner", int(self._db.rows(counted, self._params(owner_id, name))[0][0]))
        return _secret(rows[0])

    def find(self, owner_id: str, name: str) -> Secret | None:
        rows = self._db.rows(
            f"SELECT {_COLUMNS} FROM secrets WHERE org_id = :org_id AND owner_id = :agent_id AND name = :name",
            self._params(owner_id, name),
        )
        return _secret(rows[0]) if rows else None

    def list(self, owner_id: str, *, limit: int = 1_000) -> Sequence[Secret]:
        """Secrets sorted by name."""
        rows = self._db.rows(
            f"SELECT {_COLUMNS} FROM secrets WHERE org_id = :org_id AND owner_id = :agent_id ORDER BY name"
            " LIMIT :limit",
            {"org_id": self._org_id, "agent_id": storable(owner_id), "limit": limit},
        )
        return [_secret(row) for row in rows]

    def delete(self, owner_id: str, name: str) -> None:
        """Raises: NotFound."""
        if not self._db.run(
            "DELETE FROM secrets WHERE org_id = :org_id AND owner_id = :agent_id AND name = :name",
            self._params(owner_id, name),
        ):
            raise NotFound("secret", name)

    def _params(self, owner_id: str, name: str) -> dict[str, Any]:
        return {"org_id": self._org_id, "agent_id": storable(owner_id), "name": storable(name)}


def _secret(row: Row) -> Secret:
    return Secret(
        owner_id=row[0],
        name=row[1],
        sealed=base64.b64decode(row[2]),
        created_at=from_iso(row[3]),
        updated_at=from_iso(row[4]),
    )
