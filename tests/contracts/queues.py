"""How much work waits."""

from __future__ import annotations

from perdure.core.runs import Callback
from perdure.storage.tx import Tx
from tests.contracts.base import AT, LATER, Contract, claimed
from tests.contracts.runs import ended


class QueueContract(Contract):
    async def test_runs_and_reports_are_counted_while_they_wait(self) -> None:
        """Queued, then running, then only the report of the one that has ended, from when it is due."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            await store.write(lambda tx: tx.callbacks.request(run, Callback(url="https://example.com"), at=AT))

            def lengths(tx: Tx) -> dict[str, int]:
                return {name: length for name, length in tx.queues.lengths(at=LATER).items() if length}

            assert await store.read(lengths) == {"runs_queued": 1}
            await store.write(claimed, run.key)
            assert await store.read(lengths) == {"runs_running": 1}
            await store.write(ended, run.key)
            assert await store.read(lengths) == {"callbacks": 1}
            assert set(await store.read(lambda tx: tx.queues.lengths(at=LATER))) == {
                *("embeddings", "files", "runs_queued", "runs_running", "schedules_late", "callbacks")
            }
