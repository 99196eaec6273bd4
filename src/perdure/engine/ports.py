"""What the engine needs of the world, in one value; and its few settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.core.models import Models
from perdure.core.ports import Clock, Ids, Randomness, Store, TokenCounter, Toolbox
from perdure.core.runs import RunKey
from perdure.engine.interrupts import Interrupts

__all__ = ["EngineSettings", "Ports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Times in seconds, texts in characters.

    Args:
        lease_s: how long a run belongs to a process that is not heard of.
        beat_s: how often it is heard of, and how often a cancel request from another process is looked for.
        poll_s: how often a waiting reader looks for what another process did.
        reserve_tokens: kept free in the window for the answer.
        delta_flush_s, delta_flush_chars: stored previews of background runs are joined up to these.
        keep_deltas, keep_deltas_s: how many of them are kept, and how long.
    """

    lease_s: float = 15.0
    beat_s: float = 1.0
    poll_s: float = 0.1
    message_limit_chars: int = 1_000_000
    context_window_tokens: int = 128_000
    reserve_tokens: int = 8_000
    delta_flush_s: float = 0.05
    delta_flush_chars: int = 2_000
    keep_deltas: int = 10_000
    keep_deltas_s: float = 3 * 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """`owner` names this process in leases."""

    store: Store
    models: Models
    toolbox: Toolbox
    clock: Clock
    ids: Ids
    randomness: Randomness
    counter: TokenCounter
    owner: str
    settings: EngineSettings = EngineSettings()
    interrupts: Interrupts[RunKey] = field(default_factory=Interrupts)
