"""The runs of an agent: list them, replay and export one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import ConversationId, RunId
from perdure.core.runs import Run, RunFilter, RunStatus
from perdure.library.agent_base import AsyncAgentBase
from perdure.library.checks import check_limit
from perdure.library.paging import Page
from perdure.library.services.replays import Replay


class AsyncRuns(AsyncAgentBase):
    """The runs of an agent; `AsyncAgent` has these methods."""

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
        where = RunFilter(agent_ids=(self.id,), conversation_id=conversation, statuses=tuple(statuses))
        return await self._services.runs.list(where, Page(limit, ascending=False, after=before))

    async def run(self, run_id: RunId) -> Run:
        """A run of this agent. Raises: NotFound, also for another agent's."""
        return await self._services.runs.get(run_id, self.id)

    async def follow(self, run_id: RunId, *, after: int = 0) -> AsyncIterator[StoredEvent | Delta]:
        """The events of a run of this agent after number `after`, until it has ended. Raises: NotFound, StoreError."""
        async for sent in self._services.runs.follow(await self.run(run_id), after=after):
            yield sent

    async def cancel(self, run_id: RunId) -> Run:
        """Ask a run of this agent to stop; it ends with the stop reason `cancelled`. Calls at which it has stopped are
        given up. Raises: NotFound, StoreError."""
        return await self._services.runs.cancel(run_id, self.id)

    async def replay(self, run_id: RunId, *, model: str | None = None, system: str | None = None) -> Replay:
        """Send the requests of a run again, to another model or with another system text, and return the old and new
        answers with tokens and price. Nothing is stored, and no tool runs: the model is given the recorded results.
        Where it calls something else than the run did, the replay ends; `end` says why.

        Args:
            system: the whole system text, in place of what was sent, memory included.
        Raises: InvalidInput; NotFound, also for another agent's; ModelNotFound; ReplayMismatch; Conflict: the run has
            not ended, or has made no request.
        """
        return await self._services.replays.replay(run_id, model=model, system=system, agent_id=self.id)

    async def export_run(self, run_id: RunId) -> Mapping[str, Any]:
        """A run as JSON: messages, and steps with requests, responses (keys are masked), tokens and prices.

        Raises: NotFound, also for another agent's.
        """
        return await self._services.replays.export(run_id, self.id)
