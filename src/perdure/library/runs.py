"""The runs of an agent: list them, replay and export one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.runs import Run, RunFilter, RunStatus
from perdure.library.checks import check_limit
from perdure.library.paging import Page
from perdure.library.services import Services
from perdure.library.services.replays import Replay


class AsyncRuns:
    """The runs of an agent; `AsyncAgent` has these methods."""

    _services: Services
    id: AgentId

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
