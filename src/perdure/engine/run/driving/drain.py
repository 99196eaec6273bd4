"""How a process that is about to end lets go of its runs: between two steps, where nothing is done twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


class GivenBack(Exception):
    """The run is given back to other processes instead of beginning its next step."""


@dataclass(slots=True)
class Drain:
    """Whether this process is about to end, and until when runs may begin a step, by the time of the event loop."""

    steps_until: float | None = None

    @property
    def is_on(self) -> bool:
        """Whether no run is begun any more."""
        return self.steps_until is not None

    def begin(self, within_s: float) -> None:
        """Let runs begin steps for half of this time, in seconds; the other half is for the last ones."""
        if self.steps_until is None:
            self.steps_until = asyncio.get_running_loop().time() + within_s / 2

    def check(self) -> None:
        """Raises: GivenBack: it is too late to begin a step."""
        if self.steps_until is not None and asyncio.get_running_loop().time() >= self.steps_until:
            raise GivenBack
