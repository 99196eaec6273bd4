"""Organisations of one store: views of it, and the directory of organisations, users, keys, the audit log and use."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.errors import AlreadyExists, NotFound
from perdure.core.ids import DEFAULT_ORG, KeyId, OrgId, UserId
from perdure.core.incoming.principals import PeriodUsage, UseLimits, day_of
from perdure.features.access.directory import AuditLog, Keys, Organisations, Users
from perdure.features.access.values import START_CHARS, ApiKey, AuditEntry, AuditFilter, Organisation, User, digest_of
from perdure.storage.tx import Tx
from tests.contracts.base import AT, AWKWARD, LATER, Contract, raises
from tests.contracts.isolation import rows_of
from tests.contracts.organisations import fill

ACME = OrgId("org-11111111-1111-4111-8111-111111111111")
TEXT = "perdure_" + "x" * 43


class AccessContract(Contract):
    def add_acme(self, tx: Tx) -> Organisation:
        return tx.of(Organisations).add(Organisation(id=ACME, name="Acme", created_at=AT))

    def add_user(self, tx: Tx, name: str = "ann") -> User:
        return tx.of(Users).add(User(id=UserId(self.ids.new("user")), org_id=tx.org_id, name=name, created_at=AT))

    def add_key(self, tx: Tx, text: str = TEXT, **values: Any) -> ApiKey:
        values = {"name": "laptop", "scope": "user", **values}
        id_, digest = KeyId(self.ids.new("key")), digest_of(text)
        return tx.of(Keys).add(
            ApiKey(id=id_, org_id=tx.org_id, start=text[:START_CHARS], digest=digest, created_at=AT, **values)
        )

    async def test_a_view_is_the_store_of_its_organisation(self) -> None:
        """It sees what is its own, over the same connections, which stay open when it is closed."""
        async with self.open_store() as store:
            view = store.for_organisation(ACME)
            ours, theirs = await store.write(self.add_agent), await view.write(self.add_agent)

            assert theirs.org_id == ACME
            assert await view.read(lambda tx: tx.agents.find_by_name("ada")) == theirs
            with raises(NotFound):
                await view.read(lambda tx: tx.agents.get(ours.id))
            await view.close()
            assert await view.for_organisation(DEFAULT_ORG).read(lambda tx: tx.agents.get(ours.id)) == ours
            assert view.place == store.place

    async def test_a_removed_organisation_leaves_no_row(self) -> None:
        """In any table, after a number of small steps; the others keep all of theirs."""
        async with self.open_store() as ours, self.open_store(org_id=ACME) as theirs:
            await ours.write(lambda tx: fill(self, tx))
            before = await ours.read(rows_of)
            await theirs.write(lambda tx: fill(self, tx))
            while await theirs.write(lambda tx: tx.upkeep.remove_some(limit=3)):
                pass

            assert await theirs.read(lambda tx: tx.is_current())
            after = await ours.read(rows_of)
            changed = {table for table, _ in (after - before) + (before - after)}
            assert changed - {"commit_marks"} == {"counters"}  # no number is given out twice

    async def test_organisations_have_one_name_each(self) -> None:
        """The default one is there at first; one that is being removed has no keys and gives its name back."""
        async with self.open_store(org_id=ACME) as store:
            (default,) = await store.read(lambda tx: tx.of(Organisations).list())
            assert (default.id, default.name) == (DEFAULT_ORG, "default")

            def fill(tx: Tx) -> Organisation:
                acme = self.add_acme(tx)
                with raises(AlreadyExists):
                    tx.of(Organisations).add(replace(acme, id=OrgId(self.ids.new("org"))))
                self.add_key(tx)
                tx.of(Organisations).mark_deleted(ACME, at=LATER)
                return acme

            acme = await store.write(fill)
            found = await store.read(lambda tx: tx.of(Organisations).list(after=DEFAULT_ORG))
            assert [(one.number, one.deleted_at) for one in found] == [(acme.number, LATER)]
            assert await store.read(lambda tx: tx.of(Keys).find_by_digest(digest_of(TEXT))) is None
            assert await store.read(lambda tx: tx.of(Organisations).find_by_name("Acme")) is None
            await store.write(lambda tx: tx.of(Organisations).delete(ACME))
            assert await store.read(lambda tx: tx.of(Organisations).find(ACME)) is None
            assert await store.read(lambda tx: tx.of(Keys).list()) == []
            assert await store.read(lambda tx: tx.of(Organisations).list(after=ACME)) == []

    async def test_users_belong_to_their_organisation(self) -> None:
        """Also by name; who is deleted loses the keys."""
        async with self.open_store() as ours, self.open_store(org_id=ACME) as store:

            def fill(tx: Tx) -> list[User]:
                self.add_acme(tx)
                users = [self.add_user(tx, f"user {text}") for text in AWKWARD]
                with raises(AlreadyExists):
                    self.add_user(tx, users[0].name)
                self.add_key(tx, user_id=users[0].id)
                return users

            users = await store.write(fill)
            first = users[0]
            await ours.write(self.add_user, first.name)
            assert await store.read(lambda tx: tx.of(Users).list()) == users
            page = await store.read(lambda tx: tx.of(Users).list(after=users[1].id, limit=1))
            assert page == users[2:3]
            assert await store.read(lambda tx: tx.of(Users).count()) == len(users)
            with raises(NotFound):
                await ours.read(lambda tx: tx.of(Users).get(first.id))
            with raises(NotFound):
                await ours.write(lambda tx: tx.of(Users).delete(first.id))
            await store.write(lambda tx: tx.of(Users).delete(first.id))
            assert await store.read(lambda tx: tx.of(Users).find_by_name(first.name)) is None
            assert await store.read(lambda tx: tx.of(Users).list(after=first.id)) == users[1:]
            assert await store.read(lambda tx: tx.of(Keys).find_by_digest(digest_of(TEXT))) is None

    async def test_keys_are_found_by_their_digest(self) -> None:
        """Whoever's they are; the time of use is noted at most once a minute, and a revocation keeps its time."""
        async with self.open_store() as ours, self.open_store(org_id=ACME) as store:
            limits = UseLimits(requests_per_minute=60, tokens_per_day=1_000)

            def fill(tx: Tx) -> ApiKey:
                assert not tx.of(Keys).are_there()
                self.add_acme(tx)
                assert not tx.of(Keys).exist(at=AT)
                return self.add_key(tx, expires_at=LATER, limits=limits)

            key = await store.write(fill)
            for one in (ours, store):
                assert await one.read(lambda tx: tx.of(Keys).find_by_digest(digest_of(TEXT))) == key
                assert await one.read(lambda tx: tx.of(Keys).find_by_digest(digest_of("no"))) is None
                assert await one.read(lambda tx: [tx.of(Keys).exist(at=at) for at in (AT, LATER)]) == [True, False]
            for seconds, noted in ((0, 0), (59, 0), (60, 60)):
                at = AT + timedelta(seconds=seconds)
                await ours.write(lambda tx, at: tx.of(Keys).touch([key.id], at=at), at)
                used = await store.read(lambda tx: tx.of(Keys).get(key.id))
                assert used.last_used_at == AT + timedelta(seconds=noted)
            for at in (AT, LATER):
                revoked = await store.write(lambda tx, at: tx.of(Keys).revoke(key.id, at=at), at)
                assert revoked.revoked_at == AT
            assert await store.read(lambda tx: tx.of(Keys).list()) == [revoked]
            assert await store.read(lambda tx: tx.of(Keys).list(after=key.id)) == []
            assert await ours.read(lambda tx: tx.of(Keys).list()) == []
            assert await store.read(lambda tx: tx.of(Keys).count()) == 1
            with raises(NotFound):
                await ours.write(lambda tx: tx.of(Keys).revoke(key.id, at=AT))
            assert await ours.read(lambda tx: tx.of(Keys).are_there())  # revoked as it is
            with raises(NotFound):
                await ours.write(lambda tx: tx.of(Keys).delete(key.id))
            await store.write(lambda tx: tx.of(Keys).delete(key.id))
            assert await store.read(lambda tx: tx.of(Keys).list()) == []
            assert not await store.read(lambda tx: tx.of(Keys).are_there())

    async def test_the_audit_log_has_pages_and_an_end(self) -> None:
        """Newest first, of one organisation; old entries are deleted a few at a time."""
        async with self.open_store(org_id=ACME) as store:
            entries = [
                AuditEntry(org_id=org, at=at, action=action, object_id="block-1", key_id=KeyId("key-1"))
                for org, at, action in ((ACME, AT, "a"), (DEFAULT_ORG, AT, "b"), (ACME, AT, "c"), (ACME, LATER, "d"))
            ]
            await store.write(lambda tx: tx.of(AuditLog).add(entries))
            await store.write(lambda tx: tx.of(AuditLog).add([]))

            def page(tx: Tx, where: AuditFilter, before: int | None = None) -> list[str]:
                return [one.action for one in tx.of(AuditLog).page(where, before=before)]

            assert await store.read(page, AuditFilter()) == ["d", "c", "a"]
            last = (await store.read(lambda tx: tx.of(AuditLog).page(AuditFilter(), limit=1)))[0]
            assert await store.read(page, AuditFilter(key_id=KeyId("key-1")), last.seq) == ["c", "a"]
            assert await store.read(page, AuditFilter(action="C")) == ["c"]
            assert await store.read(page, AuditFilter(object_id="block-2")) == []
            assert await store.read(page, AuditFilter(user_id=UserId("user-1"))) == []
            assert await store.write(lambda tx: tx.of(AuditLog).trim(before=LATER, limit=2)) == 2
            assert await store.write(lambda tx: tx.of(AuditLog).trim(before=LATER, limit=2)) == 1
            assert await store.read(page, AuditFilter()) == ["d"]

    async def test_an_organisation_counts_its_own_use_of_a_day(self) -> None:
        """A later day begins anew, and takes the counts of days before the last with it."""
        async with self.open_store() as store, self.open_store(org_id=ACME) as other:

            def add(tx: Tx, days: int) -> None:
                tx.used.add_today({"agent-1": PeriodUsage(1, 10, 0.5)}, at=AT + timedelta(days=days))

            for days in (0, 0, 1):
                await store.write(add, days)

            def used(tx: Tx, days: int) -> PeriodUsage:
                return tx.used.get("agent-1", day_of(AT + timedelta(days=days)))

            assert [await store.read(used, days) for days in range(3)] == [
                PeriodUsage(2, 20, 1),
                PeriodUsage(1, 10, 0.5),
                PeriodUsage(),
            ]
            assert await other.read(used, 0) == PeriodUsage()
            await store.write(add, 2)
            assert [await store.read(used, days) for days in range(3)] == [
                PeriodUsage(),
                PeriodUsage(1, 10, 0.5),
                PeriodUsage(1, 10, 0.5),
            ]

    async def test_use_is_added_up_by_period(self) -> None:
        """For each owner; old periods are deleted."""
        async with self.open_store() as ours, self.open_store(org_id=ACME) as store:
            use = {"key-1": PeriodUsage(1, 10, 0.5), "agent-1": PeriodUsage(0, 1, 0)}
            for _ in range(2):
                await store.write(lambda tx: tx.used.add(use, "2026-01-31"))
            await store.write(lambda tx: tx.used.add({"key-1": PeriodUsage(1, 1, 1)}, "2026-02-01"))

            assert await store.read(lambda tx: tx.used.get("key-1", "2026-01-31")) == PeriodUsage(2, 20, 1)
            assert await ours.read(lambda tx: tx.used.get("key-1", "2026-01-31")) == PeriodUsage()
            assert await store.write(lambda tx: tx.of(Keys).trim_used(before="2026-02-01")) == 2
            assert await store.read(lambda tx: tx.used.get("key-1", "2026-02-01")) == PeriodUsage(1, 1, 1)

    async def test_a_use_is_claimed_once_in_a_period(self) -> None:
        """By whichever process comes first."""
        async with self.open_store() as store:
            for period, is_first in (("2026-01-31", True), ("2026-01-31", False), ("2026-02-01", True)):
                assert await store.write(lambda tx, day: tx.used.claim("link-1", day), period) == is_first
