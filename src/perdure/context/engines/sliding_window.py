"""Letta's engine: when the window is full, the oldest share of the messages leaves, behind one summary."""

from __future__ import annotations

from dataclasses import replace

from perdure.context.engines.evictions import evict_count, evict_share
from perdure.context.engines.port import ShippedEngine
from perdure.context.window.plan import Evict, Plan, Situation, plan, split_atoms
from perdure.core.conversations import EVICT_SHARE


class SlidingWindow(ShippedEngine):
    """The share is the agent's `sliding_window_percentage`, 0.3 by default, more where the rest would not fit its part
    of the window. With the modes `all`, all messages leave that may. It is what takes over from a failed engine."""

    name = "sliding_window"
    owns_compaction = True

    def plan(self, situation: Situation) -> Plan | None:
        share = self.share(situation)
        # Perdure's plan cuts what is too large by itself, and finds a floor; only its evictions are replaced.
        found = plan(replace(situation, prepared=(), keep_share=min(0.9, 1 - share)))
        if not isinstance(found, Evict) or not found.atoms:
            return found
        own = None
        if not situation.compaction.takes_all:
            own = evict_share(situation, share, absorbs=self.absorbs)
        count = len(split_atoms(situation)[0]) if situation.compaction.takes_all else len(found.atoms)
        return own or evict_count(situation, count, absorbs=self.absorbs) or found

    def share(self, situation: Situation) -> float:
        """Return the share of the messages that leaves."""
        share = situation.compaction.evict_share
        return EVICT_SHARE if share is None else share
