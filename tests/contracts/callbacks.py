"""Reports of ended runs: due when the run has ended, and each try belongs to one process."""

from __future__ import annotations

from dataclasses import replace

from perdure.core.runs import Callback, DueCallback
from perdure.storage.tx import Tx
from tests.contracts.base import AT, LATER, UNTIL, Contract, claimed
from tests.contracts.runs import ended

URL = "https://example.com/ended"


class CallbackContract(Contract):
    async def test_a_report_is_due_when_its_run_has_ended(self) -> None:
        """Not before; and the run shows the callback, also in lists."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            first, plain = [await store.write(self.add_run, agent.id) for _ in range(2)]
            run = await store.write(lambda tx: tx.callbacks.request(first, Callback(url=URL), at=AT))

            def due(tx: Tx) -> list[DueCallback]:
                return list(tx.callbacks.list_due(at=LATER, limit=9))

            assert run == replace(first, callback=Callback(url=URL)) == await store.read(lambda tx: tx.runs.get(run.id))
            assert await store.read(due) == []
            await store.write(claimed, run.key)
            assert await store.read(due) == []
            await store.write(ended, run.key)
            assert await store.read(due) == [DueCallback("runs", run.id, Callback(url=URL), AT)]
            assert [one.callback for one in await store.read(lambda tx: tx.runs.list(agent.id))] == [None, run.callback]
            assert plain.callback is None

    async def test_a_try_belongs_to_one_process(self) -> None:
        """Whoever read the same as somebody before changes nothing; after the last try nothing is due."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            await store.write(lambda tx: tx.callbacks.request(run, Callback(url=URL), at=AT))
            await store.write(claimed, run.key)
            await store.write(ended, run.key)
            (due,) = await store.read(lambda tx: tx.callbacks.list_due(at=AT, limit=9))
            tried = replace(due.callback, tries=1, sent_at=AT, status_code=503, error="\x00 no \ud800")
            begun = await store.write(lambda tx: tx.callbacks.put(due, tried, due_at=UNTIL))

            assert begun == DueCallback("runs", run.id, tried, UNTIL)
            assert await store.write(lambda tx: tx.callbacks.put(due, tried, due_at=LATER)) is None
            assert await store.read(lambda tx: tx.callbacks.list_due(at=AT, limit=9)) == []
            assert await store.read(lambda tx: tx.callbacks.list_due(at=UNTIL, limit=9)) == [begun]
            assert begun is not None
            await store.write(lambda tx: tx.callbacks.put(begun, tried, due_at=None))
            assert await store.read(lambda tx: tx.callbacks.list_due(at=UNTIL, limit=9)) == []
            assert (await store.read(lambda tx: tx.runs.get(run.id))).callback == tried

    async def test_those_that_may_be_used_are_changed(self) -> None:
        """Not what was sent or given up."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            first, second = [await store.write(self.add_run, agent.id) for _ in range(2)]
            for run in (first, second):
                await store.write(lambda tx, run=run: tx.callbacks.request(run, Callback(url=URL), at=AT))  # type: ignore[misc]
                await store.write(claimed, run.key)
                await store.write(ended, run.key)
            due = next(
                one for one in await store.read(lambda tx: tx.callbacks.list_due(at=AT, limit=9)) if one.id == first.id
            )
            await store.write(lambda tx: tx.callbacks.put(due, due.callback, due_at=None))
            sealed = Callback(url=f"{URL}?***", sealed="c2VhbGVk")
            changed = await store.write(lambda tx: tx.callbacks.change_all(lambda one: sealed))
            again = await store.write(lambda tx: tx.callbacks.change_all(lambda one: sealed))
            callbacks = [await store.read(lambda tx, run=run: tx.runs.get(run.id).callback) for run in (first, second)]  # type: ignore[misc]

            assert (changed, again, callbacks) == (1, 0, [Callback(url=URL), sealed])
