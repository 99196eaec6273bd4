"""Units of work: all or nothing, each on its own, over one consistent state."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from perdure.core.blocks import BlockFilter
from perdure.core.errors import NotFound, StoreClosed, StoreError
from perdure.storage.tx import Tx
from tests.contracts.base import Contract, list_texts, match_messages, raises


class Oops(Exception):
    """What a unit of ours raises."""


class UnitContract(Contract):
    async def test_a_unit_that_raises_leaves_nothing(self) -> None:
        """Whatever it did before: rows, numbers and search are as if it had never run."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def fail(tx: Tx) -> None:
                self.say(tx, agent.id, "a walrus")
                self.add_run(tx, agent.id)
                self.add_block(tx, "human", agent_id=agent.id)
                raise Oops

            with raises(Oops):
                await store.write(fail)
            (message,) = await store.write(self.say, agent.id, "hello")

            assert message.seq == 0
            assert await store.read(list_texts, agent.id) == ["hello"]
            assert await store.read(match_messages, agent.id, "walrus") == []
            assert await store.read(lambda tx: tx.runs.list(agent.id)) == []
            assert await store.read(lambda tx: tx.blocks.page(where=BlockFilter())) == []

    async def test_a_failing_unit_does_not_disturb_its_neighbours(self) -> None:
        """Of many units given at once, those that raise get their own error and all others are committed."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def unit(tx: Tx, index: int) -> int:
                self.say(tx, agent.id, f"message {index}")
                if index % 3 == 0:
                    raise Oops(index)
                if index % 3 == 1:
                    tx.agents.get(self.draft("x").id)  # type: ignore[arg-type]  # no such agent
                return index

            outcomes = await asyncio.gather(*(store.write(unit, index) for index in range(30)), return_exceptions=True)

            kinds = (Oops, NotFound, int)
            assert [type(outcome) for outcome in outcomes] == [kinds[index % 3] for index in range(30)]
            assert sorted(await store.read(list_texts, agent.id)) == sorted(f"message {i}" for i in range(2, 30, 3))
            numbers = [message.seq for message in await store.read(lambda tx: tx.messages.list(agent.id))]
            assert numbers == list(range(10))

    async def test_a_unit_returns_and_takes_what_it_likes(self) -> None:
        """Arguments and results pass through unchanged."""
        async with self.open_store() as store:
            value = object()

            def unit(tx: Tx, one: object, *, other: object) -> tuple[object, object]:
                return one, other

            assert await store.write(unit, value, other=None) == (value, None)
            assert await store.read(unit, value, other=value) == (value, value)

    async def test_what_is_acknowledged_is_seen(self) -> None:
        """By the same handle and by another, at once."""
        async with self.open_store() as one, self.open_store() as other:
            agent = await one.write(self.add_agent)
            for index in range(5):
                writer, reader = (one, other) if index % 2 else (other, one)
                await writer.write(self.say, agent.id, f"message {index}")

                assert len(await reader.read(list_texts, agent.id)) == index + 1
                assert len(await writer.read(list_texts, agent.id)) == index + 1

    async def test_it_is_still_there_after_opening_again(self) -> None:
        """Closing and opening loses nothing."""
        async with self.open_store() as store:
            agent_id = (await store.write(self.add_agent)).id
            await store.write(self.say, agent_id, "a walrus")
            agent = await store.read(lambda tx: tx.agents.get(agent_id))
        async with self.open_store() as store:
            assert await store.read(lambda tx: tx.agents.get(agent.id)) == agent
            assert await store.read(match_messages, agent.id, "walrus") == [0]

    async def test_a_read_sees_one_state(self) -> None:
        """What is committed while a unit reads, it does not see."""
        async with self.open_store() as reader, self.open_store() as writer:
            agent = await reader.write(self.add_agent)
            await reader.write(self.say, agent.id, "before")

            def read_twice(tx: Tx, meanwhile: Callable[[], None]) -> tuple[list[str], list[str], int]:
                first = list_texts(tx, agent.id)
                meanwhile()
                return first, list_texts(tx, agent.id), tx.messages.count(agent.id)

            def write_elsewhere() -> None:
                """Write through the other handle from another thread, and wait for it."""
                thread = threading.Thread(target=lambda: asyncio.run(self._write(agent.id)))
                thread.start()
                thread.join(30)
                assert not thread.is_alive()

            assert await reader.read(read_twice, write_elsewhere) == (["before"], ["before"], 1)
            assert await writer.read(list_texts, agent.id) == ["before", "after"]

    async def _write(self, agent_id: object) -> None:
        async with self.open_store() as store:
            await store.write(self.say, agent_id, "after")  # type: ignore[arg-type]

    async def test_a_read_writes_nothing(self) -> None:
        """A unit given to `read` by mistake changes nothing, whether it is refused or not."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            with contextlib.suppress(StoreError):
                await store.read(self.say, agent.id, "hello")

            assert await store.read(list_texts, agent.id) == []
            assert (await store.write(self.say, agent.id, "hello"))[0].seq == 0

    async def test_a_closed_store_says_so(self) -> None:
        """Reading and writing are refused; closing twice is no error."""
        store = await self.open()
        await store.close()
        await store.close()
        with raises(StoreClosed):
            await store.read(lambda tx: tx.agents.list())
        with raises(StoreClosed):
            await store.write(self.add_agent)
