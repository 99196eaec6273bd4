"""What messages brought from outside, and the sources of writes of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perdure.core.blocks import Author
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, BlockId, MessageId, PassageId, RunId
from perdure.core.messages import Draft, Text
from perdure.core.sources import MemoryWrite, MessageSource, Source, WriteSource
from perdure.features.origins.tables import Journal
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, LATER, Contract, raises

PAGE = Source("web", "https://example.com/page")
NOTES = Source("mcp", "notes")


class SourceContract(Contract):
    def bring(self, tx: Tx, agent_id: AgentId, *sources: Source, sender: str | None = None) -> MessageId:
        """Add a message that brings these sources, or those of its sender."""
        draft = Draft(
            id=MessageId(self.ids.new("message")),
            role="user",
            parts=(Text("hello"),),
            sender_id=sender,
            sources=None if sender else sources,
        )
        return tx.messages.append((agent_id, 0), [draft], [1], at=AT)[0].id

    def edit(self, tx: Tx, block_id: BlockId, value: str, author: Author) -> None:
        block = tx.blocks.get(block_id)
        tx.blocks.put(replace(block, value=value), expected=block.version, author=author, at=LATER)

    async def test_a_message_keeps_what_it_brought(self) -> None:
        """In order; a message of another agent brings that agent, and a removed one nothing."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            first = await store.write(self.bring, agent.id, PAGE, NOTES)
            await store.write(self.bring, agent.id)
            third = await store.write(lambda tx: self.bring(tx, agent.id, sender="agent-x"))
            await store.write(lambda tx: tx.sources.add_to_message(agent.id, 0, 1, [NOTES], recalled=True))

            def between(tx: Tx, from_seq: int, before_seq: int) -> list[MessageSource]:
                return [*tx.sources.list_by_conversation(agent.id, 0, from_seq=from_seq, before_seq=before_seq)]

            found = await store.read(between, 0, 9)
            assert [(one.seq, one.source, one.via) for one in found] == [
                (0, PAGE, ""),
                (0, NOTES, ""),
                (1, NOTES, "recall"),
                (2, Source("other_agent", "agent-x"), ""),
            ]
            assert (found[0].message_id, found[-1].message_id) == (first, third)
            assert [one.seq for one in await store.read(between, 1, 2)] == [1]

            def first_of(tx: Tx, /, **limits: int) -> Mapping[Source, int] | None:
                return tx.sources.list_first(agent.id, 0, from_seq=0, before_seq=9, **limits)

            assert await store.read(first_of, most=3) == {PAGE: 0, NOTES: 0, Source("other_agent", "agent-x"): 2}
            assert await store.read(first_of, most=2) is await store.read(first_of, most=3, limit=3) is None
            own = await store.read(lambda tx: tx.sources.list_by_messages(agent.id, [0, 1, 2]))
            assert {seq: [one.source.label for one in brought] for seq, brought in own.items()} == {
                0: ["web", "mcp"],
                2: ["other_agent"],
            }

            await store.write(lambda tx: tx.messages.revise(first, None, author=ADA, at=LATER))
            assert [one.seq for one in await store.read(between, 0, 9)] == [1, 2]
            await store.write(lambda tx: tx.agents.delete(agent.id))
            assert await store.read(between, 0, 9) == []
            with raises(NotFound):
                await store.write(lambda tx: tx.sources.add_to_message(agent.id, 0, 1, [PAGE]))

    async def test_writes_are_found_by_their_source_and_run(self) -> None:
        """Also those of others to a shared block; a person's edit has no source but the person."""
        async with self.open_store() as store:
            ada, bob = [await store.write(self.add_agent, name) for name in ("ada", "bob")]
            block = await store.write(lambda tx: self.add_block(tx, "human", "Ada", agent_id=ada.id))
            archive = await store.write(lambda tx: self.add_archive(tx, agent_id=ada.id))
            run_id = RunId(self.ids.new("run"))
            brought = (WriteSource(PAGE, (MessageId("message-1"),)), WriteSource(NOTES))
            author = Author(kind="agent", id=bob.id, agent_id=bob.id, run_id=run_id, message_id=MessageId("message-2"))
            await store.write(self.edit, block.id, "one", replace(author, sources=brought))
            await store.write(self.edit, block.id, "two", author)
            await store.write(self.edit, block.id, "three", Author(kind="user", id="ann"))

            def insert(tx: Tx) -> str:
                new_id = PassageId(self.ids.new("passage"))
                passage = replace(self.add_passage(tx, archive.id, "old"), id=new_id)
                return tx.passages.add([replace(passage, sources=brought[:1], source={"run_id": run_id})])[0].id

            passage_id = await store.write(insert)

            def ids(tx: Tx, source: Source | None = None, run: RunId | None = None) -> list[str]:
                return sorted(one.id for one in tx.of(Journal).list_writes(ada.id, source, run_id=run))

            assert await store.read(ids, PAGE) == sorted([f"{block.id}@1", passage_id])
            assert await store.read(ids, NOTES) == [f"{block.id}@1"]
            assert await store.read(ids, Source("agent", bob.id)) == [f"{block.id}@2"]
            assert await store.read(ids, None, run_id) == sorted([f"{block.id}@1", f"{block.id}@2", passage_id])
            assert await store.read(lambda tx: tx.of(Journal).list_writes(bob.id)) == []

            (write,) = await store.read(lambda tx: tx.sources.list_by_refs(block.id, ["1", "9"]))
            assert write == MemoryWrite(
                kind="block",
                owner_id=block.id,
                ref="1",
                sources=brought,
                agent_id=bob.id,
                run_id=run_id,
                message_id=MessageId("message-2"),
                created_at=LATER,
            )
            assert write.label == "web"

    async def test_agents_that_share_memory_are_found_by_a_setting(self) -> None:
        """By a shared block or archive; not the agent itself, one without the setting, or one that shares nothing."""
        async with self.open_store() as store:
            ada, bob, cid, dan = [await store.write(self.add_agent, name) for name in ("ada", "bob", "cid", "dan")]

            def share(tx: Tx) -> None:
                block = self.add_block(tx, "human", "Ada", agent_id=ada.id)
                archive = self.add_archive(tx, agent_id=ada.id)
                tx.blocks.attach(bob.id, block.id)
                tx.archives.attach(cid.id, archive.id)
                for agent, policy in ((ada, "allow"), (bob, "block"), (cid, "approve"), (dan, "label")):
                    tx.agents.put(replace(agent, settings={"untrusted_writes": policy}))

            await store.write(share)

            def find(tx: Tx, but: AgentId) -> list[str]:
                found = tx.sources.settings_of_sharers(ada.id, "untrusted_writes", but=but)
                return sorted(one["untrusted_writes"] for one in found)

            assert await store.read(find, ada.id) == ["approve", "block"]
            assert await store.read(find, cid.id) == ["block"]
            assert await store.read(lambda tx: tx.sources.settings_of_sharers(ada.id, "other", but=ada.id)) == []

    async def test_a_reverted_write_is_counted_apart(self) -> None:
        """Until the correction is undone; one whose text is gone is not counted at all."""
        async with self.open_store() as store:
            ada = await store.write(self.add_agent, "ada")
            block = await store.write(lambda tx: self.add_block(tx, "human", "Ada", agent_id=ada.id))
            author = Author(kind="agent", id=ada.id, agent_id=ada.id, sources=(WriteSource(PAGE),))
            for value in ("one", "two"):
                await store.write(self.edit, block.id, value, author)

            def count(tx: Tx) -> list[tuple[Source, int, int]]:
                return [(one.source, one.blocks, one.reverted) for one in tx.of(Journal).summarise(ada.id)]

            assert await store.read(count) == [(PAGE, 2, 0)]
            await store.write(lambda tx: tx.of(Journal).mark_reverted(block.id, ["2"], f"{ada.id}/1"))
            assert await store.read(count) == [(PAGE, 1, 1)]
            await store.write(lambda tx: tx.of(Journal).unmark_reverted(ada.id, f"{ada.id}/1"))
            assert await store.read(count) == [(PAGE, 2, 0)]
            (write, _) = await store.read(lambda tx: tx.of(Journal).list_writes(ada.id, PAGE))
            await store.write(lambda tx: tx.sources.delete(block.id, ["1", "2"]))
            assert await store.read(count) == []
            for _ in range(2):  # a write that is stored twice is one
                await store.write(lambda tx: tx.sources.add([write]))
            assert await store.read(count) == [(PAGE, 1, 0)]
            with raises(NotFound):
                await store.write(lambda tx: tx.sources.delete("block-none", ["1"]))
