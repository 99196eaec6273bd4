"""The context engines of a process, shipped, of installed packages and of the program; and calls of those that are
foreign code: outside of transactions, each within its time limit."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

from perdure.context.engines.check import PlanRefused, check_plan
from perdure.context.engines.port import (
    Composition,
    Compressor,
    ContextEngine,
    EngineConversation,
    Extract,
    PagedEngine,
    ShippedEngine,
    StubResults,
    Turn,
)
from perdure.context.engines.sliding_window import MessageBuffer, RecursiveSummary, SlidingWindow
from perdure.context.window.plan import Plan, Situation
from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput, IrreducibleFloor
from perdure.core.ids import AgentId
from perdure.core.messages import UNSEEN_KINDS, Message
from perdure.core.runs import Run, RunKey
from perdure.core.tools.threads import run_in_own_thread
from perdure.domain.agents.options import CONTEXT_ENGINE, EngineChoice, engine_choice

ENTRY_POINT_GROUP = "perdure.context_engines"
COMPOSITION = "composition"
_NOTHING = object()
ADDITION_CHARS = 20_000

EngineFactory = Callable[..., ContextEngine]
"""Makes an engine of the options of an agent's setting; usually the class itself."""

_SHIPPED: Mapping[str, type[ShippedEngine]] = {
    engine.name: engine for engine in (PagedEngine, SlidingWindow, RecursiveSummary, MessageBuffer)
}
_COMPRESSORS: Mapping[str, type[Compressor]] = {one.name: one for one in (StubResults, Extract)}


class _EnginePlaceholder(ContextEngine):
    """Stands for an engine until it is made, which foreign code does."""

    owns_compaction = True

    def assemble(self, situation: Situation) -> Plan | None:
        """Never called: the engine is made before its first use."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class EngineInUse:
    """An engine under its name.

    Args:
        addition: its text for the system prompt.
        is_foreign: its code is not Perdure's, so it is not called inside of a transaction.
        unmade: what it is to be made of, if it is not there yet.
        problem: why the engine of this name can't be used here, so that this one takes its place.
    """

    name: str
    engine: ContextEngine
    addition: str = ""
    is_foreign: bool = False
    unmade: EngineChoice | None = None
    problem: str | None = None

    @property
    def looks_at_all(self) -> bool:
        """Whether it has to be called before each request, not only before those that don't fit."""
        return any(map(self.engine.overrides, ("assemble", "bootstrap", "ingest")))


PAGED = EngineInUse(PagedEngine.name, PagedEngine())
FALLBACK = EngineInUse(SlidingWindow.name, SlidingWindow())
_UNMADE = _EnginePlaceholder()


class ContextEngines:
    """The engines by name. Each is made once for the same options.

    Args:
        factories: name -> what makes an engine; these win over packages and shipped ones of the same name.
    """

    def __init__(self, factories: Mapping[str, EngineFactory] | None = None) -> None:
        self._factories: dict[str, EngineFactory] = {**_SHIPPED, **(factories or {})}
        self._loaded = False  # whether `_factories` has those of installed packages
        self._made: dict[str, EngineInUse] = {}  # by name and options, see `_key`
        self._lock = threading.RLock()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a setting may have."""
        self._load_packages()
        return (*self._factories, COMPOSITION)

    @property
    def in_use(self) -> tuple[EngineInUse, ...]:
        """The engines that were made."""
        return tuple(self._made.values())

    @property
    def has_foreign(self) -> bool:
        """Whether any engine is in use whose code is not Perdure's."""
        return any(used.is_foreign for used in self.in_use)

    def of(self, agent: Agent) -> EngineInUse:
        """Return the engine of an agent: not made yet if its code is third-party and was not called so far; if the
        setting can't be read, the fallback engine, with the problem."""
        if agent.settings.get(CONTEXT_ENGINE) is None:
            return PAGED
        try:
            choice = engine_choice(agent.settings)
            if choice is None:
                return PAGED
            if (in_use := self._made.get(_key(choice))) is not None:
                return in_use
            if self._factories.get(choice.name) is _SHIPPED.get(choice.name, _NOTHING):
                return self.get(choice)
        except InvalidInput as error:
            return replace(FALLBACK, problem=str(error))
        return EngineInUse(choice.name, _UNMADE, is_foreign=True, unmade=choice)

    def get(self, choice: EngineChoice) -> EngineInUse:
        """Return the engine of a setting, made once. Raises: InvalidInput: there is none, or its options are wrong."""
        with self._lock:
            if (in_use := self._made.get(_key(choice))) is None:
                in_use = self._made[_key(choice)] = self._make(choice)
            return in_use

    def check(self, settings: Mapping[str, Any]) -> None:
        """Check that the engine of these settings can be used here. Raises: InvalidInput."""
        if (choice := engine_choice(settings)) is not None:
            self.get(choice)

    def _make(self, choice: EngineChoice) -> EngineInUse:
        """Construct the engine that a setting names. Raises: InvalidInput."""
        if choice.name == COMPOSITION:
            engine: object = self._compose(choice.options)
        else:
            if choice.name not in self._factories:
                self._load_packages()
            factory = self._factories.get(choice.name)
            if factory is None:
                raise InvalidInput(f"there is no context engine {choice.name!r:.80}: there are {', '.join(self.names)}")
            engine = _call(f"context engine {choice.name!r}", factory, choice.options)
        if not isinstance(engine, ContextEngine):
            raise InvalidInput(
                f"context engine {choice.name!r} is a {type(engine).__name__}: derive it from ContextEngine"
            )
        addition = engine.system_prompt_addition
        if not isinstance(addition, str) or len(addition) > ADDITION_CHARS:
            raise InvalidInput(
                f"system_prompt_addition of context engine {choice.name!r} is {addition!r:.80}: give a text of at most"
                f" {ADDITION_CHARS:,} characters"
            )
        return EngineInUse(choice.name, engine, addition, is_foreign=not _is_shipped(engine))

    def _compose(self, options: Mapping[str, Any]) -> Composition:
        """Make a composition of an assembler and a compressor, which its options name. Raises: InvalidInput."""
        if set(options) != {"assembler", "compressor"}:
            raise InvalidInput(f"{COMPOSITION} has the options {sorted(options)}: give assembler and compressor")
        assembler = EngineChoice.parse(options["assembler"], "assembler")
        if assembler.name == COMPOSITION:
            raise InvalidInput("a composition can't be the assembler of another one")
        compressor = EngineChoice.parse(options["compressor"], "compressor")
        if (factory := _COMPRESSORS.get(compressor.name)) is None:
            raise InvalidInput(f"there is no compressor {compressor.name!r:.80}: there are {', '.join(_COMPRESSORS)}")
        made = _call(f"compressor {compressor.name!r}", factory, compressor.options)
        assert isinstance(made, Compressor)
        return Composition(self.get(assembler).engine, made)

    def _load_packages(self) -> None:
        """Find the engines of installed packages, once."""
        if not self._loaded:
            self._loaded = True
            self._factories = {**_SHIPPED, **_package_engines(), **self._factories}


def _key(choice: EngineChoice) -> str:
    """Return a text that is the same for the same engine with the same options."""
    return json.dumps([choice.name, choice.options], sort_keys=True)


def _is_shipped(engine: ContextEngine) -> bool:
    """Whether all code of the engine is Perdure's."""
    if type(engine) is Composition:
        return _is_shipped(engine.assembler) and type(engine.compressor) in _COMPRESSORS.values()
    return type(engine) in _SHIPPED.values()


@functools.cache
def _package_engines() -> Mapping[str, EngineFactory]:
    """Return the engines of installed packages by the names of their entry points; loaded at first use."""
    return {point.name: functools.partial(_load, point) for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}


def _load(point: metadata.EntryPoint, **options: Any) -> ContextEngine:
    """Make the engine of an entry point. Raises: whatever it raises."""
    factory: EngineFactory = point.load()
    return factory(**options)


def _call(what: str, factory: Callable[..., object], options: Mapping[str, Any]) -> object:
    """Make an engine or compressor of these options. `what`: its name in errors. Raises: InvalidInput."""
    try:
        return factory(**options)
    except InvalidInput:
        raise
    except Exception as error:
        hint = f": its options are {_option_names(factory)}" if isinstance(error, TypeError) else ""
        raise InvalidInput(
            f"{what} can't be made of the options {dict(options)!r:.200} ({type(error).__name__}: {error}){hint}"
        ) from error


def _option_names(factory: Callable[..., object]) -> str:
    """Return the names of what a factory takes, for an error."""
    try:
        return ", ".join(inspect.signature(factory).parameters) or "none"
    except (TypeError, ValueError):
        return "unknown"


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
class _EngineProgress:
    """What an engine was told of a conversation: all messages up to `upto_seq`."""

    upto_seq: int = -1
    known: bool = False  # whether `bootstrap` was called
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # calls about a conversation come one at a time


class EngineCalls:
    """The calls of one process. What is remembered here is safe to lose.

    Args:
        engines: those that there are.
    """

    def __init__(self, engines: ContextEngines | None = None) -> None:
        self.engines = engines or ContextEngines()
        self._quarantined: set[RunKey] = set()
        self._lines: OrderedDict[tuple[AgentId, int, int], _EngineProgress] = (
            OrderedDict()
        )  # agent, conversation, engine
        self._late: dict[int, int] = {}  # id() of an engine -> how many of its calls are late
        self._plans: dict[RunKey, tuple[int, int]] = {}  # run -> step, and how many plans were made for it

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
        """Construct an engine that was not made yet. Raises: EngineFailed."""
        if used.unmade is not None:
            try:
                async with asyncio.timeout(MAKE_S):
                    await run_in_own_thread(self.engines.get, used.unmade)
            except TimeoutError:
                raise EngineFailed(f"it was not made within {MAKE_S:g} s") from None
            except Exception as error:
                raise EngineFailed(f"{type(error).__name__}: {error}"[:REASON_CHARS]) from error

    async def decide(self, used: EngineInUse, conversation: EngineConversation, situation: Situation) -> Plan | None:
        """Tell the engine of new messages; return its plan for a request, checked, or None. Raises: EngineFailed."""
        engine, fits = used.engine, situation.certificate.fits
        async with self._line(engine, conversation).lock:
            await self._pass_messages(engine, conversation, (*situation.pinned, *situation.rows))
            if fits and not engine.overrides("assemble"):
                return None
            try:
                function = engine.assemble if fits else engine.plan
                plan = await self.call(engine, function, situation)
                if inspect.iscoroutine(plan):
                    plan.close()
                return None if plan is None else check_plan(situation, plan)
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
                await self._pass_messages(engine, conversation, messages)
                if engine.overrides("after_turn"):
                    await self.call(engine, engine.after_turn, conversation, turn)
            if engine.overrides("maintain"):
                await self.call(engine, engine.maintain, conversation, times=MAINTAIN_TIMES)
        except EngineFailed as failed:
            log.warning("context engine %r after run %s: %s", used.name, run.id, failed)

    async def close(self) -> None:
        """Let every engine release what it holds."""
        for used in self.engines.in_use:
            if used.is_foreign and used.engine.overrides("dispose"):
                try:
                    await self.call(used.engine, used.engine.dispose)
                except EngineFailed as failed:
                    log.warning("context engine %r at the end: %s", used.name, failed)

    def _line(self, engine: ContextEngine, conversation: EngineConversation) -> _EngineProgress:
        """Return what was passed to the engine about a conversation; an empty record if that was dropped."""
        key = (conversation.agent_id, conversation.conversation_seq, id(engine))
        line = self._lines.setdefault(key, _EngineProgress())
        self._lines.move_to_end(key)
        if len(self._lines) > LINES_MAX:
            self._lines.popitem(last=False)
        return line

    async def _pass_messages(
        self, engine: ContextEngine, conversation: EngineConversation, messages: Sequence[Message]
    ) -> None:
        """Call `bootstrap` once, then `ingest` with the messages that the engine lacks. Raises: EngineFailed."""
        line = self._line(engine, conversation)
        visible = [message for message in messages if message.kind not in UNSEEN_KINDS]
        upto_seq = max((message.seq for message in visible), default=-1)
        if not line.known:
            if engine.overrides("bootstrap"):
                await self.call(engine, engine.bootstrap, conversation, tuple(visible))
                line.upto_seq = max(line.upto_seq, upto_seq)
            line.known = True
        new = tuple(message for message in visible if message.seq > line.upto_seq)
        if new and engine.overrides("ingest"):
            await self.call(engine, engine.ingest, conversation, new)
        line.upto_seq = max(line.upto_seq, upto_seq)

    async def call(
        self, engine: ContextEngine, function: Callable[..., Any], *arguments: object, times: int = 1
    ) -> Any:
        """Return what a function of an engine returns within its time limit, `times` as long. Raises: EngineFailed."""
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
        except BaseException as error:  # an engine may be foreign code: it may raise anything
            raise EngineFailed(f"{name} raised {type(error).__name__}: {error}"[:REASON_CHARS]) from error

    def _abandon(self, engine: ContextEngine, work: asyncio.Future[Any], function: Callable[..., Any]) -> None:
        """Leave a call to itself: a coroutine is cancelled, a thread runs to its end."""
        key = id(engine)
        self._late[key] = self._late.get(key, 0) + 1

        def note_end(ended: asyncio.Future[Any]) -> None:
            """Count a late call as ended, and read its error so that asyncio does not report it."""
            self._late[key] -= 1
            if not ended.cancelled():
                ended.exception()

        work.add_done_callback(note_end)
        if inspect.iscoroutinefunction(function):
            work.cancel()
