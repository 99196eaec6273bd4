"""The directory: organisations, and their users, API keys and audit log. Much of it is read before anybody knows the
organisation of a request, so some verbs are about all organisations, and say so. It holds nothing of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from perdure.core.errors import AlreadyExists
from perdure.core.ids import DEFAULT_ORG, KeyId, OrgId, UserId
from perdure.core.incoming.principals import UseLimits
from perdure.features.access.values import ApiKey, AuditEntry, AuditFilter, Organisation, User
from perdure.storage.database.base import Database
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import TIME, Codec, RowFormat, dump, insert_into, iso, load, stored_key
from perdure.storage.tables.table import NumberedTable, Table, deleted_place, first, keep_places

T = TypeVar("T", Organisation, User, ApiKey)

_ENDED = "revoked_at = COALESCE(revoked_at, created_at), start = '', digest = id, user_id = NULL"
"""What is left of a key whose owner is deleted: a line that says nothing of it."""
USE_S = 60
"""The time of the last use of a key is written at most this often."""


def next_numbers(db: Database, count: int) -> int:
    """The first of so many numbers of the directory that nothing has had yet."""
    sql = "UPDATE counters SET value = value + :count WHERE name = 'directory' RETURNING value"
    return int(db.rows(sql, {"count": count})[0][0]) - count + 1


class _Noun(NumberedTable[T]):
    def _add(self, new: T) -> T:
        """Add a row; what is in it."""
        numbered = replace(new, number=next_numbers(self._db, 1))
        self._db.run(insert_into(self._source, self._format.columns), self._format.params(numbered))
        return numbered

    def count(self) -> int:
        """How many the organisation has."""
        return int(self._value(f"SELECT COUNT(*) FROM {self._source} WHERE org_id = :org_id"))

    def _list(self, where: Conditions, after: str | None, limit: int) -> Sequence[T]:
        """In the order of creation. Raises: NotFound: the one of the cursor."""
        above = None if after is None else self.number(after)
        return self._between(where, above, None, newest_first=False, limit=limit)

    def _keep_place(self, org_id: OrgId, one: T) -> None:
        """Have a page that begins at this one still be found."""
        keep_places(self._db, org_id, {one.id: {"number": one.number}})


class Organisations(_Noun[Organisation]):
    """All organisations of the store, whichever a transaction is of."""

    _kind, _source, _format, _in_org = "org", "organisations", RowFormat(Organisation), "1 = 1"

    def add(self, organisation: Organisation) -> Organisation:
        """Raises: AlreadyExists: one has the id or the name."""
        if self.find_by_name(organisation.name) is not None or self.find(organisation.id) is not None:
            raise AlreadyExists("organisation", organisation.name)
        return self._add(organisation)

    def find(self, org_id: OrgId) -> Organisation | None:
        return self._find("id = :id", id=stored_key(org_id))

    def find_by_name(self, name: str) -> Organisation | None:
        """The organisation of this name that is not being removed."""
        return self._find("name = :name AND deleted_at IS NULL", name=stored_key(name))

    def number(self, id_: str) -> int:
        """The place of one in the order of creation, also of a deleted one. Raises: NotFound."""
        rows = self._rows("SELECT number FROM organisations WHERE id = :id", id=stored_key(id_))
        return int(first(rows or deleted_place(self._db, DEFAULT_ORG, id_, ("number",)), "org", id_)[0])

    def list(self, *, after: OrgId | None = None, limit: int = 50) -> Sequence[Organisation]:
        """In the order of creation, those that are being removed included. Raises: NotFound: the one of the cursor."""
        return self._list(Conditions("1 = 1"), after, limit)

    def mark_deleted(self, org_id: OrgId, *, at: datetime) -> None:
        """From now on it is being removed. Doing so twice is no error. Raises: NotFound."""
        self.get(org_id)
        sql = "UPDATE organisations SET deleted_at = :at WHERE id = :id AND deleted_at IS NULL"
        self._run(sql, id=org_id, at=iso(at))

    def delete(self, org_id: OrgId) -> None:
        """Delete its row, users, keys, audit log and counts, once nothing else is left of it. The last key of the whole
        store leaves a line in the default organisation: without any keys a server would be open."""
        own = {"id": stored_key(org_id)}
        if (found := self.find(org_id)) is not None:
            self._keep_place(DEFAULT_ORG, found)
        self._run(
            "DELETE FROM api_keys WHERE org_id = :id AND (EXISTS (SELECT 1 FROM api_keys WHERE org_id <> :id)"
            " OR number > (SELECT MIN(number) FROM api_keys WHERE org_id = :id))",
            **own,
        )
        self._run(
            f"UPDATE api_keys SET {_ENDED}, org_id = :default, name = 'of a deleted organisation' WHERE org_id = :id",
            **own,
            default=DEFAULT_ORG,
        )
        for table in ("users", "audit_entries", "used"):
            self._run(f"DELETE FROM {table} WHERE org_id = :id", **own)
        self._run("DELETE FROM organisations WHERE id = :id", **own)


class Users(_Noun[User]):
    _kind, _source, _format = "user", "users", RowFormat(User)

    def add(self, user: User) -> User:
        """Raises: AlreadyExists: a user of the organisation has the name."""
        if self.find_by_name(user.name) is not None:
            raise AlreadyExists("user", user.name)
        return self._add(user)

    def find_by_name(self, name: str) -> User | None:
        return self._find("name = :name", name=stored_key(name))

    def list(self, *, after: UserId | None = None, limit: int = 50) -> Sequence[User]:
        """In the order of creation. Raises: NotFound: the one of the cursor."""
        return self._list(Conditions("1 = 1"), after, limit)

    def delete(self, user_id: UserId) -> None:
        """Delete a user. The user's keys count no more, and keep a line that says nothing of the user: without any keys
        a server would be open. Raises: NotFound."""
        self._keep_place(self._org_id, self.get(user_id))
        keys = "SELECT id FROM api_keys WHERE org_id = :org_id AND user_id = :id"
        self._run(f"DELETE FROM used WHERE org_id = :org_id AND owner_id IN ({keys})", id=user_id)
        self._run(
            f"UPDATE api_keys SET {_ENDED}, name = 'of a deleted user' WHERE org_id = :org_id AND user_id = :id",
            id=user_id,
        )
        self._run("DELETE FROM users WHERE org_id = :org_id AND id = :id", id=user_id)


class Keys(_Noun[ApiKey]):
    """Keys without their texts."""

    _kind, _source = "key", "api_keys"
    _format = RowFormat(ApiKey, {Codec(lambda own: dump(own.present), lambda text: UseLimits(**load(text))): "limits"})

    def add(self, key: ApiKey) -> ApiKey:
        return self._add(key)

    def find_by_digest(self, digest: str) -> ApiKey | None:
        """The key of any organisation, also one that is revoked or expired; None: there is none, or its organisation is
        being removed."""
        return self._one(
            self._format,
            f"SELECT {self._format.columns_of('k')} FROM api_keys k JOIN organisations o ON o.id = k.org_id"
            " WHERE k.digest = :digest AND o.deleted_at IS NULL",
            digest=digest,
        )

    def list(self, *, user_id: UserId | None = None, after: KeyId | None = None, limit: int = 50) -> Sequence[ApiKey]:
        """In the order of creation, those of one user if one is given; revoked ones included."""
        where = Conditions("1 = 1")
        where.equal("user_id", user_id)
        return self._list(where, after, limit)

    def are_there(self) -> bool:
        """Whether any organisation has any keys, also such that count no more."""
        return bool(self._rows("SELECT 1 FROM api_keys LIMIT 1"))

    def exist(self, *, at: datetime) -> bool:
        """Whether any organisation has a key that counts at this time."""
        sql = (
            "SELECT 1 FROM api_keys k JOIN organisations o ON o.id = k.org_id WHERE k.revoked_at IS NULL"
            " AND (k.expires_at IS NULL OR k.expires_at > :at) AND o.deleted_at IS NULL LIMIT 1"
        )
        return bool(self._rows(sql, at=iso(at)))

    def revoke(self, key_id: KeyId, *, at: datetime) -> ApiKey:
        """The key does not count from this time on. Doing so twice is no error. Raises: NotFound."""
        key = self.get(key_id)
        if key.revoked_at is None:
            key = replace(key, revoked_at=at)
            self._update(key, "revoked_at")
        return key

    def delete(self, key_id: KeyId) -> None:
        """Raises: NotFound."""
        self._keep_place(self._org_id, self.get(key_id))
        self._run("DELETE FROM used WHERE org_id = :org_id AND owner_id = :id", id=key_id)
        self._run("DELETE FROM api_keys WHERE org_id = :org_id AND id = :id", id=key_id)

    def touch(self, key_ids: Sequence[KeyId], *, at: datetime) -> None:
        """Note that these keys, of any organisations, were used; less than `USE_S` after the last note nothing
        changes."""
        before = iso(at - timedelta(seconds=USE_S))
        self._db.run_many(
            "UPDATE api_keys SET last_used_at = :at WHERE id = :id"
            " AND (last_used_at IS NULL OR last_used_at <= :before)",
            [{"id": stored_key(key_id), "at": iso(at), "before": before} for key_id in sorted(set(key_ids))],
        )

    def trim_used(self, *, before: str) -> int:
        """Delete what keys and agents of all organisations have used in periods before this one; return how many rows
        these were."""
        return self._run_counted("DELETE FROM used WHERE period < :before", before=before)


_ENTRY = RowFormat(
    AuditEntry,
    {TIME: "created_at"},
    columns="seq, org_id, created_at, user_id, key_id, action, object_id, trace_id",
    attributes={"created_at": "at"},
    build=lambda created_at, **values: AuditEntry(at=created_at, **values),
)


class AuditLog(Table):
    def add(self, entries: Sequence[AuditEntry]) -> None:
        """Append entries; they are numbered in this order."""
        numbers = range(next_numbers(self._db, len(entries)), 2**63)
        rows = [{**_ENTRY.params(one), "seq": seq} for seq, one in zip(numbers, entries, strict=False)]
        self._db.run_many(insert_into("audit_entries", _ENTRY.columns), rows)

    def page(self, where: AuditFilter, *, before: int | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        """Newest first; `before` is the number of the last one of the page before."""
        conditions = Conditions("org_id = :org_id")
        conditions.equal("user_id", where.user_id)
        conditions.equal("key_id", where.key_id)
        conditions.equal("object_id", where.object_id)
        conditions.contain("action", where.action)
        conditions.between("seq", None, before)
        sql = f"SELECT {_ENTRY.columns} FROM audit_entries WHERE {conditions} ORDER BY seq DESC LIMIT :limit"
        return self._all(_ENTRY, sql, limit=limit, **conditions.params)

    def trim(self, *, before: datetime, limit: int) -> int:
        """Delete entries of all organisations that are older, at most so many; return how many."""
        sql = (
            "DELETE FROM audit_entries WHERE seq IN"
            " (SELECT seq FROM audit_entries WHERE created_at < :before ORDER BY seq LIMIT :limit)"
        )
        return self._run_counted(sql, before=iso(before), limit=limit)
