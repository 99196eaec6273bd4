"""The runs of an agent, or of all: what became of messages, step by step; following one, and stopping it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import timedelta
from typing import TypeVar, get_args

from perdure.core.agents import Agent
from perdure.core.errors import Conflict, NotFound
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import AgentId, ConversationId, RunId, ToolId
from perdure.core.messages import Message
from perdure.core.runs import Run, RunFilter, RunKey, RunStatus, Step, Usage
from perdure.domain.conversations.spans import RunSpan, spans_of
from perdure.domain.conversations.units import join_batches
from perdure.library.parts.checks import Page, check_choice, check_limit, check_number
from perdure.library.parts.part import find_conversation, find_run, list_run_messages, reads, writes
from perdure.library.runs.replays import AsyncReplays
from perdure.storage.tx import Tx

T = TypeVar("T")

UNENDED_MAX = 1_000
"""Runs of an agent that are cancelled at a time."""


class AsyncRuns(AsyncReplays):
    """The runs of an agent, or of all; `AsyncAgent` has these methods. The run of another agent is not found."""

    async def runs(
        self,
        *,
        conversation: ConversationId | None = None,
        statuses: Sequence[RunStatus] = (),
        limit: int = 20,
        before: RunId | None = None,
    ) -> Sequence[Run]:
        """A page of the agent's runs, newest first, of one conversation or of all, in any of these statuses.

        Args:
            before: the last run of the page before.
        Raises: InvalidInput, NotFound.
        """
        check_limit(limit)
        for status in statuses:
            check_choice("a status", status, get_args(RunStatus))
        where = RunFilter(agent_ids=(self.id,), conversation_id=conversation, statuses=tuple(statuses))
        return await self.page_of_runs(where, Page(limit, ascending=False, after=before))

    @reads
    def page_of_runs(self, tx: Tx, where: RunFilter, page: Page) -> Sequence[Run]:
        """A page of runs. Raises: NotFound: the page begins at no run of these agents."""

        def cursor(run_id: str | None) -> Run | None:
            """Return the run that the page begins after. Raises: NotFound."""
            run = None if run_id is None else tx.runs.get(RunId(run_id), hidden=True)
            if run is not None and where.agent_ids and run.key.agent_id not in where.agent_ids:
                raise NotFound("run", run.id)
            return run

        after, before = cursor(page.after), cursor(page.before)
        return tx.runs.page(where, limit=page.limit, newest_first=not page.ascending, after=after, before=before)

    async def run(self, run_id: RunId) -> Run:
        """A run of this agent. Raises: NotFound, also for another agent's."""
        return await self._ports.store.read(find_run, run_id, self._agent_id)

    async def follow(self, run_id: RunId, *, after: int = 0) -> AsyncIterator[StoredEvent | Delta]:
        """The events of a run of this agent after number `after`, until it has ended. Raises: NotFound, StoreError."""
        async for sent in self.follow_run(await self.run(run_id), after=after):
            yield sent

    def follow_run(self, run: Run, *, after: int = 0) -> AsyncIterator[StoredEvent | Delta]:
        """The events of a run with a number above `after`, until it has ended, and previews."""
        check_number("after", after)
        return self._app.runner.follow(run, after=after)

    async def cancel(self, run_id: RunId) -> Run:
        """Ask a run of this agent to stop; it ends with the stop reason `cancelled`. Calls at which it has stopped are
        given up; one behind another run ends at once, its message in no history. Raises: NotFound, StoreError."""
        if self._agent_id is not None:
            await self.run(run_id)
        return await self._app.runner.cancel(run_id)

    async def cancel_all(
        self,
        *,
        conversation: ConversationId | None = None,
        whole_agent: bool = False,
        run_ids: Collection[RunId] | None = None,
    ) -> Sequence[Run]:
        """Ask all runs of a conversation (None: the agent's first) to stop that have not ended, or that have stopped at
        calls; return them as they are then.

        Args:
            whole_agent: the runs of all conversations of the agent.
            run_ids: these runs of the agent instead, also those that have ended.
        Raises: InvalidInput, NotFound, StoreError.
        """

        def read(tx: Tx) -> Sequence[Run]:
            """Return the runs to stop."""
            if self._agent_id is not None and (whole_agent or run_ids is not None):
                tx.agents.model(self._agent_id)
                if run_ids is not None:
                    return [find_run(tx, run_id, self._agent_id) for run_id in dict.fromkeys(run_ids)]
                return _list_unended(tx, self._agent_id, None)
            found = find_conversation(tx, self._agent_id, conversation)
            return _list_unended(tx, found.agent_id, found.seq)

        return [await self._app.runner.cancel(run.id) for run in await self._ports.store.read(read)]

    @reads
    def find_resumable(
        self,
        tx: Tx,
        conversation: ConversationId | None,
        *,
        run_id: RunId | None = None,
        idempotency_key: str | None = None,
    ) -> Run | None:
        """The run of a conversation with this id, else with this key, else the unfinished one; None: there is none.
        Raises: InvalidInput; NotFound: the conversation has no run of this id."""
        found = find_conversation(tx, self._agent_id, conversation)
        if run_id is not None:
            run = tx.runs.get(run_id)
            if (run.key.agent_id, run.conversation_seq) != (found.agent_id, found.seq):
                raise NotFound("run", run.id)
            return run
        if idempotency_key is not None:
            known = tx.runs.find_by_key(found.agent_id, found.seq, idempotency_key)
            return None if known is None else tx.runs.get(known[0].id)
        return next((run for run in _list_unended(tx, found.agent_id, found.seq) if not run.ended), None)

    async def messages_of_run(
        self, run_id: RunId, page: Page, show: Callable[[Run, Message], Sequence[T]], *, id_of: Callable[[T], str]
    ) -> Sequence[T]:
        """A page of `show(message)` for a run's messages, the caller's and reset ones included; the results for one
        message are not split. Raises: NotFound."""

        def read(tx: Tx) -> Sequence[T]:
            """Return the page of what is shown of the run's messages."""
            run = tx.runs.get(run_id)
            shown = (show(run, message) for message in join_batches(list_run_messages(tx, run)))
            return page.select_shown(shown, id_of=id_of)

        return await self._ports.store.read(read)

    @writes
    def hide_run(self, tx: Tx, run_id: RunId) -> Run:
        """Hide a run from lists and look-ups, and return it; its messages stay in the history. Raises: NotFound;
        Conflict: it has not ended, or waits for an answer."""
        run = tx.runs.get(run_id)
        conversation = tx.conversations.get_by_seq(run.key.agent_id, run.conversation_seq)
        if not run.ended or conversation.pending_run_seq == run.key.seq:
            raise Conflict(f"{run_id} has not ended: cancel it first")
        tx.runs.hide(run.key)
        return run

    @reads
    def steps_of_run(self, tx: Tx, run_id: RunId, page: Page) -> tuple[Run, Sequence[Step], Agent]:
        """The run, a page of its steps, and its agent. Raises: NotFound."""
        run = tx.runs.get(run_id)
        selected = page.select(tx.steps.list_by_run(run.key), kind="step", id_of=lambda step: step.id)
        return run, selected, tx.agents.get(run.key.agent_id)

    @reads
    def usage_of_run(self, tx: Tx, run_id: RunId) -> Usage:
        """The tokens that the run has used, until now if it has not ended. Raises: NotFound."""
        run = tx.runs.get(run_id)
        return run.usage if run.ended else sum((step.usage for step in tx.steps.list_by_run(run.key)), run.usage)

    @reads
    def spans_of_run(self, tx: Tx, run_id: RunId) -> tuple[Run, Sequence[RunSpan]]:
        """The run, and its time line: the run, its model calls and tool calls, by their starts. Raises: NotFound."""
        run = tx.runs.get(run_id)
        steps, starts = tx.steps.list_by_run(run.key), tx.runs.get_call_starts(run.key)
        began = {call_id: at for call_id, (at, _) in starts.items()}
        return run, spans_of(run, steps, list_run_messages(tx, run), began)

    @reads
    def tools_of_run(self, tx: Tx, run_id: RunId) -> tuple[Run, Sequence[ToolId]]:
        """The run, and the tools whose results it has, once each; deleted tools have no id. Raises: NotFound."""
        run = tx.runs.get(run_id)
        names = dict.fromkeys(result.name for message in list_run_messages(tx, run) for result in message.results)
        tools = [tx.tools.find_by_name(name) for name in names]
        return run, [tool.id for tool in tools if tool is not None]

    @property
    def stream_retention(self) -> timedelta:
        """How long the deltas of a background run are stored."""
        return timedelta(seconds=self._ports.settings.keep_deltas_s)

    def keeps_stream(self, run: Run) -> bool:
        """Whether the deltas of a background run are still stored."""
        return run.created_at >= self._ports.clock.now() - self.stream_retention


def _list_unended(tx: Tx, agent_id: AgentId, conversation_seq: int | None) -> Sequence[Run]:
    """Return an agent's or conversation's unfinished runs, newest first, then those whose calls wait for answers."""
    where = RunFilter(agent_ids=(agent_id,), conversation_seq=conversation_seq, statuses=("queued", "running"))
    stopped = [
        tx.runs.get_by_key(RunKey(agent_id, conversation.pending_run_seq))
        for conversation in tx.conversations.list_pending(agent_id, limit=UNENDED_MAX)
        if conversation.pending_run_seq is not None and conversation_seq in (None, conversation.seq)
    ]
    return [*tx.runs.page(where, limit=UNENDED_MAX), *stopped]
