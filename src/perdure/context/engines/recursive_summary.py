"""MemGPT's engine: one summary stands before the messages, and each eviction is summarised together with it."""

from __future__ import annotations

from perdure.context.engines.sliding_window import SlidingWindow
from perdure.context.window.plan import Situation
from perdure.core.conversations import EVICT_SHARE
from perdure.core.errors import InvalidInput


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
