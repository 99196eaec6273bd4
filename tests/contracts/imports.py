"""What imports have brought: each agent's is its own, and goes with it."""

from __future__ import annotations

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId
from perdure.features.imports.common.tables import MOVED, ImportedItems
from tests.contracts.base import Contract, raises


class ImportContract(Contract):
    async def test_what_was_imported_stays_known(self) -> None:
        """A second digest takes the place of the first; other agents know nothing of it."""
        async with self.open_store() as store:
            agent, other = [await store.write(self.add_agent, name) for name in ("ann", "ben")]
            await store.write(lambda tx: tx.of(ImportedItems).put(agent.id, {"conv-1": "", "passage-1": "1"}))
            await store.write(lambda tx: tx.of(ImportedItems).put(agent.id, {"conv-1": "2"}))

            asked = ["passage-1", "conv-1", "conv-2"]
            assert await store.read(lambda tx: tx.of(ImportedItems).find(agent.id, asked)) == {
                "passage-1": "1",
                "conv-1": "2",
            }
            assert await store.read(lambda tx: tx.of(ImportedItems).find(other.id, asked)) == {}
            with raises(NotFound):
                await store.write(lambda tx: tx.of(ImportedItems).put(AgentId("agent-nobody"), {"conv-1": ""}))
            moved = {f"{MOVED}{other.id}": ""}
            await store.write(lambda tx: tx.of(ImportedItems).put(agent.id, moved))

            assert await store.read(lambda tx: tx.of(ImportedItems).find_owner("passage-1")) == agent.id
            assert await store.read(lambda tx: tx.of(ImportedItems).find_owner("none")) is None
            await store.write(lambda tx: tx.of(ImportedItems).put(other.id, {"passage-1": ""}))
            assert await store.read(lambda tx: tx.of(ImportedItems).owners("passage-1")) == [agent.id, other.id]
            assert await store.read(lambda tx: tx.of(ImportedItems).list_moved(agent.id)) == [[other.id]]
            assert await store.read(lambda tx: tx.of(ImportedItems).list_moved(other.id)) == []
