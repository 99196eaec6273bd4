"""Jobs: batches of messages, and runs as older clients know them; a run's job has the uuid of the run."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from perdure.core.errors import Conflict, IdempotencyMismatch, NotFound
from perdure.core.ids import PREFIXES, AgentId, BatchId, RunId, derived_id
from perdure.core.messages import Message
from perdure.core.runs import Batch, Callback, Run, RunFilter
from perdure.engine.records.run_request import RunRequest, callback_to_store
from perdure.engine.run.batch import digest_of
from perdure.library.messages.requests import prepare_batch
from perdure.library.parts.checks import Page
from perdure.library.parts.part import AsyncPart, reads
from perdure.library.runs.runs import AsyncRuns
from perdure.storage.tx import Tx

Job = Run | Batch

RUNS_MAX = 1_000_000
"""More runs than a batch has."""


class Jobs(AsyncPart):
    """All jobs, and the batches alone."""

    async def send_batch(
        self, parts: Sequence[RunRequest], *, callback: Callback | None = None, idempotency_key: str | None = None
    ) -> Batch:
        """Accept all requests of a batch, or none; requests to the same agent are answered one after another.

        Args:
            callback: where the end of the last run is reported.
            idempotency_key: the same key again is the same batch.
        Raises: InvalidInput, RequestRefused, IdempotencyMismatch, StoreError.
        """
        callback = callback and callback_to_store(callback, self._ports.cipher)
        requests = await prepare_batch(self._app, parts)
        batch_id = self._ports.ids.new("job")
        if idempotency_key is not None:
            batch_id = await self._ports.store.read(lambda tx: derived_id("job", tx.org_id, idempotency_key))
        batch = Batch(
            id=BatchId(batch_id), digest=digest_of(requests), created_at=self._ports.clock.now(), callback=callback
        )
        known = await self._ports.store.read(lambda tx: tx.batches.find(batch.id))  # its hooks were called then
        accepted = known or await self._app.runner.accept_batch(batch, requests)
        if idempotency_key is not None and accepted.digest != batch.digest:
            raise IdempotencyMismatch(idempotency_key)
        return accepted

    async def get_batch(self, batch_id: BatchId) -> Batch:
        """The batch of this id. Raises: NotFound."""
        return await self._ports.store.read(lambda tx: tx.batches.get(batch_id))

    @reads
    def list_batches(self, tx: Tx, page: Page) -> Sequence[Batch]:
        """A page of batches. Raises: NotFound: the batch of a cursor."""
        after, before = (
            None if cursor is None else tx.batches.get(BatchId(cursor), deleted=True)
            for cursor in (page.after, page.before)
        )
        return tx.batches.page(ascending=page.ascending, limit=page.limit, after=after, before=before)

    @reads
    def list_messages(self, tx: Tx, batch_id: BatchId, agent_id: AgentId | None, page: Page) -> Sequence[Message]:
        """A page of what the runs of a batch answered and their tools returned, by time; of one agent, if one is given.

        Raises: NotFound: the batch, or the message of a cursor.
        """
        tx.batches.get(batch_id)
        places = tx.batches.list_message_ids(batch_id, agent_id=agent_id)
        selected = page.select(places, kind="message", id_of=lambda place: place[0])
        found: dict[tuple[AgentId, int], Message] = {}
        for owner in {place[1] for place in selected}:
            seqs = [seq for _, agent, seq in selected if agent == owner]
            found |= {(owner, message.seq): message for message in tx.messages.list_by_seqs(owner, seqs)}
        return [found[place[1:]] for place in selected if place[1:] in found]

    async def cancel_batch(self, batch_id: BatchId) -> Batch:
        """Ask the runs of a batch that have not ended to stop, and give up the calls at which others have stopped;
        return the batch as it is then. Raises: NotFound."""

        def read(tx: Tx) -> Sequence[Run]:
            """Return the runs that are still to stop."""
            tx.batches.get(batch_id)
            runs = tx.runs.page(RunFilter(batch_id=batch_id), limit=RUNS_MAX)
            return [run for run in runs if not run.ended or run.stop_reason == "requires_approval"]

        for run in await self._ports.store.read(read):  # the newest first, so that none begins because another stops
            await self._app.runner.cancel(run.id)
        return await self.get_batch(batch_id)

    @reads
    def list(self, tx: Tx, page: Page, *, active: bool = False) -> Sequence[Job]:
        """A page of jobs in order of creation; `active` ones have not ended. Raises: NotFound: the job of a cursor."""
        where = RunFilter(statuses=("queued", "running") if active else ())
        after, before = (
            None if cursor is None else _find(tx, cursor, deleted=True) for cursor in (page.after, page.before)
        )
        # A batch stands before the runs of its time: those that came with it.
        runs: Sequence[Job] = tx.runs.page(
            where,
            limit=page.limit,
            newest_first=not page.ascending,
            after=after.created_at if isinstance(after, Batch) else after,
            before=before.created_at if isinstance(before, Batch) else before,
        )
        batches: Sequence[Job] = tx.batches.page(
            only_unended=active,
            ascending=page.ascending,
            limit=page.limit,
            after=after.created_at if isinstance(after, Run) else after,
            before=before.created_at if isinstance(before, Run) else before,
        )
        jobs = list(
            heapq.merge(
                batches, runs, key=lambda job: (job.created_at, isinstance(job, Run)), reverse=not page.ascending
            )
        )
        return jobs[-page.limit :] if page.from_end else jobs[: page.limit]

    async def get(self, job_id: str) -> Job:
        """The batch or run of this job id. Raises: NotFound."""
        return await self._ports.store.read(_find, job_id)

    async def cancel(self, job_id: str) -> Job:
        """Ask a job to stop, and return it as it is then. Raises: NotFound."""
        job = await self.get(job_id)
        return await (self.cancel_batch(job.id) if isinstance(job, Batch) else AsyncRuns(self._app).cancel(job.id))

    async def delete(self, job_id: str) -> Job:
        """Delete a job and return it; a run is hidden, a batch's runs stay. Raises: NotFound; Conflict: unfinished."""

        def delete(tx: Tx) -> Batch | None:
            """Delete the batch and return it; None: the id is a run's. Raises: Conflict: it has not ended."""
            batch = tx.batches.find(BatchId(job_id))
            if batch is not None:
                if not batch.ended:
                    raise Conflict(f"{job_id} has not ended: cancel it first")
                tx.batches.delete(batch.id)
            return batch

        return await self._ports.store.write(delete) or await AsyncRuns(self._app).hide_run(_run_id_of(job_id))


def _find(tx: Tx, job_id: str, *, deleted: bool = False) -> Job:
    """Return the job with this id; with `deleted` also a deleted one. Raises: NotFound."""
    batch = tx.batches.find(BatchId(job_id), deleted=deleted)
    if batch is not None:
        return batch
    try:
        return tx.runs.get(_run_id_of(job_id), hidden=deleted)
    except NotFound:
        raise NotFound("job", job_id) from None


def _run_id_of(job_id: str) -> RunId:
    """The id of the run that is this job."""
    return RunId(PREFIXES["run"] + job_id.removeprefix(PREFIXES["job"]))
