"""Letta's older engine: a buffer of a fixed number of messages, whatever the size of the window."""

from __future__ import annotations

from perdure.context.engines.evictions import begins_turn, evict_count
from perdure.context.engines.recursive_summary import RecursiveSummary
from perdure.context.window.plan import Evict, Situation, messages_of, split_atoms
from perdure.core.errors import InvalidInput


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
