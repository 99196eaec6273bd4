"""Secrets: kept by owner and name, as the bytes they were sealed to."""

from __future__ import annotations

from perdure.core.errors import NotFound
from perdure.core.ids import DEFAULT_ORG, AgentId
from perdure.core.secrets import ORGANISATION
from perdure.storage.tx import Tx
from tests.contracts.base import AT, LATER, Contract, raises

ANY_BYTES = bytes(range(256))


class SecretContract(Contract):
    async def test_a_secret_comes_back_as_it_was_sealed(self) -> None:
        """Any bytes; put again it is the same secret with another value, and keeps the time it was made."""
        async with self.open_store() as store:
            made = await store.write(lambda tx: tx.secrets.put(ORGANISATION, "TOKEN", ANY_BYTES, at=AT))
            assert (made.sealed, made.created_at, made.updated_at) == (ANY_BYTES, AT, AT)
            assert await store.read(lambda tx: tx.secrets.find(ORGANISATION, "TOKEN")) == made

            changed = await store.write(lambda tx: tx.secrets.put(ORGANISATION, "TOKEN", b"", at=LATER))
            assert (changed.sealed, changed.created_at, changed.updated_at) == (b"", AT, LATER)
            assert await store.read(lambda tx: tx.secrets.list(ORGANISATION)) == [changed]

    async def test_the_organisations_are_known_whose_secrets_are_encrypted_anew(self) -> None:
        """Of a new store the default one."""
        async with self.open_store() as store:
            assert await store.read(lambda tx: tx.secrets.organisations()) == [DEFAULT_ORG]

    async def test_all_owners_are_gone_through_in_order(self) -> None:
        """By owner and name, from behind one on, for a rotation of the key."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def put_some(tx: Tx) -> None:
                for owner, name in ((agent.id, "B"), (ORGANISATION, "B"), (agent.id, "A"), (ORGANISATION, "A")):
                    tx.secrets.put(owner, name, b"sealed", at=AT)

            await store.write(put_some)
            pages = [await store.read(lambda tx: tx.secrets.list_behind(ORGANISATION, "", limit=3))]
            last = pages[0][-1]
            pages.append(await store.read(lambda tx: tx.secrets.list_behind(last.owner_id, last.name, limit=3)))
        found = [[(one.owner_id, one.name) for one in page] for page in pages]

        assert found == [[(ORGANISATION, "A"), (ORGANISATION, "B"), (agent.id, "A")], [(agent.id, "B")]]

    async def test_secrets_belong_to_their_owner(self) -> None:
        """The same name of the organisation and of an agent are two; they are listed by name."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            for owner, name in ((ORGANISATION, "B"), (agent.id, "B"), (agent.id, "A")):
                await store.write(lambda tx, owner=owner, name=name: tx.secrets.put(owner, name, b"x", at=AT))  # type: ignore[misc]
            of_agent = await store.read(lambda tx: tx.secrets.list(agent.id))
            assert [secret.name for secret in of_agent] == ["A", "B"]
            assert {secret.owner_id for secret in of_agent} == {agent.id}
            assert [secret.name for secret in await store.read(lambda tx: tx.secrets.list(ORGANISATION))] == ["B"]

            await store.write(lambda tx: tx.secrets.delete(agent.id, "B"))
            assert await store.read(lambda tx: tx.secrets.find(agent.id, "B")) is None
            assert await store.read(lambda tx: tx.secrets.find(ORGANISATION, "B")) is not None
            with raises(NotFound):
                await store.write(lambda tx: tx.secrets.delete(agent.id, "B"))

    async def test_secrets_go_with_their_agent(self) -> None:
        """Deleting the agent removes them; an agent that is not there can own none."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            await store.write(lambda tx: tx.secrets.put(agent.id, "A", b"x", at=AT))
            await store.write(lambda tx: tx.agents.delete(agent.id))
            assert await store.read(lambda tx: tx.secrets.list(agent.id)) == []
            for owner in (agent.id, AgentId("agent-none")):
                with raises(NotFound):
                    await store.write(lambda tx, owner=owner: tx.secrets.put(owner, "A", b"x", at=AT))  # type: ignore[misc]
