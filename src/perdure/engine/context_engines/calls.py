"""Calls of context engines that are somebody else's code: outside of transactions, each within its time limit."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.context.engines.check import PlanRefused, check_plan
from perdure.context.engines.port import ContextEngine, EngineConversation, Turn
from perdure.context.window.plan import Plan, Situation
from perdure.core.agents import Agent
from perdure.core.errors import IrreducibleFloor
from perdure.core.ids import AgentId
from perdure.core.messages import UNSEEN_KINDS, Message
from perdure.core.runs import Run, RunKey
from perdure.core.tools.threads import run_in_own_thread
from perdure.engine.context_engines.registry import ContextEngines, EngineInUse

log = logging.getLogger(__name__)

REASON_CHARS = 1_000
MAKE_S = 30.0
"""How long an engine may take to be made, with the import of its package."""
MAINTAIN_TIMES = 100
"""How many times the engine's own limit its work in the background may take."""
LATE_MAX = 4
"""How many calls of one engine may be late at the same time; then it is not called until one of them ends."""
LINES_MAX = 10_000
"""How many conversations are remembered as known to their engines."""


class EngineFailed(Exception):
    """A context engine raised, took too long, or returned what can't be carried out."""


@dataclass(slots=True)
class _Line:
    """What an engine knows of a conversation: its messages up to a number. One call at a time."""

    upto_seq: int = -1
    known: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class EngineCalls:
    """The calls of one process. What is remembered here is safe to lose.

    Args:
        engines: those that there are.
    """

    def __init__(self, engines: ContextEngines | None = None) -> None:
        self.engines = engines or ContextEngines()
        self._quarantined: set[RunKey] = set()
        self._lines: OrderedDict[tuple[AgentId, int, int], _Line] = OrderedDict()
        self._late: dict[int, int] = {}
        self._plans: dict[RunKey, tuple[int, int]] = {}

    def is_quarantined(self, key: RunKey) -> bool:
        """Whether this run goes on without its agent's engine."""
        return key in self._quarantined

    def quarantine(self, key: RunKey) -> None:
        """Let a run go on without its agent's engine."""
        self._quarantined.add(key)

    def forget_run(self, key: RunKey) -> None:
        """Forget a run that has ended."""
        self._quarantined.discard(key)
        self._plans.pop(key, None)

    def count_plan(self, key: RunKey, step: int) -> int:
        """Count a plan for a request of a run; return how many there were for this step."""
        before = self._plans.get(key, (step, 0))
        self._plans[key] = (step, before[1] + 1 if before[0] == step else 1)
        return self._plans[key][1]

    async def make(self, used: EngineInUse) -> None:
        """Make an engine that is not there yet. Raises: EngineFailed."""
        if used.unmade is not None:
            try:
                async with asyncio.timeout(MAKE_S):
                    await run_in_own_thread(self.engines.get, used.unmade)
            except TimeoutError:
                raise EngineFailed(f"it was not made within {MAKE_S:g} s") from None
            except Exception as error:
                raise EngineFailed(f"{type(error).__name__}: {error}"[:REASON_CHARS]) from error

    async def decide(self, used: EngineInUse, conversation: EngineConversation, situation: Situation) -> Plan | None:
        """The engine's plan for a request, checked; None: it is sent as it is, or can't be made to fit.

        Raises: EngineFailed.
        """
        engine, fits = used.engine, situation.certificate.fits
        async with self._line(engine, conversation).lock:
            await self._tell(engine, conversation, (*situation.pinned, *situation.rows))
            if fits and not engine.overrides("assemble"):
                return None
            try:
                function = engine.assemble if fits else engine.plan
                found = await self._call(engine, function, situation)
                if inspect.iscoroutine(found):
                    found.close()
                return None if found is None else check_plan(situation, found)
            except IrreducibleFloor:
                return None
            except PlanRefused as refused:
                raise EngineFailed(str(refused)) from refused
            except EngineFailed:
                raise
            except Exception as error:  # a plan whose values are of other types
                raise EngineFailed(
                    f"its plan can't be read ({type(error).__name__}: {error})"[:REASON_CHARS]
                ) from error

    async def after_run(
        self, agent: Agent, conversation: EngineConversation, run: Run, messages: Sequence[Message]
    ) -> None:
        """Tell the engine of a run that has ended, then let it work in the background."""
        used = self.engines.of(agent)
        engine = used.engine
        if not used.is_foreign or used.unmade is not None:
            return
        turn = Turn(run_id=run.id, stop_reason=run.stop_reason, messages=tuple(messages))
        try:
            async with self._line(engine, conversation).lock:
                await self._tell(engine, conversation, messages)
                if engine.overrides("after_turn"):
                    await self._call(engine, engine.after_turn, conversation, turn)
            if engine.overrides("maintain"):
                await self._call(engine, engine.maintain, conversation, times=MAINTAIN_TIMES)
        except EngineFailed as failed:
            log.warning("context engine %r after run %s: %s", used.name, run.id, failed)

    async def before_subagent(
        self, agent: Agent, conversation: EngineConversation, agent_id: AgentId, message: str
    ) -> None:
        """Tell the engine that its agent writes to another one. Raises: EngineFailed."""
        engine = self.engines.of(agent).engine
        if engine.overrides("before_subagent"):
            await self._call(engine, engine.before_subagent, conversation, agent_id, message)

    async def after_subagent(
        self,
        agent: Agent,
        conversation: EngineConversation,
        agent_id: AgentId,
        reply: Sequence[str],
        error: str | None,
    ) -> None:
        """Tell the engine what the other agent said. Raises: EngineFailed."""
        engine = self.engines.of(agent).engine
        if engine.overrides("after_subagent"):
            await self._call(engine, engine.after_subagent, conversation, agent_id, tuple(reply), error)

    async def close(self) -> None:
        """Let every engine release what it holds."""
        for used in self.engines.in_use:
            if used.is_foreign and used.engine.overrides("dispose"):
                try:
                    await self._call(used.engine, used.engine.dispose)
                except EngineFailed as failed:
                    log.warning("context engine %r at the end: %s", used.name, failed)

    def _line(self, engine: ContextEngine, conversation: EngineConversation) -> _Line:
        """What the engine knows of a conversation."""
        key = (conversation.agent_id, conversation.conversation_seq, id(engine))
        line = self._lines.setdefault(key, _Line())
        self._lines.move_to_end(key)
        if len(self._lines) > LINES_MAX:
            self._lines.popitem(last=False)
        return line

    async def _tell(self, engine: ContextEngine, conversation: EngineConversation, messages: Sequence[Message]) -> None:
        """Tell the engine of a conversation, and of the messages that it does not know. Raises: EngineFailed."""
        line = self._line(engine, conversation)
        visible = [message for message in messages if message.kind not in UNSEEN_KINDS]
        upto_seq = max((message.seq for message in visible), default=-1)
        if not line.known:
            if engine.overrides("bootstrap"):
                await self._call(engine, engine.bootstrap, conversation, tuple(visible))
                line.upto_seq = max(line.upto_seq, upto_seq)
            line.known = True
        new = tuple(message for message in visible if message.seq > line.upto_seq)
        if new and engine.overrides("ingest"):
            await self._call(engine, engine.ingest, conversation, new)
        line.upto_seq = max(line.upto_seq, upto_seq)

    async def _call(
        self, engine: ContextEngine, function: Callable[..., Any], *arguments: object, times: int = 1
    ) -> Any:
        """What a function of an engine returns. Raises: EngineFailed."""
        name, limit_s = getattr(function, "__name__", "a call"), engine.timeout_s * times
        if self._late.get(id(engine), 0) >= LATE_MAX:
            raise EngineFailed(f"{LATE_MAX} earlier calls of it have not come back")
        if inspect.iscoroutinefunction(function):
            work = asyncio.ensure_future(function(*arguments))
        else:
            work = asyncio.ensure_future(run_in_own_thread(function, *arguments))
        try:
            done, _ = await asyncio.wait((work,), timeout=limit_s)
        except asyncio.CancelledError:
            self._abandon(engine, work, function)
            raise
        if not done:
            self._abandon(engine, work, function)
            raise EngineFailed(f"{name} took more than {limit_s:g} s")
        try:
            return work.result()
        except asyncio.CancelledError:
            raise EngineFailed(f"{name} gave its own task up") from None
        except BaseException as error:  # an engine is somebody else's code: it may raise anything
            raise EngineFailed(f"{name} raised {type(error).__name__}: {error}"[:REASON_CHARS]) from error

    def _abandon(self, engine: ContextEngine, work: asyncio.Future[Any], function: Callable[..., Any]) -> None:
        """Leave a call to itself: a coroutine is cancelled, a thread runs to its end."""
        key = id(engine)
        self._late[key] = self._late.get(key, 0) + 1

        def note_end(ended: asyncio.Future[Any]) -> None:
            self._late[key] -= 1
            if not ended.cancelled():
                ended.exception()

        work.add_done_callback(note_end)
        if inspect.iscoroutinefunction(function):
            work.cancel()
