"""What the engine needs of the world: ports, settings, and the part of them that a unit of work gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.context.sections.assemble import View
from perdure.core.agents import Agent
from perdure.core.conversations import ConversationKey
from perdure.core.errors import ToolError
from perdure.core.features import Point
from perdure.core.ids import Ids
from perdure.core.incoming.limits import DEFAULT_LIMITS, Limits
from perdure.core.incoming.principals import UseLimits
from perdure.core.models import Models
from perdure.core.ports import Clock, FileContents, Randomness, TokenCounter, Toolbox
from perdure.core.runs import Callback, RunKey, Usage
from perdure.core.secrets import Cipher, NoCipher
from perdure.core.specs import ToolOutcome
from perdure.core.telemetry import NoTelemetry, Telemetry
from perdure.domain.agents.profile import with_profile
from perdure.engine.context_engines import ContextEngines, EngineCalls
from perdure.engine.hooks import Hooks
from perdure.engine.log.interrupts import Interrupt
from perdure.engine.log.run_log import NoPlan, RecallResult
from perdure.engine.process import DrainState, TopicSignals, ViewCache
from perdure.engine.search.search import Search
from perdure.engine.workers.background import Background
from perdure.storage.store import Store

SendReport = Callable[[Callback, Mapping[str, Any]], Awaitable[int]]
"""Sends a report as JSON to the URL of a callback, which a caller chose; returns the status of the
answer. Raises: ToolError."""


async def send_nowhere(callback: Callback, report: Mapping[str, Any]) -> int:
    """`SendReport` of a program without a network. Raises: ToolError."""
    raise ToolError("this program sends no reports")


PriceOf = Callable[[str, Usage], float | None]
"""The US dollars for this usage of a model, by its handle; None: unknown."""


def no_price(model: str, usage: Usage) -> float | None:
    """`PriceOf` of a program that knows no prices."""
    return None


class UnreadNotifier:
    """Who hears that a conversation, or its agent's archive, has something new to read while nobody waits."""

    def __init__(self) -> None:
        self.listeners: list[Callable[..., None]] = []

    def note(self, conversation_key: ConversationKey, *, now: bool = False) -> None:
        """Notify the listeners that a conversation has unread messages; `now`: they should read at once."""
        for listener in self.listeners:
            listener(conversation_key, now=now)


class SystemClock:
    """`Clock` of this machine."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)


NO_BUDGET = UseLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Times in seconds, texts in characters.

    Args:
        timezone: of dates that belong to no agent.
        lease_s: how long a run belongs to a process that does not renew its lease.
        beat_s: how often it renews it, and looks for a cancel request from another process.
        poll_s: how often a waiting reader looks for what another process did.
        context_window_tokens: the window of models that don't tell theirs, and the most that is used of others.
        reserve_tokens: kept free in the window for the answer.
        delta_flush_s, delta_flush_chars: stored previews of background runs are joined up to these.
        run_budget: the tokens and dollars of every run.
        tool_output: how results of tools are compressed where agents say nothing of it: off, lossless or full.
        summary_timeout_s: how long a model may take for a summary before our own code makes one.
        tool_timeout_s: how long a tool may take that has no limit of its own.
        recall_timeout_s: how long automatic recall may take before a message is answered without it.
        rows_a_step: messages of one transaction of carrying out a reset: everybody else waits for it, about 10 ms.
        keep_deltas, keep_deltas_s: how many of them are kept, and how long.
        extraction_pause_s: how long nothing has to happen in a conversation until what is left of it is extracted.
        extraction_quiet_s: how long no run has to go on in this process until extraction may.
        extraction_wait_s: how long runs may follow each other without such a pause until extraction takes a small share
            of the time beside them.
        extraction_timeout_s: how long a call of a model may take for a batch.
        extraction_retry_s: how long a batch waits after its first failure; each time four times as long.
        schedule_grace_s: how late a schedule may be fired before its due time counts as missed; so long, too, a process
            that can't reach the agent's model leaves it to others.
        extract_at_close: whether a process that ends extracts what waits: it must not take long.
    """

    timezone: str = "UTC"
    lease_s: float = 15.0
    beat_s: float = 1.0
    poll_s: float = 0.1
    message_limit_chars: int = 500_000
    limits: Limits = DEFAULT_LIMITS
    run_budget: UseLimits = NO_BUDGET
    context_window_tokens: int = 128_000
    reserve_tokens: int = 8_000
    tool_output: str = "full"
    summary_timeout_s: float = 60.0
    recall_timeout_s: float = 1.0
    tool_timeout_s: float = 30.0
    delta_flush_s: float = 0.05
    delta_flush_chars: int = 2_000
    rows_a_step: int = 200
    keep_deltas: int = 10_000
    keep_deltas_s: float = 3 * 3_600.0
    extraction_pause_s: float = 30.0
    extraction_quiet_s: float = 0.2
    extraction_wait_s: float = 10.0
    extraction_timeout_s: float = 120.0
    extraction_retry_s: float = 30.0
    extract_at_close: bool = False
    schedule_grace_s: float = 300.0


def with_next_model(agent: Agent, models: Models) -> Agent:
    """Return the agent with the model of its next run: the default model, if it follows that."""
    return replace(agent, model=models.follow(agent.model)) if agent.follows_default else agent


def as_requested(agent: Agent, models: Models) -> Agent:
    """Return the agent as requests to its model have it: with the settings of its profile."""
    return with_profile(agent, models.traits(agent.model))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitInputs:
    """What a unit of work needs from outside the store.

    Args:
        owner: the name of this process in leases.
        until: when a lease ends that the unit takes or extends.
        cached_view: the conversation's view as this process last built it; the store says whether it still holds.
        recalled: what a run's first request shows of memory; None: nothing was searched.
        engines: the context engines.
        no_plan: what the agent's context engine has no plan for.
        quarantined: whether the run goes on without that engine.
        swaps_early: whether prepared summaries may go into a view that fits: not if a hook may refuse a compaction, as
            that would end a run which has room.
        price_of: what models cost.
    """

    ids: Ids
    counter: TokenCounter
    models: Models
    settings: EngineSettings
    owner: str
    now: datetime
    until: datetime
    cached_view: View | None = None
    recalled: RecallResult | None = None
    engines: ContextEngines = field(default_factory=ContextEngines)
    no_plan: NoPlan | None = None
    quarantined: bool = False
    swaps_early: bool = True
    price_of: PriceOf = no_price

    def window(self, agent: Agent) -> tuple[int, int]:
        """Return (tokens of the agent's window, how many of them are kept free for the answer: at most a quarter).

        The window is the agent's own setting, at most what its model is known to take; else what its model takes, at
        most the engine's setting.
        """
        tokens = agent.settings.get("context_window_tokens")
        if isinstance(tokens, int):
            tokens = min(tokens, self.models.most_window_tokens(agent.model) or tokens)
        else:
            most = self.settings.context_window_tokens
            tokens = min(self.models.window_tokens(agent.model) or most, most)
        return tokens, min(self.settings.reserve_tokens, tokens // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Everything that the engine needs of the world.

    Args:
        owner: the name of this process in leases.
        interrupts: of each run that waits for a model or a tool, so that a cancel request can end the wait.
        views: of the conversations that this process works on.
        send_report: for the callbacks of runs.
        unread: who reads in the background.
        background: the model calls that nobody waits for.
        engine_calls: calls the context engines.
        telemetry: records what the engine does.
        drain: whether this process is about to end.
        signals: what other processes have committed.
        contents: the bytes of files outside the database; None: they are in it.
        price_of: what models cost.
    """

    store: Store
    models: Models
    toolbox: Toolbox
    search: Search
    clock: Clock
    ids: Ids
    randomness: Randomness
    counter: TokenCounter
    owner: str
    settings: EngineSettings = EngineSettings()
    cipher: Cipher = field(default_factory=NoCipher)
    hooks: Hooks = field(default_factory=Hooks)
    interrupts: dict[RunKey, Interrupt] = field(default_factory=dict)
    views: ViewCache = field(default_factory=ViewCache)
    send_report: SendReport = send_nowhere
    unread: UnreadNotifier = field(default_factory=UnreadNotifier)
    background: Background = field(default_factory=Background)
    engine_calls: EngineCalls = field(default_factory=EngineCalls)
    telemetry: Telemetry = field(default_factory=NoTelemetry)
    drain: DrainState = field(default_factory=DrainState)
    signals: TopicSignals = field(default_factory=TopicSignals)
    contents: FileContents | None = None
    price_of: PriceOf = no_price

    def yields(self, model: str) -> bool:
        """Return whether calls of this model that nobody waits for let everybody go first."""
        return self.background.yields(local=self.models.traits(model).local)

    def slot(self, model: str) -> AbstractAsyncContextManager[None]:
        """Return the place of a model call that nobody waits for; see `Background.slot`. Raises: CallPostponed."""
        return self.background.slot(model, local=self.models.traits(model).local)

    def limit_s(self, model: str, seconds: float) -> float | None:
        """Return the most seconds that a call of this model may take; None: no limit, for a local model is slow."""
        return None if self.models.traits(model).local else seconds

    def inputs(self, conversation_key: ConversationKey | None = None) -> UnitInputs:
        """Return what a unit of work that starts now needs, with the cached view of a conversation, if one is given."""
        now, parts = self.clock.now(), None if conversation_key is None else self.views.get(conversation_key)
        return UnitInputs(
            ids=self.ids,
            counter=self.counter,
            models=self.models,
            settings=self.settings,
            owner=self.owner,
            now=now,
            until=now + timedelta(seconds=self.settings.lease_s),
            swaps_early="before_compaction" not in self.hooks.points,
            cached_view=None if parts is None else parts.view,
            engines=self.engine_calls.engines,
            price_of=self.price_of,
        )


SHOW_RESULT: Point[[ToolOutcome, str, Mapping[str, Any], int, Ports], Awaitable[ToolOutcome]] = Point("show_result")
"""What a tool returned, with what the model sees of it: of the tool's name, the agent's settings, and the most
characters that it sees."""


async def show_result(
    outcome: ToolOutcome, tool: str, settings: Mapping[str, Any], limit_chars: int, ports: Ports
) -> ToolOutcome:
    """Return a foreign tool's outcome with the form that the model will see, before it is stored.

    Args:
        settings: of the agent.
        limit_chars: the most characters that the model sees.
    """
    for show in SHOW_RESULT.functions:
        outcome = await show(outcome, tool, settings, limit_chars, ports)
    return outcome
