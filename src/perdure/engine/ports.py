"""What the engine needs of the world: the ports, its few settings, and what a unit of work gets of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from perdure.context.request.assemble import View
from perdure.context.window.budget import reserve_tokens
from perdure.core.agents import Agent
from perdure.core.events import MemoryRecalled
from perdure.core.ids import Ids
from perdure.core.limits import DEFAULT_LIMITS, Limits
from perdure.core.models import Models
from perdure.core.ports import Clock, Randomness, TokenCounter, Toolbox
from perdure.core.runs import RunKey
from perdure.core.secrets import Cipher, NoCipher
from perdure.engine.hooks.bus import Hooks
from perdure.engine.run.interrupts import Interruptible
from perdure.engine.search.search import Search
from perdure.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Times in seconds, texts in characters.

    Args:
        lease_s: how long a run belongs to a process that is not heard of.
        beat_s: how often it is heard of, and how often a cancel request from another process is looked for.
        poll_s: how often a waiting reader looks for what another process did.
        context_window_tokens: the window of models that nobody knows better of, and the most that is used of others.
        reserve_tokens: kept free in the window for the answer.
        delta_flush_s, delta_flush_chars: stored previews of background runs are joined up to these.
        summary_timeout_s: how long a model may take for a summary before our own code makes one.
        tool_timeout_s: how long a tool may take that says nothing about it.
        recall_timeout_s: how long automatic recall may take before a message is answered without it.
        keep_deltas, keep_deltas_s: how many of them are kept, and how long.
    """

    lease_s: float = 15.0
    beat_s: float = 1.0
    poll_s: float = 0.1
    message_limit_chars: int = 500_000
    limits: Limits = DEFAULT_LIMITS
    context_window_tokens: int = 128_000
    reserve_tokens: int = 8_000
    summary_timeout_s: float = 60.0
    recall_timeout_s: float = 1.0
    tool_timeout_s: float = 30.0
    delta_flush_s: float = 0.05
    delta_flush_chars: int = 2_000
    keep_deltas: int = 10_000
    keep_deltas_s: float = 3 * 3_600.0


def window_tokens(agent: Agent, models: Models, settings: EngineSettings) -> int:
    """The window to stay within: the agent's own setting, else what the model takes, at most the engine's setting."""
    own = agent.settings.get("context_window_tokens")
    if isinstance(own, int):
        return own
    known = models.window_tokens(agent.model)
    return settings.context_window_tokens if known is None else min(known, settings.context_window_tokens)


@dataclass(frozen=True, slots=True)
class AutoRecalled:
    """What memory has on a run's newest message, and the event for it; None: there is nothing to tell."""

    text: str
    event: MemoryRecalled | None


NO_RECALL = AutoRecalled("", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitInputs:
    """What a unit of work needs from outside the store.

    Args:
        owner: the name of this process in leases.
        until: when a lease ends that the unit takes or extends.
        cached_view: the conversation's view as this process last built it; the store says whether it still holds.
        recalled: what a run's first request shows of memory; None: nothing was searched.
    """

    ids: Ids
    counter: TokenCounter
    models: Models
    settings: EngineSettings
    owner: str
    now: datetime
    until: datetime
    cached_view: View | None = None
    recalled: AutoRecalled | None = None

    def window(self, agent: Agent) -> tuple[int, int]:
        """(tokens of the agent's window, how many of them are kept for the answer)."""
        tokens = window_tokens(agent, self.models, self.settings)
        return tokens, reserve_tokens(tokens, self.settings.reserve_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Everything that the engine needs of the world.

    Args:
        owner: the name of this process in leases.
        interrupts: what each run of this process waits for just now, so that a cancel request can end the wait.
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
    interrupts: dict[RunKey, Interruptible] = field(default_factory=dict)

    def inputs(self, cached_view: View | None = None) -> UnitInputs:
        """What a unit of work that starts now needs."""
        now = self.clock.now()
        return UnitInputs(
            ids=self.ids,
            counter=self.counter,
            models=self.models,
            settings=self.settings,
            owner=self.owner,
            now=now,
            until=now + timedelta(seconds=self.settings.lease_s),
            cached_view=cached_view,
        )
