"""The directory: organisations, users, API keys and the audit log, of all organisations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from perdure.core.errors import AlreadyExists, NotFound
from perdure.core.ids import DEFAULT_ORG, KeyId, OrgId, UserId
from perdure.core.incoming.limits import Limits
from perdure.core.incoming.principals import UseLimits
from perdure.features.access.values import ApiKey, AuditEntry, AuditFilter, Organisation, User
from perdure.storage.database.base import Database
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import (
    TIME,
    Codec,
    RowFormat,
    dump,
    insert_into,
    iso,
    load,
    storable,
    stored_key,
)
from perdure.storage.tables.table import Table, deleted_place, first, keep_places, place_in

_ORGANISATION = RowFormat(Organisation)
_USER = RowFormat(User)


def next_numbers(db: Database, count: int) -> int:
    """The first of so many numbers of the directory that nothing has had yet."""
    sql = "UPDATE counters SET value = value + :count WHERE name = 'directory' RETURNING value"
    return int(db.rows(sql, {"count": count})[0][0]) - count + 1


_ENDED = "revoked_at = COALESCE(revoked_at, created_at), start = '', digest = id, user_id = NULL"
"""What is left of a key whose owner is deleted: a line that says nothing of it."""


class OrganisationRows:
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
        return self._first("id = :id", id=stored_key(org_id))

    def get(self, org_id: OrgId) -> Organisation:
        """Raises: NotFound."""
        if (found := self.find(org_id)) is None:
            raise NotFound("org", org_id)
        return found

    def find_by_name(self, name: str) -> Organisation | None:
        """The organisation of this name that is not being removed."""
        return self._first("name = :name AND deleted_at IS NULL", name=stored_key(name))

    def list(self, *, after: OrgId | None = None, limit: int = 50) -> Sequence[Organisation]:
        """In the order of creation, those that are being removed included. Raises: NotFound: the one of the cursor."""
        where = Conditions("1 = 1")
        if after is not None:
            rows = self._db.rows("SELECT number FROM organisations WHERE id = :id", {"id": stored_key(after)})
            rows = rows or deleted_place(self._db, DEFAULT_ORG, after, ("number",))
            where.between("number", first(rows, "org", after)[0], None)
        sql = f"SELECT {_ORGANISATION.columns} FROM organisations WHERE {where} ORDER BY number, id LIMIT :limit"
        return [_ORGANISATION.read(row) for row in self._db.rows(sql, {"limit": limit, **where.params})]

    def mark_deleted(self, org_id: OrgId, *, at: datetime) -> None:
        """From now on it is being removed. Doing so twice is no error. Raises: NotFound."""
        self.get(org_id)
        sql = "UPDATE organisations SET deleted_at = :at WHERE id = :id AND deleted_at IS NULL"
        self._db.run(sql, {"id": org_id, "at": iso(at)})

    def delete(self, org_id: OrgId) -> None:
        """Delete its row, users, keys, audit log and counts, once nothing else is left of it. The last key of the whole
        store leaves a line in the default organisation: without any keys a server would be open."""
        own = {"id": stored_key(org_id)}
        if (found := self.find(org_id)) is not None:
            keep_places(self._db, DEFAULT_ORG, {org_id: {"number": found.number}})
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
        self._db.run("DELETE FROM organisations WHERE id = :id", own)

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
        return self._first("id = :id", org_id, id=stored_key(user_id))

    def get(self, org_id: OrgId, user_id: UserId) -> User:
        """Raises: NotFound."""
        if (found := self.find(org_id, user_id)) is None:
            raise NotFound("user", user_id)
        return found

    def find_by_name(self, org_id: OrgId, name: str) -> User | None:
        return self._first("name = :name", org_id, name=stored_key(name))

    def list(self, org_id: OrgId, *, after: UserId | None = None, limit: int = 50) -> Sequence[User]:
        """In the order of creation."""
        where = Conditions("org_id = :org_id", org_id=stored_key(org_id))
        if after is not None:
            where.between("number", place_in(self._db, org_id, "user", "users", ("number",), after)[0], None)
        sql = f"SELECT {_USER.columns} FROM users WHERE {where} ORDER BY number LIMIT :limit"
        return [_USER.read(row) for row in self._db.rows(sql, {**where.params, "limit": limit})]

    def count(self, org_id: OrgId) -> int:
        sql = "SELECT COUNT(*) FROM users WHERE org_id = :org_id"
        return int(self._db.rows(sql, {"org_id": stored_key(org_id)})[0][0])

    def delete(self, org_id: OrgId, user_id: UserId) -> None:
        """Delete a user. The user's keys count no more, and keep a line that says nothing of the user: without any keys
        a server would be open. Raises: NotFound."""
        keep_places(self._db, org_id, {user_id: {"number": self.get(org_id, user_id).number}})
        params = {"org_id": org_id, "id": user_id}
        keys = "SELECT id FROM api_keys WHERE org_id = :org_id AND user_id = :id"
        self._db.run(f"DELETE FROM used WHERE org_id = :org_id AND owner_id IN ({keys})", params)
        self._db.run(
            f"UPDATE api_keys SET {_ENDED}, name = 'of a deleted user' WHERE org_id = :org_id AND user_id = :id", params
        )
        self._db.run("DELETE FROM users WHERE org_id = :org_id AND id = :id", params)

    def _first(self, where: str, org_id: OrgId, **params: str) -> User | None:
        sql = f"SELECT {_USER.columns} FROM users WHERE org_id = :org_id AND {where}{self._db.for_update}"
        rows = self._db.rows(sql, {**params, "org_id": stored_key(org_id)})
        return _USER.read(rows[0]) if rows else None


USE_S = 60
"""The time of the last use is written at most this often."""

_LIMITS = Codec(lambda limits: dump(limits.some), lambda text: UseLimits(**load(text)))
_KEY = RowFormat(ApiKey, {_LIMITS: "limits"})


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
        rows = self._db.rows(sql, {"org_id": stored_key(org_id), "id": stored_key(key_id)})
        if not rows:
            raise NotFound("key", key_id)
        return _KEY.read(rows[0])

    def list(
        self, org_id: OrgId, *, user_id: UserId | None = None, after: KeyId | None = None, limit: int = 50
    ) -> Sequence[ApiKey]:
        """In the order of creation, those of one user if one is given; revoked ones included."""
        where = Conditions("org_id = :org_id", org_id=stored_key(org_id))
        where.equal("user_id", user_id)
        if after is not None:
            where.between("number", place_in(self._db, org_id, "key", "api_keys", ("number",), after)[0], None)
        sql = f"SELECT {_KEY.columns} FROM api_keys WHERE {where} ORDER BY number LIMIT :limit"
        return [_KEY.read(row) for row in self._db.rows(sql, {**where.params, "limit": limit})]

    def count(self, org_id: OrgId) -> int:
        sql = "SELECT COUNT(*) FROM api_keys WHERE org_id = :org_id"
        return int(self._db.rows(sql, {"org_id": stored_key(org_id)})[0][0])

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
            [{"id": stored_key(key_id), "at": iso(at), "before": before} for key_id in sorted(set(key_ids))],
        )


_ENTRY = RowFormat(
    AuditEntry,
    {TIME: "created_at"},
    columns="seq, org_id, created_at, user_id, key_id, action, object_id, trace_id",
    attributes={"created_at": lambda entry: entry.at},
    build=lambda created_at, **values: AuditEntry(at=created_at, **values),
)


class AuditLog:
    """The audit log of all organisations."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, entries: Sequence[AuditEntry]) -> None:
        """Append entries; they are numbered in this order."""
        if not entries:
            return
        first = next_numbers(self._db, len(entries))
        self._db.run_many(
            insert_into("audit_entries", _ENTRY.columns),
            [{**_ENTRY.params(entry), "seq": first + place} for place, entry in enumerate(entries)],
        )

    def page(
        self, org_id: OrgId, where: AuditFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[AuditEntry]:
        """Newest first; `before` is the number of the last one of the page before."""
        conditions = Conditions("org_id = :org_id", org_id=storable(org_id))
        conditions.equal("user_id", where.user_id)
        conditions.equal("key_id", where.key_id)
        conditions.equal("object_id", where.object_id)
        conditions.contain("action", where.action)
        conditions.between("seq", None, before)
        sql = f"SELECT {_ENTRY.columns} FROM audit_entries WHERE {conditions} ORDER BY seq DESC LIMIT :limit"
        return [_ENTRY.read(row) for row in self._db.rows(sql, {**conditions.params, "limit": limit})]

    def trim(self, *, before: datetime, limit: int) -> int:
        """Delete entries of all organisations that are older, at most so many; return how many."""
        sql = (
            "DELETE FROM audit_entries WHERE seq IN"
            " (SELECT seq FROM audit_entries WHERE created_at < :before ORDER BY seq LIMIT :limit)"
        )
        return self._db.run_counted(sql, {"before": iso(before), "limit": limit})


class Directory(Table):
    """What is read before anybody knows the organisation of a request: the nouns of all organisations, which hold
    nothing of memory."""

    def __init__(self, db: Database, org_id: OrgId, limits: Limits) -> None:
        super().__init__(db, org_id, limits)
        self.organisations = OrganisationRows(db)
        self.users = Users(db)
        self.keys = Keys(db)
        self.audit = AuditLog(db)

    def trim_used(self, *, before: str) -> int:
        """Delete what keys and agents have used in periods before this one; return how many rows these were."""
        return self._run_counted("DELETE FROM used WHERE period < :before", before=before)
