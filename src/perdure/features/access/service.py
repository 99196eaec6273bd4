"""The administration of a store: organisations, users, API keys, and the audit log.

It works on the store alone, so commands need no engine. What an administrator does is noted in the audit log, in the
transaction that does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from perdure.app import App, open_object_store, open_store
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.features import Point
from perdure.core.ids import DEFAULT_ORG, Ids, KeyId, OrgId, UserId, Uuids, is_id
from perdure.core.incoming.principals import LOCAL, Principal, Scope, UseLimits
from perdure.core.ports import Clock, FileContents, folder_of
from perdure.core.text.forms import name_form
from perdure.engine.ports import SystemClock
from perdure.features.access.directory import AuditLog, Keys, Organisations, Users
from perdure.features.access.values import (
    KEY_BYTES,
    KEYS_PER_ORGANISATION,
    START_CHARS,
    USERS_PER_ORGANISATION,
    ApiKey,
    AuditEntry,
    AuditFilter,
    Organisation,
    User,
    check_name,
    digest_of,
    is_key,
    key_text,
)
from perdure.library.parts.part import reads, writes
from perdure.settings import Settings
from perdure.storage.store import Store
from perdure.storage.tx import Tx

TRIMMED_AT_ONCE = 1_000

CLOCK_SKEW = timedelta(days=1)
"""How far the clock of an object store may be ahead."""

KEY_KEPT_S = 3.0
"""How long a server goes on with what it knows of a key."""

LAST_WRITES_S = KEY_KEPT_S + 2
"""How long after the deletion of an organisation a server may still begin to write for one of its keys."""

ORGANISATION_REMOVED: Point[[OrgId], None] = Point("organisation_removed")
"""All of a deleted organisation in the store was removed; what lies outside of it is left. Called in a thread."""


class Access:
    """What an administrator, `principal`, may do with organisations, users and keys, and the audit log of that.

    Args:
        principal: who does it, for the log; users, keys and log are those of this principal's organisation.
        trace_id: the id of the request that asks for it; empty: a command does.
    """

    def __init__(self, store: Store, clock: Clock, ids: Ids, principal: Principal, *, trace_id: str = "") -> None:
        self._store, self._clock, self._ids = store.for_organisation(principal.org_id), clock, ids
        self._principal, self._trace_id = principal, trace_id

    @classmethod
    def of(cls, app: App, principal: Principal, trace_id: str = "") -> Access:
        """Return the operations of `principal` on the store of `app`."""
        return cls(app.shared.store, app.ports.clock, app.ports.ids, principal, trace_id=trace_id)

    def within(self, org_id: OrgId) -> Access:
        """Return the operations of the same administrator on another organisation."""
        principal = replace(self._principal, org_id=org_id)
        return Access(self._store, self._clock, self._ids, principal, trace_id=self._trace_id)

    # --- organisations

    @writes
    def create_organisation(self, tx: Tx, name: str) -> Organisation:
        """Create an organisation. Raises: AlreadyExists: its name is taken; InvalidInput."""
        name = check_name("an organisation", name)
        new = Organisation(id=OrgId(self._ids.new("org")), name=name, created_at=self._clock.now())
        self._note(tx, "organisation.create", new.id)
        return tx.of(Organisations).add(new)

    @reads
    def organisation(self, tx: Tx, name_or_id: str) -> Organisation:
        """The organisation of this name or id. Raises: NotFound."""
        if is_id("org", name_or_id):
            return tx.of(Organisations).get(OrgId(name_or_id))
        if (found := tx.of(Organisations).find_by_name(name_or_id)) is None:
            raise NotFound("org", name_or_id, hint="`perdure org list` shows all")
        return found

    @reads
    def organisations(self, tx: Tx, *, after: OrgId | None = None, limit: int = 50) -> Sequence[Organisation]:
        """Organisations in the order of creation, those that are being removed included."""
        return tx.of(Organisations).list(after=after, limit=limit)

    @writes
    def delete_organisation(self, tx: Tx, org_id: OrgId) -> None:
        """Begin to remove an organisation with everything in it: no key of it counts from now on, and servers and
        `remove_organisation` do the rest. Raises: NotFound; InvalidInput: it is the default one."""
        if org_id == DEFAULT_ORG:
            raise InvalidInput("the default organisation can't be deleted: delete its agents instead")
        tx.of(Organisations).mark_deleted(org_id, at=self._clock.now())
        self._note(tx, "organisation.delete", org_id)

    async def remove_organisation(self, org_id: OrgId, settings: Settings) -> None:
        """Remove all of a deleted organisation, as the function of this name; it takes `LAST_WRITES_S` at least."""
        contents, is_left = open_object_store(settings.files), True
        while is_left:
            wait_s = await remove_organisation(self._store, org_id, contents, clock=self._clock)
            await asyncio.sleep(wait_s)
            is_left = wait_s > 0

    # --- users

    @writes
    def create_user(self, tx: Tx, name: str) -> User:
        """Create a user. Raises: AlreadyExists: the name is taken; InvalidInput."""
        name, org_id = check_name("a user", name), self._principal.org_id
        new = User(id=UserId(self._ids.new("user")), org_id=org_id, name=name, created_at=self._clock.now())
        tx.of(Organisations).get(org_id)
        if tx.of(Users).count() >= USERS_PER_ORGANISATION:
            raise InvalidInput(f"an organisation has at most {USERS_PER_ORGANISATION:,} users: delete some")
        self._note(tx, "user.create", new.id)
        return tx.of(Users).add(new)

    @reads
    def user(self, tx: Tx, name_or_id: str) -> User:
        """The user of this name or id. Raises: NotFound."""
        if is_id("user", name_or_id):
            return tx.of(Users).get(UserId(name_or_id))
        if (found := tx.of(Users).find_by_name(name_or_id)) is None:
            raise NotFound("user", name_or_id, hint="`perdure user list` shows all")
        return found

    @reads
    def users(self, tx: Tx, *, after: UserId | None = None, limit: int = 50) -> Sequence[User]:
        """Users in the order of creation."""
        return tx.of(Users).list(after=after, limit=limit)

    @writes
    def delete_user(self, tx: Tx, user_id: UserId) -> None:
        """Delete a user and the user's keys; what the user wrote keeps the id, which nobody has. Raises: NotFound."""
        tx.of(Users).delete(user_id)
        self._note(tx, "user.delete", user_id)

    # --- keys

    @reads
    def has_keys(self, tx: Tx) -> bool:
        """Whether the store has any keys, of whatever organisation, also such that count no more."""
        return tx.of(Keys).are_there()

    @writes
    def create_key(
        self,
        tx: Tx,
        name: str,
        scope: Scope,
        *,
        user_id: UserId | None = None,
        expires_at: datetime | None = None,
        limits: UseLimits | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key; return the key, and its text, which is stored nowhere and can't be had again. Raises: NotFound:
        the user; InvalidInput: it would have expired already."""
        now, text = self._clock.now(), key_text(secrets.token_bytes(KEY_BYTES))
        if expires_at is not None and (expires_at.tzinfo is None or expires_at <= now):
            raise InvalidInput(f"the key would expire at {expires_at}: give a moment to come, with its time zone")
        new = ApiKey(
            id=KeyId(self._ids.new("key")),
            org_id=self._principal.org_id,
            user_id=user_id,
            name=check_name("a key", name),
            start=text[:START_CHARS],
            digest=digest_of(text),
            scope=scope,
            limits=limits or UseLimits(),
            created_at=now,
            expires_at=expires_at,
        )
        tx.of(Organisations).get(new.org_id)
        if user_id is not None:
            tx.of(Users).get(user_id)
        if tx.of(Keys).count() >= KEYS_PER_ORGANISATION:
            raise InvalidInput(f"an organisation has at most {KEYS_PER_ORGANISATION:,} keys: delete some")
        self._note(tx, "key.create", new.id)
        return tx.of(Keys).add(new), text

    @reads
    def key(self, tx: Tx, name_or_id: str) -> ApiKey:
        """The key of this id, or the only one of this name. Raises: NotFound; InvalidInput: several have the name."""
        if is_id("key", name_or_id):
            return tx.of(Keys).get(KeyId(name_or_id))
        found = tx.of(Keys).list(limit=KEYS_PER_ORGANISATION)
        named = [one for one in found if one.name == name_form(name_or_id)]
        if len(named) > 1:
            ids = ", ".join(one.id for one in named)
            raise InvalidInput(f"{len(named)} keys are named {name_or_id!r}: give an id, {ids}")
        if not named:
            raise NotFound("key", name_or_id, hint="`perdure key list` shows all")
        return named[0]

    @reads
    def keys(
        self, tx: Tx, *, user_id: UserId | None = None, after: KeyId | None = None, limit: int = 50
    ) -> Sequence[ApiKey]:
        """Keys in the order of creation, revoked and expired ones included."""
        return tx.of(Keys).list(user_id=user_id, after=after, limit=limit)

    @writes
    def revoke_key(self, tx: Tx, key_id: KeyId) -> ApiKey:
        """Revoke a key; servers refuse it within seconds. Raises: NotFound."""
        self._note(tx, "key.revoke", key_id)
        return tx.of(Keys).revoke(key_id, at=self._clock.now())

    @writes
    def delete_key(self, tx: Tx, key_id: KeyId) -> bool:
        """Delete a key and its counts; return whether a key is left, without which all is open. Raises: NotFound."""
        self._note(tx, "key.delete", key_id)
        tx.of(Keys).delete(key_id)
        return tx.of(Keys).are_there()

    # --- the audit log

    @writes
    def note(self, tx: Tx, action: str, object_id: str = "") -> None:
        """Append to the audit log that the principal did `action`, such as `PATCH /v1/blocks/{block_id}`."""
        self._note(tx, action, object_id)

    @reads
    def audit(
        self, tx: Tx, where: AuditFilter | None = None, *, before: int | None = None, limit: int = 50
    ) -> Sequence[AuditEntry]:
        """Entries of the audit log, newest first; `before`: only those with a smaller `seq`."""
        return tx.of(AuditLog).page(where or AuditFilter(), before=before, limit=limit)

    def _note(self, tx: Tx, action: str, object_id: str) -> None:
        """Append one entry to the audit log."""
        who = self._principal
        entry = AuditEntry(
            org_id=who.org_id,
            at=self._clock.now(),
            user_id=who.user_id,
            key_id=who.key_id,
            action=action,
            object_id=object_id,
            trace_id=self._trace_id,
        )
        tx.of(AuditLog).add([entry])


async def find_key(store: Store, text: str) -> ApiKey | None:
    """The key of this text, revoked or expired or not; None: there is none."""
    if not is_key(text):
        return None
    digest = digest_of(text)
    return await store.read(lambda tx: tx.of(Keys).find_by_digest(digest))


async def trim_audit(store: Store, clock: Clock, *, days: int) -> None:
    """Delete entries of the audit log, of all organisations, that are older than so many days; 0: none."""
    if days:
        before = clock.now() - timedelta(days=days)
        while await store.write(lambda tx: tx.of(AuditLog).trim(before=before, limit=TRIMMED_AT_ONCE)):
            continue


async def remove_organisation(store: Store, org_id: OrgId, contents: FileContents | None, *, clock: Clock) -> float:
    """Remove everything of an organisation that was deleted, in bounded steps; servers do this by themselves.

    Its last row goes after the bytes of its files in `contents`, so you may call this again after it was cut off. Until
    `LAST_WRITES_S` after the deletion the row stays. Return after how many seconds to call this again; 0: it is gone.
    Raises: StoreError.
    """
    found = await store.read(lambda tx: tx.of(Organisations).find(org_id))
    deleted_at = found.deleted_at if found is not None else None
    # A server may write after this pass has looked, so the wait is counted from before the pass.
    wait_s = 0.0 if deleted_at is None else LAST_WRITES_S - (clock.now() - deleted_at).total_seconds()
    view = store.for_organisation(org_id)
    while await view.write(lambda tx: tx.upkeep.remove_some()):
        continue  # something is left
    if contents is not None:
        async for keys in contents.list(folder_of(org_id), before=clock.now() + CLOCK_SKEW):
            await contents.delete(keys)
    await asyncio.to_thread(ORGANISATION_REMOVED, org_id)
    if wait_s <= 0:
        await store.write(lambda tx: tx.of(Organisations).delete(org_id))
    return max(wait_s, 0.0)


@contextlib.asynccontextmanager
async def open_access(settings: Settings, organisation: str | None = None) -> AsyncIterator[Access]:
    """Open the administration of an organisation's store, by name or id. Raises: StoreError, NotFound."""
    clock, ids = SystemClock(), Uuids()
    store = await open_store(settings.store_address, at=clock.now(), limits=settings)
    try:
        access = Access(store, clock, ids, LOCAL)
        if organisation is not None:
            org_id = (await access.organisation(organisation)).id
            access = Access(store, clock, ids, replace(LOCAL, org_id=org_id))
        yield access
    finally:
        await store.close()
