"""Views: what this process last read of each conversation, so that a long one costs no more than a short one.

Derived, bounded, and safe to lose: a view is a prefix and the rows after it, both of which never change.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from perdure.context.request.assemble import View
from perdure.core.ids import AgentId
from perdure.engine.run.log import RunLog
from perdure.engine.run.progress import Progress, RequestParts

Line = tuple[AgentId, int]
"""A conversation: agent and number."""


class Views:
    """The newest request parts of at most `size` conversations."""

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._cached: OrderedDict[Line, RequestParts] = OrderedDict()

    def get(self, line: Line) -> RequestParts | None:
        return self._cached.get(line)

    def cached_view(self, line: Line) -> View | None:
        parts = self._cached.get(line)
        return None if parts is None else parts.view

    def put(self, progress: Progress) -> None:
        """Keep what a request was made of, or would have been if there were room for it."""
        parts = progress.request
        if progress.room is not None:
            parts = RequestParts(progress.room.agent, progress.room.view)
        if parts is not None:
            line = (progress.log.run.key.agent_id, progress.log.run.conversation_seq)
            self._cached[line] = parts
            self._cached.move_to_end(line)
            while len(self._cached) > self._size:
                self._cached.popitem(last=False)

    def extend(self, log: RunLog) -> None:
        """Add the messages of an ended run to the view of its conversation, so that they need not be read."""
        line = (log.run.key.agent_id, log.run.conversation_seq)
        if (parts := self._cached.get(line)) is not None and log.run.ended and not log.open_calls:
            view = parts.view.with_rows(parts.view.following(log.messages))
            self._cached[line] = replace(parts, view=view)
