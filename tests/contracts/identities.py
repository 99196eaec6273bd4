"""Identities, and which agents and blocks have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from perdure.core.agents import AgentFilter, Identity, IdentityFilter
from perdure.core.blocks import BlockFilter
from perdure.core.errors import AlreadyExists, NotFound, TooMany
from perdure.core.ids import IdentityId
from perdure.storage.tx import Tx
from tests.contracts.base import AWKWARD, LATER, Contract, raises


def owners(tx: Tx, kind: Literal["agent", "block"], identity: Identity, limit: int | None = None) -> Sequence[str]:
    """The agents or blocks that have the identity."""
    return tx.identities.list_owners(kind, [identity.id], limit=limit)[identity.id]


class IdentityContract(Contract):
    async def test_identities_come_back_as_they_were_put(self) -> None:
        """Found by id, key and page; a key is unique within its project."""
        async with self.open_store() as store:
            added = [
                await store.write(
                    self.add_identity, f"key {text}", name=text, properties=({"key": text, "value": 1.5},)
                )
                for text in AWKWARD
            ]
            first = added[0]
            same_key = await store.write(self.add_identity, first.identifier_key, project_id="p")
            with raises(AlreadyExists):
                await store.write(self.add_identity, first.identifier_key)

            def look(tx: Tx) -> list[Any]:
                page = tx.identities.page(where=IdentityFilter(), ascending=True)
                return [
                    page,
                    [tx.identities.get(one.id) for one in page],
                    tx.identities.find_by_key(first.identifier_key, None),
                    tx.identities.find_by_key(first.identifier_key, "p"),
                    tx.identities.find_by_key("none", None),
                    tx.identities.count(IdentityFilter()),
                    tx.identities.page(where=IdentityFilter(project_id="p")),
                    tx.identities.page(where=IdentityFilter(identifier_key=first.identifier_key), limit=1),
                    tx.identities.page(where=IdentityFilter(identity_type="org")),
                    tx.identities.page(where=IdentityFilter(), after=added[1].id),
                ]

            expected = [*added, same_key]
            found = await store.read(look)
            assert found[:6] == [expected, expected, first, same_key, None, len(expected)]
            assert found[6:] == [[same_key], [same_key], [], [first]]
            changed = replace(first, identifier_key="other", name="n", identity_type="org", updated_at=LATER)
            await store.write(lambda tx: tx.identities.put(changed))
            assert await store.read(lambda tx: tx.identities.get(first.id)) == changed
            with raises(AlreadyExists):
                await store.write(
                    lambda tx: tx.identities.put(replace(changed, identifier_key=added[1].identifier_key))
                )
            nobody = IdentityId(self.ids.new("identity"))
            with raises(NotFound):
                await store.read(lambda tx: tx.identities.get(nobody))

    async def test_agents_and_blocks_have_identities(self) -> None:
        """Attached, filtered by id and key, detached; a deleted one leaves no trace, and its key is free again."""
        async with self.open_store() as store:
            ada, bob = await store.write(self.add_agent, "ada"), await store.write(self.add_agent, "bob")
            block = await store.write(self.add_block)
            first, second = await store.write(self.add_identity, "a"), await store.write(self.add_identity, "b")

            def attach(tx: Tx) -> None:
                for agent in (bob, ada, ada):
                    tx.identities.attach_agent(agent.id, first.id)
                tx.identities.attach_agent(ada.id, second.id)
                tx.identities.attach_block(block.id, second.id)

            await store.write(attach)

            async def agents(**conditions: Any) -> list[str]:
                where = AgentFilter(**conditions)
                return [agent.name for agent in await store.read(lambda tx: tx.agents.page(where=where))]

            async def blocks(**conditions: Any) -> int:
                where = BlockFilter(**conditions)
                return len(await store.read(lambda tx: tx.blocks.page(where=where)))

            assert await store.read(lambda tx: tx.identities.list_by_agent(ada.id)) == [first, second]
            assert await store.read(lambda tx: owners(tx, "agent", first)) == [ada.id, bob.id]
            assert await store.read(lambda tx: owners(tx, "agent", first, limit=1)) == [ada.id]
            assert await store.read(lambda tx: owners(tx, "block", second)) == [block.id]
            assert await agents(identity_id=first.id) == await agents(identifier_keys=("a", "b")) == ["bob", "ada"]
            assert await agents(identity_id=first.id, identifier_keys=("b",)) == await agents(identifier_keys=("b",))
            assert await agents(identifier_keys=("c",)) == []
            assert (await blocks(identity_id=second.id), await blocks(identifier_keys=("a",))) == (1, 0)
            await store.write(lambda tx: tx.identities.detach_agent(ada.id, second.id))
            with raises(NotFound):
                await store.write(lambda tx: tx.identities.detach_agent(ada.id, second.id))
            await store.write(lambda tx: tx.identities.detach_block(block.id, second.id))
            with raises(NotFound):
                await store.write(lambda tx: tx.identities.detach_block(block.id, second.id))
            await store.write(lambda tx: tx.identities.delete(first.id))
            assert await store.read(lambda tx: tx.identities.list_by_agent(ada.id)) == []
            assert await agents(identifier_keys=("a",)) == []
            again = await store.write(self.add_identity, "a")
            await store.write(lambda tx: tx.identities.attach_agent(bob.id, again.id))
            await store.write(lambda tx: tx.agents.delete(bob.id))
            assert await store.read(lambda tx: owners(tx, "agent", again)) == []

    async def test_an_agent_has_a_limited_number_of_identities(self) -> None:
        """One more is refused."""
        async with self.open_store() as store:

            def attach(tx: Tx) -> None:
                agent = self.add_agent(tx)
                for number in range(tx.limits.identities_per_agent + 1):
                    tx.identities.attach_agent(agent.id, self.add_identity(tx, str(number)).id)

            with raises(TooMany):
                await store.write(attach)
