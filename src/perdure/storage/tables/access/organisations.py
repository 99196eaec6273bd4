"""`directory.organisations` and `directory.users`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from perdure.core.access.values import Organisation, User
from perdure.core.errors import AlreadyExists, NotFound
from perdure.core.ids import DEFAULT_ORG, OrgId, UserId
from perdure.storage.database.base import Database
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import TEXT, TIME, RowFormat, insert_into, iso, storable
from perdure.storage.tables.table import keep_places, place_in

_ORGANISATION = RowFormat(
    Organisation, "id, number, name, created_at, deleted_at", {TEXT: "name", TIME: "created_at deleted_at"}
)
_USER = RowFormat(User, "id, org_id, number, name, created_at", {TEXT: "name", TIME: "created_at"})


def next_numbers(db: Database, count: int) -> int:
    """The first of so many numbers of the directory that nothing has had yet."""
    sql = "UPDATE counters SET value = value + :count WHERE name = 'directory' RETURNING value"
    return int(db.rows(sql, {"count": count})[0][0]) - count + 1


_ENDED = "revoked_at = COALESCE(revoked_at, created_at), start = '', digest = id, user_id = NULL"
"""What is left of a key whose owner is deleted: a line that says nothing of it."""


class Organisations:
    """All organisations of the store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, organisation: Organisation) -> Organisation:
        """Raises: AlreadyExists: one has the id or the name."""
        if self.find_by_name(organisation.name) is not None or self.find(organisation.id) is not None:
            raise AlreadyExists("organisation", organisation.name)
        organisation = replace(organisation, number=next_numbers(self._db, 1))
        self._db.run(insert_into("organisations", _ORGANISATION.columns), _ORGANISATION.params(organisation))
        return organisation

    def find(self, org_id: OrgId) -> Organisation | None:
        return self._first("id = :id", id=storable(org_id))

    def get(self, org_id: OrgId) -> Organisation:
        """Raises: NotFound."""
        if (found := self.find(org_id)) is None:
            raise NotFound("org", org_id)
        return found

    def find_by_name(self, name: str) -> Organisation | None:
        """The organisation of this name that is not being removed."""
        return self._first("name = :name AND deleted_at IS NULL", name=storable(name))

    def list(self, *, after: OrgId | None = None, limit: int = 50) -> Sequence[Organisation]:
        """In the order of creation, those that are being removed included."""
        first = "" if after is None else "WHERE number > (SELECT number FROM organisations WHERE id = :after)"
        sql = f"SELECT {_ORGANISATION.columns} FROM organisations {first} ORDER BY number, id LIMIT :limit"
        rows = self._db.rows(sql, {"limit": limit} | ({} if after is None else {"after": storable(after)}))
        return [_ORGANISATION.read(row) for row in rows]

    def mark_deleted(self, org_id: OrgId, *, at: datetime) -> None:
        """From now on it is being removed. Doing so twice is no error. Raises: NotFound."""
        self.get(org_id)
        sql = "UPDATE organisations SET deleted_at = :at WHERE id = :id AND deleted_at IS NULL"
        self._db.run(sql, {"id": org_id, "at": iso(at)})

    def delete(self, org_id: OrgId) -> None:
        """Delete its row, users, keys, audit log and counts, once nothing else is left of it. The last key of the whole
        store leaves a line in the default organisation: without any keys a server would be open."""
        own = {"id": storable(org_id)}
        self._db.run(
            "DELETE FROM api_keys WHERE org_id = :id AND (EXISTS (SELECT 1 FROM api_keys WHERE org_id <> :id)"
            " OR number > (SELECT MIN(number) FROM api_keys WHERE org_id = :id))",
            own,
        )
        self._db.run(
            f"UPDATE api_keys SET {_ENDED}, org_id = :default, name = 'of a deleted organisation' WHERE org_id = :id",
            {**own, "default": DEFAULT_ORG},
        )
        for table in ("users", "audit_entries", "used"):
            self._db.run(f"DELETE FROM {table} WHERE org_id = :id", own)
        self._db.run("DELETE FROM organisations WHERE id = :id", {"id": storable(org_id)})

    def _first(self, where: str, **params: str) -> Organisation | None:
        sql = f"SELECT {_ORGANISATION.columns} FROM organisations WHERE {where}{self._db.for_update}"
        rows = self._db.rows(sql, params)
        return _ORGANISATION.read(rows[0]) if rows else None


class Users:
    """The users of all organisations."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, user: User) -> User:
        """Raises: AlreadyExists: a user of the organisation has the name."""
        if self.find_by_name(user.org_id, user.name) is not None:
            raise AlreadyExists("user", user.name)
        user = replace(user, number=next_numbers(self._db, 1))
        self._db.run(insert_into("users", _USER.columns), _USER.params(user))
        return user

    def find(self, org_id: OrgId, user_id: UserId) -> User | None:
        return self._first("id = :id", org_id, id=storable(user_id))

    def get(self, org_id: OrgId, user_id: UserId) -> User:
        """Raises: NotFound."""
        if (found := self.find(org_id, user_id)) is None:
            raise NotFound("user", user_id)
        return found

    def find_by_name(self, org_id: OrgId, name: str) -> User | None:
        return self._first("name = :name", org_id, name=storable(name))

    def list(self, org_id: OrgId, *, after: UserId | None = None, limit: int = 50) -> Sequence[User]:
        """In the order of creation."""
        where = Conditions("org_id = :org_id", org_id=storable(org_id))
        if after is not None:
            where.between("number", place_in(self._db, org_id, "user", "users", ("number",), after)[0], None)
        sql = f"SELECT {_USER.columns} FROM users WHERE {where} ORDER BY number LIMIT :limit"
        return [_USER.read(row) for row in self._db.rows(sql, {**where.params, "limit": limit})]

    def count(self, org_id: OrgId) -> int:
        sql = "SELECT COUNT(*) FROM users WHERE org_id = :org_id"
        return int(self._db.rows(sql, {"org_id": storable(org_id)})[0][0])

    def delete(self, org_id: OrgId, user_id: UserId) -> None:
        """Delete a user. The user's keys count no more, and keep a line that says nothing of the user: without any keys
        a server would be open. Raises: NotFound."""
        keep_places(self._db, org_id, {user_id: {"number": self.get(org_id, user_id).number}})
        params = {"org_id": org_id, "id": user_id}
        keys = "SELECT id FROM api_keys WHERE org_id = :org_id AND user_id = :id"
        self._db.run(f"DELETE FROM used WHERE org_id = :org_id AND owner_id IN ({keys})", params)
        self._db.run(
            f"UPDATE api_keys SET {_ENDED}, name = 'of a deleted user' WHERE org_id = :org_id AND user_id = :id",
            params,
        )
        self._db.run("DELETE FROM users WHERE org_id = :org_id AND id = :id", params)

    def _first(self, where: str, org_id: OrgId, **params: str) -> User | None:
        sql = f"SELECT {_USER.columns} FROM users WHERE org_id = :org_id AND {where}{self._db.for_update}"
        rows = self._db.rows(sql, {**params, "org_id": storable(org_id)})
        return _USER.read(rows[0]) if rows else None
