"""Helpers: an agent's are its own, each under one name, and go with it."""

from __future__ import annotations

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId
from perdure.features.helpers.tables import HelperAgent, HelperAgents
from perdure.storage.tx import Tx
from tests.contracts.base import Contract, raises


class HelperContract(Contract):
    async def test_the_agent_of_a_helper_comes_back_by_its_name(self) -> None:
        """A second one of the name takes the place of the first; other agents have none."""
        async with self.open_store() as store:
            agent, other = [await store.write(self.add_agent, name) for name in ("ann", "ben")]
            first, second = HelperAgent(other.id, "1"), HelperAgent(other.id, "2")
            await store.write(lambda tx: tx.of(HelperAgents).put(agent.id, "seal", first))
            await store.write(lambda tx: tx.of(HelperAgents).put(agent.id, "walrus", first))
            await store.write(lambda tx: tx.of(HelperAgents).put(agent.id, "walrus", second))

            found = await store.read(lambda tx: tx.of(HelperAgents).list(agent.id))
            assert list(found.items()) == [("seal", first), ("walrus", second)]
            assert await store.read(lambda tx: tx.of(HelperAgents).list(other.id)) == {}
            with raises(NotFound):
                await store.write(lambda tx: tx.of(HelperAgents).put(AgentId("agent-nobody"), "walrus", first))

    async def test_those_of_a_plug_in_are_found_by_its_name_and_forgotten(self) -> None:
        """Of all agents of the organisation; a plug-in whose name begins with it has others."""
        async with self.open_store() as store:
            ada, zoe, other = [await store.write(self.add_agent, name) for name in ("ada", "zoe", "ben")]
            helper = HelperAgent(other.id, "")

            def put(tx: Tx) -> None:
                """Store the helpers."""
                for name in ("sea:seal", "seal:walrus", "sea"):
                    tx.of(HelperAgents).put(ada.id, name, helper)
                tx.of(HelperAgents).put(zoe.id, "sea:seal", helper)

            await store.write(put)
            found = await store.read(lambda tx: tx.of(HelperAgents).list_of_plugin("sea"))
            await store.write(lambda tx: tx.of(HelperAgents).delete(ada.id, "sea:seal"))
            await store.write(lambda tx: tx.of(HelperAgents).delete(ada.id, "sea:none"))

            assert sorted(found) == sorted((one.id, "sea:seal", other.id) for one in (ada, zoe))
            left = await store.read(lambda tx: tx.of(HelperAgents).list_of_plugin("sea"))
            assert left == [(zoe.id, "sea:seal", other.id)]
            assert [*await store.read(lambda tx: tx.of(HelperAgents).list(ada.id))] == ["sea", "seal:walrus"]
