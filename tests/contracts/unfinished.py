"""What is still being copied: nobody sees it until it is whole, and it goes with the agent that it is for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ArchiveId, BlockId
from perdure.storage.tx import Tx
from tests.contracts.base import Contract, raises


class UnfinishedContract(Contract):
    async def test_what_is_being_copied_is_seen_when_it_is_whole(self) -> None:
        """Its block and archive with a passage; until then no list and no id leads to one of them."""
        async with self.open_store() as store:
            agent_id, block_id, archive_id = await store.write(self.begin_copy)
            passage = (await store.read(lambda tx: tx.of_unfinished().passages.page(archive_id)))[0]
            before = await store.read(seen, agent_id)
            with raises(NotFound):
                await store.read(lambda tx: tx.blocks.get(block_id))
            with raises(NotFound):
                await store.read(lambda tx: tx.passages.get(passage.id))
            assert await store.write(lambda tx: tx.upkeep.carry_out_deletes(limit=9)) is False
            await store.write(lambda tx: tx.unfinished.finish(agent_id))

            assert before == ([], [], [], [])
            assert await store.read(seen, agent_id) == ([block_id], [archive_id], ["notes"], [block_id])
            assert (await store.read(lambda tx: tx.passages.get(passage.id))).text == "tea"
            assert await store.read(lambda tx: tx.blocks.list_agents([block_id])) == {block_id: [agent_id]}

    async def test_what_is_being_copied_goes_with_its_agent(self) -> None:
        """As nobody could ever find it again."""
        async with self.open_store() as store:
            agent_id, block_id, archive_id = await store.write(self.begin_copy)
            await store.write(lambda tx: tx.agents.delete(agent_id))
            while await store.write(lambda tx: tx.upkeep.carry_out_deletes(limit=9)):
                pass

            def left(tx: Any) -> list[int]:
                names = {"blocks": "id", "block_versions": "block_id", "archives": "id", "passages": "archive_id"}
                sql = "SELECT COUNT(*) FROM {} WHERE {} IN (:block, :archive)"
                params = {"block": block_id, "archive": archive_id}
                found = [tx.blocks._db.rows(sql.format(*one), params)[0][0] for one in names.items()]
                return [*found, tx.blocks._db.rows("SELECT COUNT(*) FROM ids WHERE owner_id = :archive", params)[0][0]]

            assert await store.read(left) == [0, 0, 0, 0, 0]

    def begin_copy(self, tx: Tx) -> tuple[AgentId, BlockId, ArchiveId]:
        """Add an agent with a block and an archive that are not whole yet."""
        agent, there = self.add_agent(tx), tx.of_unfinished()
        block, archive = self.add_block(there), self.add_archive(there)
        passage = self.add_passage(there, archive.id, "tea")
        tx.unfinished.link("blocks", agent.id, [block.id])
        tx.unfinished.link("archives", agent.id, [archive.id])
        tx.unfinished.show_ids([passage.id])
        return agent.id, block.id, archive.id


def seen(tx: Tx, agent_id: AgentId) -> tuple[Sequence[str], ...]:
    """What there is to see: the blocks and archives of the agent, names of all archives, and blocks by their ids."""
    blocks = [one.id for one in tx.blocks.list_by_agent(agent_id)]
    linked = [row[0] for row in tx.blocks._db.rows("SELECT block_id FROM agent_blocks", {})]
    archives = [one.id for one in tx.archives.list_by_agent(agent_id)]
    return blocks, archives, [one.name for one in tx.archives.list()], [*tx.blocks.list_by_ids(linked)]
