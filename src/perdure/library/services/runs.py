"""Runs: what became of messages, step by step; following one, and stopping it. Jobs: batches of messages, and runs as
older clients know them; a run's job has the uuid of the run."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from perdure.app import App
from perdure.core.agents import Agent
from perdure.core.errors import Conflict, IdempotencyMismatch, NotFound
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import PREFIXES, AgentId, BatchId, ConversationId, RunId, ToolId, derived_id
from perdure.core.messages import HISTORY_KINDS, Message
from perdure.core.runs import Batch, Callback, Run, RunFilter, RunKey, Step, Usage
from perdure.domain.conversations.spans import Span, spans_of
from perdure.domain.conversations.units import join_batches
from perdure.engine.run.batch import digest_of
from perdure.library.checks import Page, check_callback, check_number, check_text
from perdure.library.services.messages import BatchPart, MessageService
from perdure.library.units import find_conversation
from perdure.storage.tx import Tx

T = TypeVar("T")

UNENDED_MAX = 1_000
"""Runs of an agent that are cancelled at a time."""


class RunService:
    """The operations on runs. Where an agent is given, the run of another one is not found."""

    def __init__(self, app: App) -> None:
        self._app, self._ports = app, app.ports

    async def get(self, run_id: RunId, agent_id: AgentId | None = None) -> Run:
        """Raises: InvalidInput, NotFound."""
        return await self._ports.store.read(find_run, run_id, agent_id)

    async def list(self, where: RunFilter, page: Page) -> Sequence[Run]:
        """A page of runs. Raises: NotFound: the page begins at no run of these agents."""

        def read(tx: Tx) -> Sequence[Run]:
            def cursor(run_id: str | None) -> Run | None:
                run = None if run_id is None else tx.runs.get(RunId(run_id), hidden=True)
                if run is not None and where.agent_ids and run.key.agent_id not in where.agent_ids:
                    raise NotFound("run", run.id)
                return run

            after, before = cursor(page.after), cursor(page.before)
            return tx.runs.page(where, limit=page.limit, newest_first=not page.ascending, after=after, before=before)

        return await self._ports.store.read(read)

    async def list_messages(
        self, run_id: RunId, page: Page, show: Callable[[Run, Message], Sequence[T]], *, id_of: Callable[[T], str]
    ) -> Sequence[T]:
        """A page of what `show` makes of the run's messages, those of the caller and those of a conversation that was
        reset included; what it makes of one message is not split. Raises: NotFound."""

        def read(tx: Tx) -> Sequence[Sequence[T]]:
            run = tx.runs.get(run_id)
            shown = (show(run, message) for message in join_batches(list_run_messages(tx, run)))
            return page.select(list(filter(None, shown)), kind="message", id_of=lambda parts: id_of(parts[0]))

        return page.flatten(await self._ports.store.read(read))

    async def delete(self, run_id: RunId) -> Run:
        """Hide a run from lists and look-ups, and return it; its messages stay in the history. Raises: NotFound;
        Conflict: it has not ended, or waits for an answer."""

        def hide(tx: Tx) -> Run:
            run = tx.runs.get(run_id)
            line = tx.conversations.get_by_seq(run.key.agent_id, run.conversation_seq)
            if not run.ended or line.pending_run_seq == run.key.seq:
                raise Conflict(f"{run_id} has not ended: cancel it first")
            tx.runs.hide(run.key)
            return run

        return await self._ports.store.write(hide)

    async def list_steps(self, run_id: RunId, page: Page) -> tuple[Run, Sequence[Step], Agent]:
        """The run, a page of its steps, and its agent. Raises: NotFound."""

        def read(tx: Tx) -> tuple[Run, Sequence[Step], Agent]:
            run, steps = _load_steps(tx, run_id)
            selected = page.select(steps, kind="step", id_of=lambda step: step.id)
            return run, selected, tx.agents.get(run.key.agent_id)

        return await self._ports.store.read(read)

    async def get_usage(self, run_id: RunId) -> Usage:
        """What the run has cost so far. Raises: NotFound."""
        run, steps = await self._ports.store.read(_load_steps, run_id)
        return run.usage if run.ended else sum((step.usage for step in steps), Usage())

    async def get_spans(self, run_id: RunId) -> tuple[Run, Sequence[Span]]:
        """The run, and its time line: the run, its model calls and tool calls, by their starts. Raises: NotFound."""

        def read(tx: Tx) -> tuple[Run, Sequence[Span]]:
            run = tx.runs.get(run_id)
            steps, starts = tx.steps.list_by_run(run.key), tx.runs.get_call_starts(run.key)
            began = {call_id: at for call_id, (at, _) in starts.items()}
            return run, spans_of(run, steps, list_run_messages(tx, run), began)

        return await self._ports.store.read(read)

    async def list_tool_ids(self, run_id: RunId) -> tuple[Run, Sequence[ToolId]]:
        """The run, and the tools whose results it holds, each once; a tool that is deleted has no id. Raises:
        NotFound."""

        def read(tx: Tx) -> tuple[Run, Sequence[ToolId]]:
            run = tx.runs.get(run_id)
            names = dict.fromkeys(result.name for message in list_run_messages(tx, run) for result in message.results)
            tools = [tx.tools.find_by_name(name) for name in names]
            return run, [tool.id for tool in tools if tool is not None]

        return await self._ports.store.read(read)

    def follow(self, run: Run, *, after: int = 0) -> AsyncIterator[StoredEvent | Delta]:
        """The events of a run with a number above `after`, until it has ended, and previews."""
        check_number("after", after)
        return self._app.runner.follow(run, after=after)

    @property
    def stream_retention(self) -> timedelta:
        """How long the deltas of a background run are stored."""
        return timedelta(seconds=self._ports.settings.keep_deltas_s)

    def keeps_stream(self, run: Run) -> bool:
        """Whether the deltas of a background run are still stored."""
        return run.created_at >= self._ports.clock.now() - self.stream_retention

    async def cancel(self, run_id: RunId, agent_id: AgentId | None = None) -> Run:
        """Ask a run to stop; the run as it then stands. Calls at which it has stopped are given up."""
        if agent_id is not None:
            await self.get(run_id, agent_id)
        return await self._app.runner.cancel(run_id)

    async def cancel_all(
        self,
        agent_id: AgentId | None,
        *,
        conversation: ConversationId | None = None,
        whole_agent: bool = False,
        run_ids: Collection[RunId] | None = None,
    ) -> Sequence[Run]:
        """Ask all runs of a conversation (None: the agent's first) that have not ended to stop, or those that have
        stopped at calls; the runs as they then stand.

        Args:
            whole_agent: the runs of all conversations of the agent.
            run_ids: these runs of the agent instead, also those that have ended.
        Raises: InvalidInput, NotFound, StoreError.
        """

        def read(tx: Tx) -> Sequence[Run]:
            if agent_id is not None and (whole_agent or run_ids is not None):
                tx.agents.model(agent_id)
                if run_ids is not None:
                    return [find_run(tx, run_id, agent_id) for run_id in dict.fromkeys(run_ids)]
                return _list_unended(tx, agent_id, None)
            found = find_conversation(tx, agent_id, conversation)
            return _list_unended(tx, found.agent_id, found.seq)

        return [await self._app.runner.cancel(run.id) for run in await self._ports.store.read(read)]

    async def find_resumable(
        self,
        agent_id: AgentId | None,
        conversation: ConversationId | None,
        *,
        run_id: RunId | None = None,
        idempotency_key: str | None = None,
    ) -> Run | None:
        """The run of a conversation with this id, or else this key, or else the one that is under way; None: there is
        none. Raises: InvalidInput; NotFound: the conversation has no run of this id."""

        def read(tx: Tx) -> Run | None:
            line = find_conversation(tx, agent_id, conversation)
            if run_id is not None:
                run = tx.runs.get(run_id)
                if (run.key.agent_id, run.conversation_seq) != (line.agent_id, line.seq):
                    raise NotFound("run", run.id)
                return run
            if idempotency_key is not None:
                known = tx.runs.find_by_key(line.agent_id, line.seq, idempotency_key)
                return None if known is None else known[0]
            return next((run for run in _list_unended(tx, line.agent_id, line.seq) if not run.ended), None)

        return await self._ports.store.read(read)


def find_run(tx: Tx, run_id: RunId, agent_id: AgentId | None) -> Run:
    """The run of this id; of this agent, if one is given. Raises: InvalidInput; NotFound, also for another agent's."""
    check_text("run_id", run_id)
    run = tx.runs.get(run_id)
    if agent_id is not None and run.key.agent_id != agent_id:
        raise NotFound("run", run_id, hint=f"agent {tx.agents.get(agent_id).name!r} has no such run")
    return run


def list_run_messages(tx: Tx, run: Run) -> Sequence[Message]:
    """The messages of a run, those of the caller and those of a conversation that was reset included; none of a deleted
    conversation."""
    try:
        tx.conversations.get(run.conversation_id)
    except NotFound:
        return []
    return [
        message
        for message in tx.messages.list_by_run(run, reset=True)
        # A run that goes on with answered calls begins with the message of the run before.
        if message.kind in HISTORY_KINDS and message.run_seq == run.key.seq
    ]


def _list_unended(tx: Tx, agent_id: AgentId, conversation_seq: int | None) -> Sequence[Run]:
    """The runs that have not ended, then those that have stopped at calls which wait for somebody."""
    where = RunFilter(agent_ids=(agent_id,), conversation_seq=conversation_seq, statuses=("queued", "running"))
    stopped = [
        tx.runs.get_by_key(RunKey(agent_id, line.pending_run_seq))
        for line in tx.conversations.list_pending(agent_id, limit=UNENDED_MAX)
        if line.pending_run_seq is not None and conversation_seq in (None, line.seq)
    ]
    return [*tx.runs.page(where, limit=UNENDED_MAX), *stopped]


def _load_steps(tx: Tx, run_id: RunId) -> tuple[Run, Sequence[Step]]:
    """The run and its steps. Raises: NotFound."""
    run = tx.runs.get(run_id)
    return run, tx.steps.list_by_run(run.key)


Job = Run | Batch

RUNS_MAX = 1_000_000
"""More runs than a batch has."""


class JobService:
    """The operations on jobs, and on batches alone."""

    def __init__(self, app: App, messages: MessageService, runs: RunService) -> None:
        self._app, self._ports, self._messages, self._runs = app, app.ports, messages, runs

    async def send_batch(
        self, parts: Sequence[BatchPart], *, callback: Callback | None = None, idempotency_key: str | None = None
    ) -> Batch:
        """Accept all requests of a batch, or none; requests to the same agent are answered one after another.

        Args:
            callback: where the end of the last run is reported.
            idempotency_key: the same key again is the same batch.
        Raises: InvalidInput, RequestRefused, IdempotencyMismatch, StoreError.
        """
        check_callback(callback)
        requests = await self._messages.prepare_batch(parts)
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
        """Raises: NotFound."""
        return await self._ports.store.read(lambda tx: tx.batches.get(batch_id))

    async def list_batches(self, page: Page) -> Sequence[Batch]:
        """A page of batches. Raises: NotFound: the batch of a cursor."""

        def read(tx: Tx) -> Sequence[Batch]:
            after, before = (
                None if cursor is None else tx.batches.get(BatchId(cursor), deleted=True)
                for cursor in (page.after, page.before)
            )
            return tx.batches.page(ascending=page.ascending, limit=page.limit, after=after, before=before)

        return await self._ports.store.read(read)

    async def list_messages(self, batch_id: BatchId, agent_id: AgentId | None, page: Page) -> Sequence[Message]:
        """A page of what the runs of a batch answered and their tools returned, by time; of one agent, if one is given.

        Raises: NotFound: the batch, or the message of a cursor.
        """

        def read(tx: Tx) -> Sequence[Message]:
            tx.batches.get(batch_id)
            places = tx.batches.list_message_ids(batch_id, agent_id=agent_id)
            selected = page.select(places, kind="message", id_of=lambda place: place[0])
            found: dict[tuple[AgentId, int], Message] = {}
            for owner in {place[1] for place in selected}:
                seqs = [seq for _, agent, seq in selected if agent == owner]
                found |= {(owner, message.seq): message for message in tx.messages.list_by_seqs(owner, seqs)}
            return [found[place[1:]] for place in selected if place[1:] in found]

        return await self._ports.store.read(read)

    async def cancel_batch(self, batch_id: BatchId) -> Batch:
        """Ask the runs of a batch that have not ended to stop, and give up the calls at which others have stopped; the
        batch as it then stands. Raises: NotFound."""

        def read(tx: Tx) -> Sequence[Run]:
            tx.batches.get(batch_id)
            runs = tx.runs.page(RunFilter(batch_id=batch_id), limit=RUNS_MAX)
            return [run for run in runs if not run.ended or run.stop_reason == "requires_approval"]

        for run in await self._ports.store.read(read):  # the newest first, so that none begins because another stops
            await self._app.runner.cancel(run.id)
        return await self.get_batch(batch_id)

    async def list(self, page: Page, *, active: bool = False) -> Sequence[Job]:
        """A page of jobs in order of creation; `active` ones have not ended. Raises: NotFound: the job of a cursor."""
        where = RunFilter(statuses=("queued", "running") if active else ())

        def read(tx: Tx) -> Sequence[Job]:
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
            jobs = list(heapq.merge(batches, runs, key=_order, reverse=not page.ascending))
            return jobs[-page.limit :] if page.from_end else jobs[: page.limit]

        return await self._ports.store.read(read)

    async def get(self, job_id: str) -> Job:
        """Raises: NotFound."""
        return await self._ports.store.read(_find, job_id)

    async def cancel(self, job_id: str) -> Job:
        """Ask a job to stop; the job as it then stands. Raises: NotFound."""
        job = await self.get(job_id)
        return await (self.cancel_batch(job.id) if isinstance(job, Batch) else self._runs.cancel(job.id))

    async def delete(self, job_id: str) -> Job:
        """Delete a job, and return it: a run is hidden, the runs of a batch stay. Raises: NotFound; Conflict: it has
        not ended."""

        def delete(tx: Tx) -> Batch | None:
            batch = tx.batches.find(BatchId(job_id))
            if batch is not None:
                if not batch.ended:
                    raise Conflict(f"{job_id} has not ended: cancel it first")
                tx.batches.delete(batch.id)
            return batch

        return await self._ports.store.write(delete) or await self._runs.delete(_run_id_of(job_id))


def _find(tx: Tx, job_id: str, *, deleted: bool = False) -> Job:
    """The job of this id; with `deleted` also one that no list has any more. Raises: NotFound."""
    batch = tx.batches.find(BatchId(job_id), deleted=deleted)
    if batch is not None:
        return batch
    try:
        return tx.runs.get(_run_id_of(job_id), hidden=deleted)
    except NotFound:
        raise NotFound("job", job_id) from None


def _run_id_of(job_id: str) -> RunId:
    """The id of the run that a job shows."""
    return RunId(PREFIXES["run"] + job_id.removeprefix(PREFIXES["job"]))


def _order(job: Job) -> tuple[datetime, bool]:
    """The order of jobs of different kinds; each list is in its own order."""
    return job.created_at, isinstance(job, Run)
