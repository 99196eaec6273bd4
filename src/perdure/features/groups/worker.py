"""The passes of companions in the background, for all agents of a process.

A companion is looked at when a run of its agent has ended, in a moment in which this process answers nobody. A pass is
stored before its run is accepted under a key of the pass, so a process that is killed leaves a pass that another one
goes on with: it is found here again, and none is repeated. Several processes may do so at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from perdure.app import App
from perdure.core.agents import Agent
from perdure.core.conversations import ConversationKey
from perdure.core.errors import (
    ApprovalPending,
    Conflict,
    IdempotencyMismatch,
    ModelNotFound,
    NotFound,
    PerdureError,
    StoreError,
)
from perdure.core.events import MessageAdded, StoredEvent
from perdure.core.ids import AgentId
from perdure.core.messages import Message, Text
from perdure.core.runs import Run, RunOptions
from perdure.core.tasks import end_tasks
from perdure.domain.agents.profile import PASSES
from perdure.engine.log.run_log import RunLog
from perdure.engine.ports import Ports, as_requested, with_next_model
from perdure.engine.reading import AGAIN_MAX, ModelInput, ModelInputChanged
from perdure.engine.records.run_request import NewMessage, RunRequest, with_run
from perdure.engine.workers.background import KeyedWorker
from perdure.engine.workers.worker import Worker
from perdure.features.groups.companions import find_companion, list_companion_groups
from perdure.features.groups.feature import COMPANION, COMPANION_OF
from perdure.features.groups.passes import (
    PassLimits,
    begin_due_pass,
    begin_pass,
    due_cause,
    end_pass,
    messages_of_pass,
    narrow_pass,
    pass_sources,
    read_pass,
)
from perdure.features.groups.values import REFUSALS_MAX, Pass, PassCause, PassOutcome, count_refusals, outcome_of
from perdure.features.groups.work_tables import Passes
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

INPUT_SHARE = 0.25
"""The share of a pass's tokens, and of its model's window, that what it reads may take."""

LOOK_S = 5.0
"""How often passes are looked for that another process has left."""

LEFT_MAX = 1_000


class Companions:
    """The companions' passes of one process."""

    def __init__(self, app: App) -> None:
        self._ports, self._runner, settings = app.ports, app.runner, app.settings
        tokens, retry_s = settings.companion_tokens, settings.companion_retry_s
        self._limits = PassLimits(steps=settings.companion_steps, tokens=tokens, retry_s=retry_s)
        self._worker = KeyedWorker[AgentId]("companions", self._work)
        self._running: dict[tuple[AgentId, int], asyncio.Task[Pass | None]] = {}
        self._retries: dict[AgentId, asyncio.TimerHandle] = {}
        self._looking = Worker("looking for companions that have something to do", self._look, LOOK_S)
        self._is_first_look, self._closing = True, False
        app.runner.after_runs.listeners.append(self._note_run)

    async def start(self) -> None:
        """Go on with what other processes left, now and from time to time."""
        await self._looking.start()

    async def close(self) -> None:
        """Stop. An unfinished pass is continued by another process, or by this one after a restart."""
        self._closing = True
        for timer in self._retries.values():
            timer.cancel()
        await end_tasks(*self._worker.tasks, *self._running.values(), *self._looking.tasks)

    def look(self, agent_id: AgentId) -> None:
        """Begin the pass that is due for an agent's companion, if any, in the background."""
        if not self._closing:
            self._worker.start(agent_id)

    async def wake(self, agent_id: AgentId, cause: PassCause = "request") -> Pass | None:
        """Begin a pass, or return the one that goes on; None: no companion, or nothing new. Raises: NotFound."""
        now = self._ports.clock.now()
        pass_ = await self._ports.store.write(begin_pass, agent_id, cause, ids=self._ports.ids, at=now)
        if pass_ is not None and not self._closing:
            # Not behind what waits for a pause. When it has ended, the worker sees to what follows.
            self._start(pass_).add_done_callback(lambda _: self.look(agent_id))
        return pass_

    def _note_run(self, conversation_key: ConversationKey, agent: Agent | None, ended: RunLog) -> None:
        """Begin what is due for an agent whose run has ended, if it has a companion; None: nobody knows here."""
        if agent is None or agent.settings.get(COMPANION):
            self.look(conversation_key[0])

    async def _look(self) -> None:
        """Begin the due passes: first those of all agents, later those left by other processes. Raises: StoreError."""
        store, until = self._ports.store, None
        if self._is_first_look:
            for group in await store.read(list_companion_groups, limit=LEFT_MAX):
                if group.manager_agent_id is not None:
                    self.look(group.manager_agent_id)
        else:
            until = self._ports.clock.now() - timedelta(seconds=self._ports.settings.lease_s)
        for pass_ in await store.read(lambda tx: tx.of(Passes).list_unended(limit=LEFT_MAX, until=until)):
            if pass_.agent_id not in self._worker.keys_at_work:
                self.look(pass_.agent_id)
        self._is_first_look = False

    async def _work(self, agent_id: AgentId) -> None:
        """Carry out the passes that are due for an agent, one after the other, until none is or one fails.

        Raises: NotFound, StoreError; CallPostponed: this process begins none any more.
        """
        while (pass_ := await self._begin(agent_id)) is not None:
            ended = await asyncio.shield(self._start(pass_))
            if ended is None or ended.failed:
                break
        await self._plan_retry(agent_id)

    async def _begin(self, agent_id: AgentId) -> Pass | None:
        """Begin the pass that is due once the process is idle, or return the one under way; None: none is due. Raises:
        NotFound, StoreError; CallPostponed: this process begins none any more."""
        ports, store = self._ports, self._ports.store
        if (model := await store.read(self._due_model, agent_id)) is None:
            return None
        await ports.background.wait(model, local=ports.models.traits(model).local)
        async with self._runner.pauses.piece():
            now = ports.clock.now()
            if await store.read(due_cause, agent_id, self._limits, now=now) is None:
                return None
            return await store.write(begin_due_pass, agent_id, self._limits, ids=ports.ids, at=now)

    def _due_model(self, tx: Tx, agent_id: AgentId) -> str | None:
        """Return the model of the companion whose pass is due; None: none is due. Raises: NotFound."""
        ports = self._ports
        group, cause = find_companion(tx, agent_id), due_cause(tx, agent_id, self._limits, now=ports.clock.now())
        if group is None or cause is None:
            return None
        companion = with_next_model(tx.agents.get(group.agent_ids[0]), ports.models)
        # The profile of its agent is that of the model which does the work.
        own = replace(tx.agents.get(agent_id), model=companion.model)
        wakes = [as_requested(agent, ports.models).settings.get(PASSES) for agent in (own, companion)]
        if (ports.background.mode == "never" or "asked" in wakes) and cause not in ("request", "schedule"):
            return None
        return companion.model

    def _start(self, pass_: Pass) -> asyncio.Task[Pass | None]:
        """Start a task that carries a pass out, or return the one that does so already."""
        key = (pass_.agent_id, pass_.number)
        if (task := self._running.get(key)) is None:
            task = self._running[key] = asyncio.create_task(self._carry_out(pass_))
            task.add_done_callback(lambda _: self._running.pop(key, None))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # the worker meets it again
        return task

    async def _carry_out(self, pass_: Pass) -> Pass | None:
        """Run the companion for a pass, and store how it ended. Raises: NotFound: the agent is gone; StoreError."""
        try:
            outcome = await self._run(pass_)
        except NotFound:
            await self._ports.store.read(lambda tx: tx.agents.model(pass_.agent_id))
            outcome = "error"  # only the companion is gone
        ports = self._ports
        ended = await ports.store.write(end_pass, pass_, outcome, ids=ports.ids, at=ports.clock.now())
        if ended is not None and ended.failed:
            log.warning("pass %s of the companion of %s ended: %s", pass_.number, pass_.agent_id, outcome)
        return ended

    async def _run(self, pass_: Pass) -> PassOutcome:
        """Run the companion once, and return how that ended. Raises: NotFound, StoreError."""
        try:
            run = await self._find_run(pass_) or await self._accept_unchanged(pass_)
        except ModelNotFound:
            return "model_error"
        except ApprovalPending:
            return "requires_approval"
        except (NotFound, StoreError):
            raise
        except PerdureError as error:
            log.warning("pass %s of the companion of %s can't begin: %s", pass_.number, pass_.agent_id, error)
            return "error"
        messages = list[Message]()
        async with contextlib.aclosing(self._runner.follow(run)) as sent:
            async for event in sent:
                if isinstance(event, StoredEvent) and isinstance(event.event, MessageAdded):
                    if event.event.message is not None:
                        messages.append(event.event.message)
                    if count_refusals(messages) == REFUSALS_MAX:
                        await self._runner.cancel(run.id)
        run = await self._ports.store.read(lambda tx: tx.runs.get(run.id))
        outcome = outcome_of(run, messages)
        if outcome == "requires_approval":  # nobody is asked, and the next pass must not find the call open
            await self._runner.cancel(run.id)
        return outcome

    async def _find_run(self, pass_: Pass) -> Run | None:
        found = await self._ports.store.read(lambda tx: tx.runs.find_by_key(pass_.companion_id, 0, pass_.key))
        return None if found is None else found[0]

    async def _accept_unchanged(self, pass_: Pass) -> Run:
        """Accept the run of a pass, again if its messages change meanwhile. Raises: as `Runner.accept`; Conflict."""
        for _ in range(AGAIN_MAX):
            with contextlib.suppress(ModelInputChanged):
                return await self._accept(pass_)
        raise Conflict(f"the messages of pass {pass_.number} have changed {AGAIN_MAX} times meanwhile")

    async def _accept(self, pass_: Pass) -> Run:
        """Accept the run of a pass. Raises: as `Runner.accept`; ModelInputChanged: a message has changed meanwhile."""
        ports, limits = self._ports, self._limits
        group = await ports.store.read(find_companion, pass_.agent_id)
        if group is None:
            raise NotFound("companion", pass_.companion_id)
        companion = with_next_model(await ports.store.read(lambda tx: tx.agents.get(pass_.companion_id)), ports.models)
        tokens = limits.tokens_of(group)
        budget = int(INPUT_SHARE * min(tokens, ports.inputs().window(companion)[0]))
        messages = await ports.store.read(messages_of_pass, pass_)
        reading = ModelInput(messages, partial(_load_again, pass_=pass_))
        read = await ports.store.read(read_pass, pass_, messages, counter=ports.counter, budget_tokens=budget)
        pass_ = await ports.store.write(narrow_pass, pass_, read)
        sources = await ports.store.read(pass_sources, pass_)
        request = RunRequest(
            agent_id=pass_.companion_id,
            messages=(NewMessage((Text(read.text),), sender_id=pass_.agent_id, sources=sources),),
            idempotency_key=pass_.key,
            max_steps=limits.steps if group.max_turns is None else group.max_turns,
            options=RunOptions(max_tokens=tokens),
            sent_chars=0,
            yields=pass_.cause != "request",
            reading=reading,
        )
        try:
            return (await self._runner.accept(with_run(request, ports, pass_.run_id))).run
        except IdempotencyMismatch:  # another process was first, and a message was changed between
            run = await self._find_run(pass_)
            assert run is not None
            return run

    async def _plan_retry(self, agent_id: AgentId) -> None:
        """Look at an agent's companion again when a pass that failed is to be tried again."""
        last = await self._ports.store.read(_last_pass, agent_id)
        if (timer := self._retries.pop(agent_id, None)) is not None:
            timer.cancel()
        if last is None or not last.failed or (at := self._limits.retry_at(last)) is None or self._closing:
            return
        wait_s = max(0.0, (at - self._ports.clock.now()).total_seconds())
        loop = asyncio.get_running_loop()
        self._retries[agent_id] = loop.call_later(wait_s, self.look, agent_id)


def look_at(app: App, agent_id: AgentId) -> None:
    """Begin in the background what the companion of an agent has to do."""
    app.service(Companions).look(agent_id)


async def goes_last(run: Run, agent: Agent, ports: Ports) -> bool:
    """Whether this is a pass of a companion that no person has asked for."""
    if COMPANION_OF not in agent.settings:
        return False
    found = await ports.store.read(lambda tx: tx.of(Passes).find_by_run(run.id))
    return found is not None and found.cause != "request"


def _load_again(tx: Tx, pass_: Pass) -> Sequence[Message]:
    """The messages that a pass is about; its agent is locked, so they can't change until the transaction ends."""
    tx.agents.lock(pass_.agent_id)
    return messages_of_pass(tx, pass_)


def _last_pass(tx: Tx, agent_id: AgentId) -> Pass | None:
    group = find_companion(tx, agent_id)
    return None if group is None else tx.of(Passes).find_last(agent_id, group.id)
