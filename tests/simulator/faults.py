"""What goes wrong, where and when: decided by a seed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from perdure.core.errors import ModelUnreachable, StoreBusy


class Crash(BaseException):
    """The process is gone. Not an `Exception`, because nothing that a program does can handle it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """Chances at each await: that the process dies there, the store refuses, the model fails, the process stalls for
    longer than its lease, or anything is merely slow; that our own code has a defect where a tool is looked up; that
    somebody else's request to stop, or their taking over of the runs, is committed right before a transaction."""

    crash: float = 0.01
    store: float = 0.01
    model: float = 0.02
    stall: float = 0.006
    slow: float = 0.1
    defect: float = 0.004
    stop: float = 0.003
    take: float = 0.003


class Faults:
    """The faults of one process. Nothing goes wrong after `heal`."""

    def __init__(self, rng: random.Random, rates: FaultRates, *, lease_s: float) -> None:
        self._rng, self._rates, self._lease_s = rng, rates, lease_s
        self._healed = False
        self.struck = 0

    def heal(self) -> None:
        self._healed = True

    async def at(self, point: str) -> None:
        """Pass a point where something may go wrong: `read`, `write`, `commit`, `committed`, `model`, `tool`, `hook` or
        `embed`.

        A store that refuses after the commit is one whose answer got lost on the way. Nobody stalls at a commit, for
        which all processes wait.
        """
        if self._healed:
            return
        rng, rates = self._rng, self._rates
        if rng.random() < rates.slow:
            await asyncio.sleep(rng.choice((0.0, 0.001, 0.03, 0.4, 2.0)))
        if point != "commit" and rng.random() < rates.stall:
            self.struck += 1
            await asyncio.sleep(self._lease_s * rng.uniform(1.0, 3.0))
        if rng.random() < rates.crash:
            self.struck += 1
            raise Crash(point)
        if point in ("read", "write", "commit", "committed") and rng.random() < rates.store:
            self.struck += 1
            raise StoreBusy(f"simulated at {point}")
        if point in ("model", "embed") and rng.random() < rates.model:
            self.struck += 1
            raise ModelUnreachable("simulated: the provider is down")

    def stops(self) -> bool:
        """Whether somebody asks runs to stop just now."""
        return not self._healed and self._rng.random() < self._rates.stop

    def takes(self) -> bool:
        """Whether somebody takes the process's runs over just now."""
        return not self._healed and self._rng.random() < self._rates.take

    def defect(self) -> None:
        """Pass a point where our own code may have a defect. Raises: RuntimeError."""
        if not self._healed and self._rng.random() < self._rates.defect:
            self.struck += 1
            raise RuntimeError("simulated: a defect")
