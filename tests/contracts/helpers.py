"""Helpers: an agent's are its own, each under one name, and go with it."""

from __future__ import annotations

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId
from perdure.features.helpers.tables import HelperAgent, HelperAgents
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
