"""Batches: several runs that were accepted together, counted by what became of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, BatchId
from perdure.core.runs import Batch, Callback, DueCallback, Run, RunFilter
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, LATER, UNTIL, Contract, claimed, raises
from tests.contracts.runs import ended

URL = "https://example.com/ended"
MISSING = BatchId("job-00000000-0000-4000-8000-ffffffffffff")


class BatchContract(Contract):
    async def test_a_batch_counts_its_runs(self) -> None:
        """By status, with the time when the last one ended; what it became follows from that."""
        async with self.open_store() as store:
            agent, other = await store.write(self.add_agent), await store.write(self.add_agent)
            batch = await store.write(self.add_batch)
            empty = await store.write(self.add_batch)
            runs = [await self.part(store, batch, one.id) for one in (agent, other)]
            await store.write(self.add_run, agent.id)

            async def found() -> Batch:
                return await store.read(lambda tx: tx.batches.get(batch.id))

            assert await found() == replace(batch, runs={"queued": 2})
            assert (await found()).status == "queued"
            await store.write(claimed, runs[0].key)
            assert ((await found()).runs, (await found()).status) == ({"queued": 1, "running": 1}, "running")
            await store.write(ended, runs[0].key)
            assert ((await found()).ended_at, (await found()).status) == (AT, "running")
            await store.write(claimed, runs[1].key)
            await store.write(lambda tx: ended(tx, runs[1].key, reason="error"))
            assert await found() == replace(batch, runs={"completed": 1, "failed": 1}, ended_at=AT)
            assert ((await found()).status, empty.status) == ("completed", "expired")

    async def part(self, store: Any, batch: Batch, agent_id: AgentId) -> Run:
        run: Run = await store.write(lambda tx: self.add_run(tx, agent_id, batch_id=batch.id))
        return run

    async def test_the_status_of_a_batch_is_that_of_its_runs(self) -> None:
        """Cancelled if one was; failed if all have."""
        batch = Batch(id=MISSING, digest="", created_at=AT)
        assert replace(batch, runs={"completed": 2, "failed": 1, "cancelled": 1}).status == "cancelled"
        assert replace(batch, runs={"failed": 2}).status == "failed"
        assert replace(batch, runs={"failed": 2, "queued": 1}).status == "running"

    async def test_batches_are_listed_by_time(self) -> None:
        """Those of one moment in their order; a time stands behind the batches of that time."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            first, second = [await store.write(self.add_batch) for _ in range(2)]
            third = await store.write(lambda tx: self.add_batch(tx, at=LATER))
            await self.part(store, second, agent.id)
            second = replace(second, runs={"queued": 1})

            def page(tx: Tx, **arguments: Any) -> list[Batch]:
                return list(tx.batches.page(**arguments))

            async def read(**arguments: Any) -> list[Batch]:
                return await store.read(lambda tx: page(tx, **arguments))

            assert await read() == [third, second, first]
            assert await read(ascending=True, limit=2) == [first, second]
            assert await read(after=second) == [first]
            assert await read(before=first, limit=1) == [second]
            assert await read(ascending=True, after=AT) == [third]
            assert await read(after=AT) == [second, first]
            assert await read(only_unended=True) == [second]

    async def test_runs_are_found_by_their_batch(self) -> None:
        """Also without it: a deleted batch leaves its runs as they are. A time stands before the runs of that time."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            batch = await store.write(self.add_batch)
            run = await self.part(store, batch, agent.id)
            alone = await store.write(self.add_run, agent.id)
            where = RunFilter(batch_id=batch.id)

            assert run.batch_id == batch.id
            assert await store.read(lambda tx: tx.runs.page(where)) == [run]
            assert await store.read(lambda tx: tx.runs.page(RunFilter(), after=AT)) == []
            assert await store.read(lambda tx: tx.runs.page(RunFilter(), before=AT, limit=1)) == [run]
            assert await store.read(lambda tx: tx.runs.page(RunFilter(), newest_first=False, after=AT)) == [run, alone]
            await store.write(lambda tx: tx.batches.delete(batch.id))
            assert await store.read(lambda tx: tx.batches.find(batch.id)) is None
            assert await store.read(lambda tx: tx.runs.get(run.id)) == replace(run, batch_id=None)
            for unit in (lambda tx: tx.batches.delete(batch.id), lambda tx: tx.batches.get(MISSING)):
                with raises(NotFound):
                    await store.write(unit)

    async def test_the_callback_of_a_batch_goes_with_the_last_of_its_agents(self) -> None:
        """At once for readers, and in small steps from the table; that of a batch with an agent left stays."""
        async with self.open_store() as store:
            agent, other = await store.write(self.add_agent), await store.write(self.add_agent)
            alone, shared = [await store.write(lambda tx: self.add_batch(tx, url=URL)) for _ in range(2)]
            for batch, of in ((alone, agent), (shared, agent), (alone, agent), (shared, other)):
                await self.part(store, batch, of.id)

            def seen(tx: Tx) -> list[bool]:
                return [batch.callback is not None for batch in tx.batches.page(ascending=True)]

            def delete(tx: Tx, agent_id: AgentId) -> None:
                tx.agents.delete(agent_id)

            def stored(tx: Tx) -> int:
                return len(tx.upkeep._db.rows("SELECT 1 FROM batches WHERE callback LIKE :url", {"url": f"%{URL}%"}))

            found = []
            for one in (agent, other):
                await store.write(delete, one.id)
                at_once = await store.read(seen)
                while await store.write(lambda tx: tx.upkeep.carry_out_deletes(limit=1)):
                    assert await store.read(seen) == at_once
                found.append((at_once, await store.read(stored)))
            assert found == [([False, True], 1), ([False, False], 0)]
            assert await store.read(lambda tx: tx.callbacks.list_due(at=LATER, limit=9)) == []

    async def test_a_batch_lists_what_its_runs_answered(self) -> None:
        """By time, without what users say, what came before or after, and what was removed."""
        async with self.open_store() as store:
            agent, other = await store.write(self.add_agent), await store.write(self.add_agent)
            batch = await store.write(self.add_batch)
            runs = [await self.part(store, batch, one.id) for one in (agent, other)]

            def answer(tx: Tx) -> None:
                self.say(tx, agent.id, "question", run=runs[0])
                self.say(tx, agent.id, "later", "gone", role="assistant", run=runs[0], at=LATER)
                self.say(tx, other.id, "first", role="assistant", run=runs[1])
                self.say(tx, agent.id, "alone", role="assistant", run=self.add_run(tx, agent.id))
                gone = tx.messages.list(agent.id)[2]
                tx.messages.revise(gone.id, None, author=ADA, at=LATER)

            await store.write(answer)

            def texts(tx: Tx, agent_id: AgentId | None = None) -> list[str]:
                places = tx.batches.list_message_ids(batch.id, agent_id=agent_id)
                found = [tx.messages.get(id_) for id_, _, _ in places]
                assert [(one.agent_id, one.seq) for one in found] == [place[1:] for place in places]
                return [one.text for one in found]

            assert await store.read(texts) == ["first", "later"]
            assert await store.read(texts, agent.id) == ["later"]

    async def test_the_end_of_a_batch_is_due_when_all_its_runs_have_ended(self) -> None:
        """Also when the agent of the last one is deleted; and a try belongs to one process."""
        async with self.open_store() as store:
            agent, other = await store.write(self.add_agent), await store.write(self.add_agent)
            batch = await store.write(lambda tx: self.add_batch(tx, url=URL))
            run, _ = [await self.part(store, batch, one.id) for one in (agent, other)]

            def due(tx: Tx) -> list[DueCallback]:
                return list(tx.callbacks.list_due(at=AT, limit=9))

            await store.write(claimed, run.key)
            await store.write(ended, run.key)
            assert await store.read(due) == []
            await store.write(lambda tx: tx.agents.delete(other.id))
            (first,) = await store.read(due)
            assert first == DueCallback("batches", batch.id, Callback(url=URL), AT)
            tried = replace(first.callback, tries=1, sent_at=AT)
            assert await store.write(lambda tx: tx.callbacks.put(first, tried, due_at=UNTIL)) is not None
            assert await store.write(lambda tx: tx.callbacks.put(first, tried, due_at=LATER)) is None
            found = await store.read(lambda tx: tx.batches.get(batch.id))
            assert (found.callback, found.runs) == (tried, {"completed": 1})
