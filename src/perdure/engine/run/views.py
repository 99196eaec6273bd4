"""Views: what this process has already read of each conversation, so that a long one costs no more than a short one.

Derived, bounded, and safe to lose: a view is a prefix and the rows after it, both of which never change.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from perdure.core.agents import Agent
from perdure.core.errors import PerdureError, StoreError
from perdure.core.ids import AgentId
from perdure.core.messages import text_of
from perdure.core.runs import RunKey, Step
from perdure.engine.ports import Ports
from perdure.engine.run.accept import Accepted, Request, accept
from perdure.engine.run.begin import ask, begin, claim
from perdure.engine.run.interrupts import to_the_end
from perdure.engine.run.log import RunLog
from perdure.engine.run.progress import Progress, RequestParts
from perdure.engine.run.request import load_view
from perdure.engine.run.request_inputs import RequestInputs
from perdure.engine.search.recall import RecallPlan, plan_recall, plan_recall_of_run, recall
from perdure.storage.tx import Tx

__all__ = ["Views"]

logger = logging.getLogger(__name__)


class Views:
    """The newest views, at most `size` of them; and the transactions that begin a run and its steps with them."""

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._cached: OrderedDict[tuple[AgentId, int], RequestParts] = OrderedDict()
        self.capturing: set[AgentId] = set()
        """Agents whose conversations are to be captured, of those that were asked here."""

    async def begin(self, request: Request, ports: Ports, *, check_model: Callable[[str], None]) -> Accepted:
        """T1, with T2 and T3 where nothing is in the way. Raises: as `accept`."""
        inputs = self.inputs((request.agent_id, request.conversation_seq), ports)
        if not ports.hooks.wants("before_model"):
            said = [text_of(one.parts) for one in request.drafts if one.role == "user" and one.kind == "message"]
            plan = await ports.store.read(plan_recall, request.agent_id, request.conversation_seq, said, inputs)
            prepared = await _with_recall(inputs, plan, ports)
            try:
                accepted = await ports.store.write(begin, request, prepared, check_model=check_model, owner=ports.owner)
            except StoreError:
                raise
            except Exception as error:
                # T1 alone refuses what it refused. What went wrong behind it shows when the run is claimed.
                if not isinstance(error, PerdureError):
                    logger.exception("%s: its first request can't be made", request.run_id)
            else:
                if accepted.begun is not None:
                    self._remember(accepted.begun)
                return accepted
        return await ports.store.write(accept, request, inputs, check_model=check_model, owner=ports.owner)

    async def claim(
        self, key: RunKey, conversation_seq: int, ports: Ports, *, dead_owner: str | None = None
    ) -> Progress | None:
        """T2: the progress of taking the run; None if it can't be taken now."""
        inputs = self.inputs((key.agent_id, conversation_seq), ports)
        # To the end: who closes gives back what it holds, and a claim must not come behind that.
        return await to_the_end(ports.store.write(claim, key, inputs, owner=ports.owner, dead_owner=dead_owner))

    async def make_request(self, log: RunLog, ports: Ports) -> Progress:
        """T3: the progress of recording the next model call."""
        inputs = self.inputs((log.run.key.agent_id, log.run.conversation_seq), ports)
        if not log.steps:
            inputs = await _with_recall(inputs, await ports.store.read(plan_recall_of_run, log, inputs), ports)
        return self._remember(await ports.store.write(ask, log.run.key, inputs, log=log))

    async def load_request(self, log: RunLog, step: Step, ports: Ports) -> RequestParts:
        """What the request of a recorded model call is made of, read again from the log."""

        def load(tx: Tx) -> RequestParts:
            return RequestParts(tx.agents.get(log.run.key.agent_id), load_view(tx, log.run, step.recipe))

        parts = await ports.store.read(load)
        self._note_capture(parts.agent)
        return parts

    def extend(self, log: RunLog) -> None:
        """Add what an ended run has said to the view of its conversation, so that it need not be read."""
        key = (log.run.key.agent_id, log.run.conversation_seq)
        if (cached := self._cached.get(key)) is not None and log.run.ended and not log.open_calls:
            view = cached.view.extended(cached.view.following(log.messages))
            self._cached[key] = replace(cached, view=view)

    def inputs(self, key: tuple[AgentId, int], ports: Ports) -> RequestInputs:
        """What a unit of work that makes a request needs besides the store."""
        now = ports.clock.now()
        cached = self._cached.get(key)
        return RequestInputs(
            ids=ports.ids,
            counter=ports.counter,
            models=ports.models,
            settings=ports.settings,
            now=now,
            until=now + timedelta(seconds=ports.settings.lease_s),
            cached_view=None if cached is None else cached.view,
            cached_agent=None if cached is None else cached.agent,
        )

    def _remember(self, progress: Progress) -> Progress:
        parts = progress.request
        if progress.room is not None:
            parts = RequestParts(progress.room.agent, progress.room.view)
        if parts is not None:
            key = (progress.log.run.key.agent_id, progress.log.run.conversation_seq)
            self._note_capture(parts.agent)
            self._cached[key] = parts
            self._cached.move_to_end(key)
            while len(self._cached) > self._size:
                self._cached.popitem(last=False)
        return progress

    def _note_capture(self, agent: Agent) -> None:
        if agent.settings.get("auto_capture"):
            self.capturing.add(agent.id)
        elif self.capturing:
            self.capturing.discard(agent.id)


async def _with_recall(inputs: RequestInputs, plan: RecallPlan | None, ports: Ports) -> RequestInputs:
    """The inputs with what memory has on the newest message."""
    return inputs if plan is None else replace(inputs, recalled=await recall(plan, ports))
