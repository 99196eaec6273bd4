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
    """Reserve `count` numbers for new organisations, users, keys or log entries, and return the first one."""
    sql = "UPDATE counters SET value = value + :count WHERE name = 'directory' RETURNING value"
    return int(db.rows(sql, {"count": count})[0][0]) - count + 1


class _Noun(NumberedTable[T]):
    def add(self, new: T) -> T:
        """Store `new` under the next number; return it with that."""
        numbered = replace(new, number=next_numbers(self._db, 1))
        self._db.run(insert_into(self._source, self._format.columns), self._format.params(numbered))
        return numbered

    def count(self) -> int:
        """How many rows the organisation has."""
        return int(self._value(f"SELECT COUNT(*) FROM {self._source} WHERE org_id = :org_id"))

    def list(self, *, after: str | None = None, limit: int = 50) -> Sequence[T]:
        """The rows that were created after the one of the id `after`, oldest first. Raises: NotFound: no row had it."""
        return self._list(Conditions("1 = 1"), after, limit)

    def _list(self, where: Conditions, after: str | None, limit: int) -> Sequence[T]:
        """Return a page of rows after the one with the id `after`."""
        above = None if after is None else self.number(after)
        return self._in_window(where, {"above": above, "limit": limit})

    def _keep_place(self, org_id: OrgId, row: T) -> None:
        """Note the number of a row that is about to be deleted: whoever lists page by page may go on after it."""
        keep_places(self._db, org_id, {row.id: {"number": row.number}})


class Organisations(_Noun[Organisation]):
    """All organisations of the store, whichever a transaction is of, also those that are being removed."""

    _kind, _source, _format, _in_org = "org", "organisations", RowFormat(Organisation), "1 = 1"

    def add(self, organisation: Organisation) -> Organisation:
        """Store a new organisation. Raises: AlreadyExists: another one has its id or its name."""
        if self.find_by_name(organisation.name) is not None or self.find(organisation.id) is not None:
            raise AlreadyExists("organisation", organisation.name)
        return super().add(organisation)

    def find(self, org_id: OrgId) -> Organisation | None:
        return self._find("id = :id", id=stored_key(org_id))

    def find_by_name(self, name: str) -> Organisation | None:
        """The organisation of this name that is not being removed."""
        return self._find("name = :name AND deleted_at IS NULL", name=stored_key(name))

    def number(self, id_: str) -> int:
        """The place of an organisation in the order of creation, also of a deleted one. Raises: NotFound."""
        rows = self._rows("SELECT number FROM organisations WHERE id = :id", id=stored_key(id_))
        return int(first(rows or deleted_place(self._db, DEFAULT_ORG, id_, ("number",)), "org", id_)[0])

    def mark_deleted(self, org_id: OrgId, *, at: datetime) -> None:
        """Note that an organisation is being removed since `at`; a second time changes nothing. Raises: NotFound."""
        self.get(org_id)
        sql = "UPDATE organisations SET deleted_at = :at WHERE id = :id AND deleted_at IS NULL"
        self._run(sql, id=org_id, at=iso(at))

    def delete(self, org_id: OrgId) -> None:
        """Delete an organisation's row, users, keys, audit log and counts, once nothing else is left of it. If it had
        the last keys of the store, one row stays, of the default organisation: without any keys a server is open."""
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
        """Store a new user. Raises: AlreadyExists: a user of the organisation has the name."""
        if self.find_by_name(user.name) is not None:
            raise AlreadyExists("user", user.name)
        return super().add(user)

    def find_by_name(self, name: str) -> User | None:
        return self._find("name = :name", name=stored_key(name))

    def delete(self, user_id: UserId) -> None:
        """Delete a user. Rows of the user's keys stay, revoked and without any trace of the user: if a store had no
        keys at all its server would be open. Raises: NotFound."""
        self._keep_place(self._org_id, self.get(user_id))
        keys = "SELECT id FROM api_keys WHERE org_id = :org_id AND user_id = :id"
        self._run(f"DELETE FROM used WHERE org_id = :org_id AND owner_id IN ({keys})", id=user_id)
        self._run(
            f"UPDATE api_keys SET {_ENDED}, name = 'of a deleted user' WHERE org_id = :org_id AND user_id = :id",
            id=user_id,
        )
        self._run("DELETE FROM users WHERE org_id = :org_id AND id = :id", id=user_id)


class Keys(_Noun[ApiKey]):
    """The API keys of an organisation, without their texts; what is about all organisations says so."""

    _kind, _source = "key", "api_keys"
    _format = RowFormat(ApiKey, {Codec(lambda own: dump(own.present), lambda text: UseLimits(**load(text))): "limits"})

    def find_by_digest(self, digest: str) -> ApiKey | None:
        """The key of any organisation that is not being removed, also one that is revoked or expired."""
        return self._one(
            self._format,
            f"SELECT {self._format.columns_of('k')} FROM api_keys k JOIN organisations o ON o.id = k.org_id"
            " WHERE k.digest = :digest AND o.deleted_at IS NULL",
            digest=digest,
        )

    def list(self, *, user_id: UserId | None = None, after: str | None = None, limit: int = 50) -> Sequence[ApiKey]:
        """Keys created after `after`, oldest first, revoked ones too; `user_id`: only that user's. Raises: NotFound."""
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
        """Revoke a key from `at` on, and return it; one that is revoked already keeps its time. Raises: NotFound."""
        key = self.get(key_id)
        if key.revoked_at is None:
            key = replace(key, revoked_at=at)
            self._update(key, "revoked_at")
        return key

    def delete(self, key_id: KeyId) -> None:
        """Delete a key with the counts of what it used. Raises: NotFound."""
        self._keep_place(self._org_id, self.get(key_id))
        self._run("DELETE FROM used WHERE org_id = :org_id AND owner_id = :id", id=key_id)
        self._run("DELETE FROM api_keys WHERE org_id = :org_id AND id = :id", id=key_id)

    def touch(self, key_ids: Sequence[KeyId], *, at: datetime) -> None:
        """Note that these keys, of any organisations, were used at `at`, but at most every `USE_S` for each key."""
        before = iso(at - timedelta(seconds=USE_S))
        self._db.run_many(
            "UPDATE api_keys SET last_used_at = :at WHERE id = :id"
            " AND (last_used_at IS NULL OR last_used_at <= :before)",
            [{"id": stored_key(key_id), "at": iso(at), "before": before} for key_id in sorted(set(key_ids))],
        )

    def trim_used(self, *, before: str) -> int:
        """Delete usage counts from periods before this one, such as `2026-01-31`; return how many."""
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
        numbered = enumerate(entries, next_numbers(self._db, len(entries)))
        rows = [{**_ENTRY.params(entry), "seq": seq} for seq, entry in numbered]
        self._db.run_many(insert_into("audit_entries", _ENTRY.columns), rows)

    def page(self, where: AuditFilter, *, before: int | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        """The entries that fit `where`, newest first; `before` is the `seq` of the last entry of the page before."""
        conditions = Conditions("org_id = :org_id")
        conditions.equal("user_id", where.user_id)
        conditions.equal("key_id", where.key_id)
        conditions.equal("object_id", where.object_id)
        conditions.contain("action", where.action)
        conditions.between("seq", None, before)
        sql = f"SELECT {_ENTRY.columns} FROM audit_entries WHERE {conditions} ORDER BY seq DESC LIMIT :limit"
        return self._all(_ENTRY, sql, limit=limit, **conditions.params)

    def trim(self, *, before: datetime, limit: int) -> int:
        """Delete up to `limit` of the oldest entries of all organisations, older than `before`; return how many."""
        sql = (
            "DELETE FROM audit_entries WHERE seq IN"
            " (SELECT seq FROM audit_entries WHERE created_at < :before ORDER BY seq LIMIT :limit)"
        )
        return self._run_counted(sql, before=iso(before), limit=limit)
