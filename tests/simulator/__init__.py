"""A seeded simulator of the loop: virtual time, faults at every await, crashes, two processes on one store.

One seed is one history: `simulate(seed)` runs it and raises `Violation` when a promise was broken; the same seed breaks
it again.
"""

from __future__ import annotations

from tests.simulator.invariants import Violation
from tests.simulator.simulate import Report, simulate
from tests.simulator.virtual_time import VirtualLoop

__all__ = ["Report", "Violation", "VirtualLoop", "simulate"]
