"""Letta's engines: the oldest share of the messages leaves when the window is full, behind one summary; as MemGPT did,
with one summary before the messages; or all but a fixed number of messages leave, whatever the size of the window.
"""

from __future__ import annotations

from dataclasses import replace

from perdure.context.engines.evictions import begins_turn, evict_count, evict_share
from perdure.context.engines.port import ShippedEngine
from perdure.context.window.plan import Evict, Plan, Situation, messages_of, plan, split_atoms
from perdure.core.conversations import EVICT_SHARE
from perdure.core.errors import InvalidInput


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


class RecursiveSummary(SlidingWindow):
    """`sliding_window`, but each summary takes the place of the one before, which it was made from."""

    name = "recursive_summary"
    absorbs = True

    def __init__(self, *, partial_evict_summarizer_percentage: float = EVICT_SHARE) -> None:
        """Make the engine. Raises: InvalidInput.

        Args:
            partial_evict_summarizer_percentage: the share of the messages that leaves; an agent's
                `sliding_window_percentage` wins.
        """
        share = partial_evict_summarizer_percentage
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise InvalidInput(f"partial_evict_summarizer_percentage is {share!r:.80}: give a number above 0, up to 1")
        self._own_share = float(share)

    def share(self, situation: Situation) -> float:
        share = situation.compaction.evict_share
        return self._own_share if share is None else share


class MessageBuffer(RecursiveSummary):
    """When more messages are in view than the limit, all but the newest leave, behind one summary, up to a user's
    message. A window that is full before that is handled as by `recursive_summary`."""

    name = "message_buffer"

    def __init__(self, *, message_buffer_limit: int = 10, message_buffer_min: int = 3) -> None:
        """Make the engine.

        Args:
            message_buffer_limit: the most messages in view.
            message_buffer_min: how many of them stay at least.

        Raises: InvalidInput.
        """
        super().__init__()
        limit, least = message_buffer_limit, message_buffer_min
        if type(limit) is not int or type(least) is not int or not 1 <= least < limit:
            raise InvalidInput(
                f"message_buffer_limit is {limit!r:.80} and message_buffer_min {least!r:.80}: give whole numbers from"
                " 1 on, the second below the first"
            )
        self._limit, self._least = limit, least

    def assemble(self, situation: Situation) -> Evict | None:
        rows = [row for row in (*situation.pinned, *situation.rows) if row.kind == "message"]
        if len(rows) <= self._limit:
            return None
        candidates, fixed = split_atoms(situation)
        following = [*candidates, *fixed]
        left, cut = len(rows) - len(situation.pinned), 0
        for count, atom in enumerate(candidates, 1):
            left -= sum(row.kind == "message" for row in atom.messages)
            if left < self._least:
                break
            if begins_turn(messages_of(following[count : count + 1])[0]):
                cut = count
        return evict_count(situation, cut, absorbs=True)
