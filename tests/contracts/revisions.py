"""Revised and removed messages: the log keeps its row, view and search follow."""

from __future__ import annotations

from dataclasses import replace

from perdure.core.errors import NotFound
from perdure.core.messages import Text
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, Contract, list_texts, match_messages, raises


class RevisionContract(Contract):
    async def test_a_revised_message_shows_its_new_parts(self) -> None:
        """It keeps number, id and place; every way of reading it shows the newest parts."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            before, message, after = await store.write(
                lambda tx: self.say(tx, agent.id, "before", "a walrus", "after", run=run)
            )
            await store.write(lambda tx: tx.messages.revise(message.id, [Text("draft")], author=ADA, at=AT))
            await store.write(lambda tx: tx.messages.revise(message.id, [Text("a penguin")], author=ADA, at=AT))
            revised = replace(message, parts=(Text("a penguin"),), revision=2)

            def ways(tx: Tx) -> list[list[object]]:
                return [
                    [before, tx.messages.get(message.id), after],
                    list(tx.messages.list(agent.id)),
                    list(tx.messages.view(agent.id, 0, from_seq=0, upto_seq=9)),
                    list(tx.messages.list_by_run(run)),
                    list(tx.messages.list_by_seqs(agent.id, [0, 1, 2])),
                ]

            assert await store.read(ways) == [[before, revised, after]] * 5

    async def test_search_follows_a_revision(self) -> None:
        """The old words no longer find the message, the new ones do; its neighbours are found as before."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            _, message = await store.write(self.say, agent.id, "walrus here", "walrus there")
            await store.write(lambda tx: tx.messages.revise(message.id, [Text("penguin there")], author=ADA, at=AT))

            assert await store.read(match_messages, agent.id, "walrus") == [0]
            assert await store.read(match_messages, agent.id, "penguin") == [1]
            assert await store.read(match_messages, agent.id, "there") == [1]

    async def test_a_message_may_lose_and_regain_its_words(self) -> None:
        """Revising to a text without words and back leaves exactly one entry in the index."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            (message,) = await store.write(self.say, agent.id, "walrus")
            await store.write(lambda tx: tx.messages.revise(message.id, [Text("...")], author=ADA, at=AT))
            assert await store.read(match_messages, agent.id, "walrus") == []

            await store.write(lambda tx: tx.messages.revise(message.id, [Text("walrus")], author=ADA, at=AT))
            assert await store.read(match_messages, agent.id, "walrus") == [0]

            await store.write(lambda tx: tx.messages.revise(message.id, None, author=ADA, at=AT))
            assert await store.read(match_messages, agent.id, "walrus") == []

    async def test_a_removed_message_is_out_of_view(self) -> None:
        """It is not listed, counted, found or got any more; its number is not given again."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            _, message, _ = await store.write(self.say, agent.id, "a", "walrus", "c")
            await store.write(lambda tx: tx.messages.revise(message.id, None, author=ADA, at=AT))
            (new,) = await store.write(self.say, agent.id, "d")

            assert new.seq == 3
            assert await store.read(list_texts, agent.id) == ["a", "c", "d"]
            assert await store.read(lambda tx: tx.messages.count(agent.id)) == 3
            assert await store.read(match_messages, agent.id, "walrus") == []
            assert await store.read(lambda tx: tx.messages.list_by_seqs(agent.id, [1])) == []
            with raises(NotFound):
                await store.read(lambda tx: tx.messages.get(message.id))
            with raises(NotFound):
                await store.write(lambda tx: tx.messages.revise(message.id, [Text("x")], author=ADA, at=AT))

    async def test_a_revision_makes_the_prefix_new(self) -> None:
        """A request that showed the old parts must not be built on, so the settings revision grows."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            (message,) = await store.write(self.say, agent.id, "a")
            await store.write(lambda tx: tx.messages.revise(message.id, [Text("b")], author=ADA, at=AT))

            assert (await store.read(lambda tx: tx.agents.get(agent.id))).settings_revision == 1

    async def test_an_unknown_message_is_not_revised(self) -> None:
        """Revising what is not there is refused."""
        async with self.open_store() as store:
            with raises(NotFound):
                await store.write(lambda tx: tx.messages.revise(self.draft("a").id, [Text("b")], author=ADA, at=AT))
