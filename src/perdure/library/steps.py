"""The model calls of an agent: what each was sent, and what the next will be."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.context.request.explain import Explanation
from perdure.context.window.overview import ContextOverview
from perdure.core.ids import ConversationId, RunId, StepId
from perdure.core.models import Exchange, ModelRequest
from perdure.library.agent_base import AsyncAgentBase
from perdure.library.services.steps import StepInfo, overview_of


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

    async def exchange(self, step_id: StepId) -> Exchange | None:
        """What a step of this agent sent and received, with keys masked; None for a model without HTTP.

        The messages of the request are not in it: they are in the log. Raises: NotFound, also for another agent's.
        """
        return await self._services.steps.get_exchange(self.id, step_id)
