"""The context engines of a process: those that Perdure ships, those of installed packages, those of the program."""

from __future__ import annotations

import functools
import inspect
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

from perdure.context.engines.port import (
    Composition,
    Compressor,
    ContextEngine,
    Extract,
    Paged,
    ShippedEngine,
    StubResults,
)
from perdure.context.engines.sliding_window import MessageBuffer, RecursiveSummary, SlidingWindow
from perdure.context.window.plan import Plan, Situation
from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput
from perdure.domain.agents.context_engine import CONTEXT_ENGINE, EngineChoice, engine_choice

ENTRY_POINT_GROUP = "perdure.context_engines"
COMPOSITION = "composition"
_NOTHING = object()
ADDITION_CHARS = 20_000

EngineFactory = Callable[..., ContextEngine]
"""Makes an engine of the options of an agent's setting; usually the class itself."""

_SHIPPED: Mapping[str, type[ShippedEngine]] = {
    engine.name: engine for engine in (Paged, SlidingWindow, RecursiveSummary, MessageBuffer)
}
_COMPRESSORS: Mapping[str, type[Compressor]] = {one.name: one for one in (StubResults, Extract)}


class _Unmade(ContextEngine):
    """Stands for an engine until it is made, which somebody else's code does."""

    owns_compaction = True

    def assemble(self, situation: Situation) -> Plan | None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class EngineInUse:
    """An engine under its name.

    Args:
        addition: its text for the system prompt.
        is_foreign: it is somebody else's code, which is not called inside of a transaction.
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


PAGED = EngineInUse(Paged.name, Paged())
FALLBACK = EngineInUse(SlidingWindow.name, SlidingWindow())
_UNMADE = _Unmade()


class ContextEngines:
    """The engines by name. Each is made once for the same options.

    Args:
        factories: name -> what makes an engine; these win over packages and shipped ones of the same name.
    """

    def __init__(self, factories: Mapping[str, EngineFactory] | None = None) -> None:
        self._factories: dict[str, EngineFactory] = {**_SHIPPED, **(factories or {})}
        self._loaded = False
        self._made: dict[str, EngineInUse] = {}
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
        """Whether any engine is in use that is somebody else's code."""
        return any(used.is_foreign for used in self.in_use)

    def of(self, agent: Agent) -> EngineInUse:
        """The engine of an agent. One that somebody else's code makes may be unmade. If the setting can't be read, the
        engine that takes over, with the problem."""
        if agent.settings.get(CONTEXT_ENGINE) is None:
            return PAGED
        try:
            choice = engine_choice(agent.settings)
            if choice is None:
                return PAGED
            if (made := self._made.get(_key(choice))) is not None:
                return made
            if self._factories.get(choice.name) is _SHIPPED.get(choice.name, _NOTHING):
                return self.get(choice)
        except InvalidInput as error:
            return replace(FALLBACK, problem=str(error))
        return EngineInUse(choice.name, _UNMADE, is_foreign=True, unmade=choice)

    def get(self, choice: EngineChoice) -> EngineInUse:
        """The engine of this choice. Raises: InvalidInput: there is none, or its options can't be used."""
        with self._lock:
            if (made := self._made.get(_key(choice))) is None:
                made = self._made[_key(choice)] = self._make(choice)
            return made

    def check(self, settings: Mapping[str, Any]) -> None:
        """Check that the engine of these settings can be used here. Raises: InvalidInput."""
        if (choice := engine_choice(settings)) is not None:
            self.get(choice)

    def _make(self, choice: EngineChoice) -> EngineInUse:
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
        """Make a composition. Raises: InvalidInput."""
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
        """Add the engines of installed packages."""
        if not self._loaded:
            self._loaded = True
            self._factories = {**_SHIPPED, **_package_engines(), **self._factories}


def _key(choice: EngineChoice) -> str:
    """The text that is the same for the same engine with the same options."""
    return json.dumps([choice.name, choice.options], sort_keys=True)


def _is_shipped(engine: ContextEngine) -> bool:
    """Whether all code of the engine is Perdure's."""
    if type(engine) is Composition:
        return _is_shipped(engine.assembler) and type(engine.compressor) in _COMPRESSORS.values()
    return type(engine) in _SHIPPED.values()


@functools.cache
def _package_engines() -> Mapping[str, EngineFactory]:
    """The engines of installed packages by the names of their entry points; loaded at first use."""
    return {point.name: functools.partial(_load, point) for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}


def _load(point: metadata.EntryPoint, **options: Any) -> ContextEngine:
    """Make the engine of an entry point. Raises: whatever it raises."""
    factory: EngineFactory = point.load()
    return factory(**options)


def _call(what: str, factory: Callable[..., object], options: Mapping[str, Any]) -> object:
    """Make an engine or compressor of these options. Raises: InvalidInput."""
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
    """The names of the options that a factory takes."""
    try:
        return ", ".join(inspect.signature(factory).parameters) or "none"
    except (TypeError, ValueError):
        return "unknown"
