"""What files of agents have brought: known by set, kind and name, until it is noted anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from perdure.features.manifests.tables import ManifestObjects
from perdure.features.manifests.values import AppliedObject
from tests.contracts.base import Contract

AT = datetime(2026, 1, 2, tzinfo=UTC)


def new_applied(thing_id: str = "agent-1") -> AppliedObject:
    """An agent of the set `office`."""
    return AppliedObject(
        manifest="office", kind="agents", name="ada", thing_id=thing_id, fields={"model": "12ab"}, applied_at=AT
    )


class ManifestContract(Contract):
    async def test_what_was_applied_is_known_by_its_name(self) -> None:
        """The same name is noted again; a set knows its own only."""
        async with self.open_store() as store:
            removed = replace(new_applied("agent-2"), removed_at=AT)
            await store.write(lambda tx: tx.of(ManifestObjects).put(new_applied()))
            before = await store.read(lambda tx: tx.of(ManifestObjects).list("office"))
            await store.write(lambda tx: tx.of(ManifestObjects).put(removed))

            assert before == [new_applied()]
            assert await store.read(lambda tx: tx.of(ManifestObjects).list("office")) == [removed]
            assert await store.read(lambda tx: tx.of(ManifestObjects).list("default")) == []

    async def test_a_thing_of_two_sets_is_shared_until_one_leaves_it(self) -> None:
        async with self.open_store() as store:
            ours, theirs = new_applied(), replace(new_applied(), manifest="lab")
            await store.write(lambda tx: tx.of(ManifestObjects).put(ours))
            await store.write(lambda tx: tx.of(ManifestObjects).put(theirs))
            shared = await store.read(lambda tx: tx.of(ManifestObjects).is_shared(ours))
            await store.write(lambda tx: tx.of(ManifestObjects).put(replace(theirs, removed_at=AT)))

            assert shared
            assert not await store.read(lambda tx: tx.of(ManifestObjects).is_shared(ours))
