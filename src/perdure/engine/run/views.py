"""Views: what this process has already read of each conversation, so that a long one costs no more than a short one.

Derived, bounded, and safe to lose: a view is a prefix and the rows after it, both of which never change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from perdure.context.request.assemble import View
from perdure.core.agents import Agent
from perdure.core.ids import AgentId
from perdure.core.runs import RunKey, Step
from perdure.core.tx import Tx
from perdure.engine.ports import Ports
from perdure.engine.run.accept import Accepted, Request, accept
from perdure.engine.run.asking import Asking
from perdure.engine.run.interrupts import to_the_end
from perdure.engine.run.log import Progress, RunLog
from perdure.engine.run.request import Asked, CannotBegin, Full, ask, begin, claim, load_view
from perdure.engine.search.recall import NeedsRecall, recall_for

__all__ = ["Views"]

T = TypeVar("T")


class Views:
    """The newest views, at most `size` of them."""

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._kept: OrderedDict[tuple[AgentId, int], tuple[View, Agent]] = OrderedDict()
        self.capturing: set[AgentId] = set()
        """Agents whose conversations are to be captured, of those that were asked here."""

    async def begin(self, request: Request, ports: Ports, *, check_model: Callable[[str], None]) -> Accepted:
        """T1, with T2 and T3 where nothing is in the way. Raises: as `accept`."""
        asking = self.asking((request.agent_id, request.conversation_seq), ports)
        if asking.hooked:
            return await self._accepted(request, ports, asking, check_model=check_model)
        try:
            accepted = await _with_recall(
                lambda asking: ports.store.write(begin, request, asking, check_model=check_model, owner=ports.owner),
                asking,
                ports,
            )
        except CannotBegin:  # what is wrong with it shows when it is claimed, and ends the run
            return await self._accepted(request, ports, asking, check_model=check_model)
        if accepted.begun is not None:
            self._keep(accepted.begun)
        return accepted

    async def _accepted(
        self, request: Request, ports: Ports, asking: Asking, *, check_model: Callable[[str], None]
    ) -> Accepted:
        """T1 alone."""
        return await ports.store.write(
            accept,
            request,
            check_model=check_model,
            owner=ports.owner,
            now=asking.now,
            until=asking.until,
            asking=asking,
        )

    async def claim(
        self, key: RunKey, conversation_seq: int, ports: Ports, *, dead_owner: str | None = None
    ) -> Progress | None:
        """T2 (and T3): the progress of taking the run; None if it can't be taken now."""
        asking = self.asking((key.agent_id, conversation_seq), ports)
        # To the end: who closes gives back what it holds, and a claim must not come behind that.
        progress = await _with_recall(
            lambda asking: to_the_end(ports.store.write(claim, key, asking, owner=ports.owner, dead_owner=dead_owner)),
            asking,
            ports,
        )
        return None if progress is None else self._keep(progress)

    async def ask(self, log: RunLog, ports: Ports) -> Progress:
        """T3: the progress of recording the next model call."""
        asking = self.asking((log.run.key.agent_id, log.run.conversation_seq), ports)
        return self._keep(
            await _with_recall(lambda asking: ports.store.write(ask, log.run.key, asking, log=log), asking, ports)
        )

    async def asked(self, log: RunLog, step: Step, ports: Ports) -> Asked:
        """What a recorded model call is made of, read again from the log."""

        def load(tx: Tx) -> tuple[Agent, View]:
            return tx.agents.get(log.run.key.agent_id), load_view(tx, log.run, step.recipe)

        agent, view = await ports.store.read(load)
        self._note(agent)
        return Asked(log, (), agent=agent, view=view)

    def learn(self, log: RunLog) -> None:
        """Add what an ended run has said to the view of its conversation, so that it need not be read."""
        key = (log.run.key.agent_id, log.run.conversation_seq)
        if (kept := self._kept.get(key)) is not None and log.run.ended and not log.open_calls:
            view, agent = kept
            self._kept[key] = view.extended(view.following(log.messages)), agent

    def asking(self, key: tuple[AgentId, int], ports: Ports) -> Asking:
        """What a unit of work that makes a request needs besides the store."""
        now = ports.clock.now()
        view, agent = self._kept.get(key, (None, None))
        return Asking(
            ids=ports.ids,
            have=view,
            agent=agent,
            counter=ports.counter,
            models=ports.models,
            settings=ports.settings,
            now=now,
            until=now + timedelta(seconds=ports.settings.lease_s),
            hooked=ports.hooks.wants("before_model"),
        )

    def _keep(self, progress: Progress) -> Progress:
        if isinstance(progress, (Asked, Full)):
            key = (progress.log.run.key.agent_id, progress.log.run.conversation_seq)
            self._note(progress.agent)
            self._kept[key] = progress.view, progress.agent
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return progress

    def _note(self, agent: Agent) -> None:
        if agent.settings.get("auto_capture"):
            self.capturing.add(agent.id)
        elif self.capturing:
            self.capturing.discard(agent.id)


async def _with_recall(write: Callable[[Asking], Awaitable[T]], asking: Asking, ports: Ports) -> T:
    """What `write` gives; once more, with what memory has on the newest message, where that is wanted."""
    try:
        return await write(asking)
    except NeedsRecall as wanted:
        found = await recall_for(wanted, ports)
    return await write(replace(asking, recalled=found))
