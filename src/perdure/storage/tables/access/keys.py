"""`directory.keys`: the API keys of all organisations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from perdure.core.access.values import ApiKey, Limits
from perdure.core.errors import NotFound
from perdure.core.ids import KeyId, OrgId, UserId
from perdure.storage.database.base import Database
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import TEXT, TIME, Codec, RowFormat, dump, insert_into, iso, load, storable
from perdure.storage.tables.access.organisations import next_numbers
from perdure.storage.tables.table import keep_places, place_in

USE_S = 60
"""The time of the last use is written at most this often."""

_LIMITS = Codec(lambda limits: dump(limits.some), lambda text: Limits(**load(text)))
_KEY = RowFormat(
    ApiKey,
    "id, org_id, number, user_id, name, start, digest, scope, limits, created_at, expires_at, last_used_at, revoked_at",
    {TEXT: "name start", _LIMITS: "limits", TIME: "created_at expires_at last_used_at revoked_at"},
)


class Keys:
    """Keys without their texts."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, key: ApiKey) -> ApiKey:
        key = replace(key, number=next_numbers(self._db, 1))
        self._db.run(insert_into("api_keys", _KEY.columns), _KEY.params(key))
        return key

    def find_by_digest(self, digest: str) -> ApiKey | None:
        """The key, also one that is revoked or expired; None: there is none, or its organisation is being removed."""
        rows = self._db.rows(
            f"SELECT {_KEY.columns_of('k')} FROM api_keys k JOIN organisations o ON o.id = k.org_id"
            " WHERE k.digest = :digest AND o.deleted_at IS NULL",
            {"digest": digest},
        )
        return _KEY.read(rows[0]) if rows else None

    def get(self, org_id: OrgId, key_id: KeyId) -> ApiKey:
        """Raises: NotFound."""
        sql = f"SELECT {_KEY.columns} FROM api_keys WHERE org_id = :org_id AND id = :id{self._db.for_update}"
        rows = self._db.rows(sql, {"org_id": storable(org_id), "id": storable(key_id)})
        if not rows:
            raise NotFound("key", key_id)
        return _KEY.read(rows[0])

    def list(
        self, org_id: OrgId, *, user_id: UserId | None = None, after: KeyId | None = None, limit: int = 50
    ) -> Sequence[ApiKey]:
        """In the order of creation, those of one user if one is given; revoked ones included."""
        where = Conditions("org_id = :org_id", org_id=storable(org_id))
        where.equal("user_id", user_id)
        if after is not None:
            where.between("number", place_in(self._db, org_id, "key", "api_keys", ("number",), after)[0], None)
        sql = f"SELECT {_KEY.columns} FROM api_keys WHERE {where} ORDER BY number LIMIT :limit"
        return [_KEY.read(row) for row in self._db.rows(sql, {**where.params, "limit": limit})]

    def count(self, org_id: OrgId) -> int:
        sql = "SELECT COUNT(*) FROM api_keys WHERE org_id = :org_id"
        return int(self._db.rows(sql, {"org_id": storable(org_id)})[0][0])

    def are_there(self) -> bool:
        """Whether there are any keys, also such that count no more."""
        return bool(self._db.rows("SELECT 1 FROM api_keys LIMIT 1", {}))

    def exist(self, *, at: datetime) -> bool:
        """Whether any organisation has a key that counts at this time."""
        sql = (
            "SELECT 1 FROM api_keys k JOIN organisations o ON o.id = k.org_id WHERE k.revoked_at IS NULL"
            " AND (k.expires_at IS NULL OR k.expires_at > :at) AND o.deleted_at IS NULL LIMIT 1"
        )
        return bool(self._db.rows(sql, {"at": iso(at)}))

    def revoke(self, org_id: OrgId, key_id: KeyId, *, at: datetime) -> ApiKey:
        """The key does not count from this time on. Doing so twice is no error. Raises: NotFound."""
        self.get(org_id, key_id)
        sql = "UPDATE api_keys SET revoked_at = :at WHERE org_id = :org_id AND id = :id AND revoked_at IS NULL"
        self._db.run(sql, {"org_id": org_id, "id": key_id, "at": iso(at)})
        return self.get(org_id, key_id)

    def delete(self, org_id: OrgId, key_id: KeyId) -> None:
        """Raises: NotFound."""
        self.get(org_id, key_id)
        place = place_in(self._db, org_id, "key", "api_keys", ("number",), key_id)
        keep_places(self._db, org_id, {key_id: {"number": place[0]}})
        self._db.run("DELETE FROM used WHERE org_id = :org_id AND owner_id = :id", {"org_id": org_id, "id": key_id})
        self._db.run("DELETE FROM api_keys WHERE org_id = :org_id AND id = :id", {"org_id": org_id, "id": key_id})

    def touch(self, key_ids: Sequence[KeyId], *, at: datetime) -> None:
        """Note that these keys were used; less than `USE_S` after the last note nothing changes."""
        before = iso(at - timedelta(seconds=USE_S))
        self._db.run_many(
            "UPDATE api_keys SET last_used_at = :at WHERE id = :id"
            " AND (last_used_at IS NULL OR last_used_at <= :before)",
            [{"id": storable(key_id), "at": iso(at), "before": before} for key_id in sorted(set(key_ids))],
        )
