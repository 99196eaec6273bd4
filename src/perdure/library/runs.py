"""The runs of an agent and their steps: list them, replay and export one, see what a model was sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from perdure.context.costs.ledger import CostLedger
from perdure.context.request.explain import Explanation
from perdure.context.window.overview import ContextOverview
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import ConversationId, RunId, StepId
from perdure.core.models import Exchange, ModelRequest
from perdure.core.runs import Run, RunFilter, RunStatus
from perdure.library.checks import Page, check_limit
from perdure.library.history import AsyncAgentBase
from perdure.library.services.replays import Replay
from perdure.library.services.steps import StepInfo, overview_of


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
        Raises: InvalidInput; NotFound, also for another agent's; ModelNotFound; ReplayMismatch; LimitReached; Conflict:
            the run has not ended, or has made no request.
        """
        return await self._services.replays.replay(run_id, model=model, system=system, agent_id=self.id)

    async def export_run(self, run_id: RunId) -> Mapping[str, Any]:
        """A run as JSON: messages, and steps with requests, responses (keys are masked), tokens and prices.

        Raises: NotFound, also for another agent's.
        """
        return await self._services.replays.export(run_id, self.id)


class AsyncSteps(AsyncAgentBase):
    """The model calls of an agent; `AsyncAgent` has these methods."""

    async def context(self, *, conversation: ConversationId | None = None) -> ContextOverview:
        """What fills the window of a conversation (default: the agent's first): tokens of each part, and what is free.

        The numbers are those that the engine certifies requests by: its estimates, corrected by what the provider
        measured. Raises: InvalidInput, NotFound.
        """
        return overview_of(await self._services.steps.preview(self.id, conversation))

    async def steps(
        self,
        *,
        conversation: ConversationId | None = None,
        run_id: RunId | None = None,
        limit: int = 20,
        before: StepId | None = None,
    ) -> Sequence[StepInfo]:
        """A page of the agent's model calls, newest first: all of them, or of one conversation or run.

        Args:
            before: the last step of the page before.
        Raises: InvalidInput; NotFound, also for what is another agent's.
        """
        return await self._services.steps.list(
            self.id, conversation=conversation, run_id=run_id, limit=limit, before=before
        )

    async def request(self, step_id: StepId) -> ModelRequest:
        """What the model was sent at a step of this agent, built again from the log, byte for byte.

        Its canonical form (`perdure.context.request.assemble.canonical`) is checked against the recorded digest; a step
        of an older store has none, and is not checked. `options` are not part of it: they are the agent's own if
        its settings are still the same, else the defaults; `exchange` tells which were sent.
        Raises: NotFound, also for another agent's; ReplayMismatch.
        """
        return await self._services.steps.build_request(self.id, step_id)

    async def explain(self, step_id: StepId) -> Explanation:
        """What each part of a step's request took: tokens, the provider's cache, the price.

        Raises: NotFound, also for another agent's; ReplayMismatch; InvalidInput: the catalog can't be read.
        """
        return await self._services.steps.explain(self.id, step_id)

    async def costs(self, *, conversation: ConversationId | None = None, limit: int = 1_000) -> CostLedger:
        """What a conversation (default: the agent's first) costs: its newest requests and the summaries since then.

        Each request tells the tokens, cache use and price of its parts, and what broke the prefix before it.

        Args:
            limit: how many requests, at most 10,000.
        Raises: InvalidInput: a wrong limit, or the catalog can't be read; NotFound.
        """
        return await self._services.steps.ledger(self.id, conversation, limit=limit)

    async def exchange(self, step_id: StepId) -> Exchange | None:
        """What a step of this agent sent and received, with keys masked; None for a model without HTTP.

        The messages of the request are not in it: they are in the log. Raises: NotFound, also for another agent's.
        """
        return await self._services.steps.get_exchange(self.id, step_id)
