"""The result of one transaction of a run, and the views of conversations that this process keeps between them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from perdure.context.request.assemble import View
from perdure.context.window.plan import Plan
from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import AgentId
from perdure.core.nodes import SummaryNode
from perdure.engine.run.log import RunLog, open_calls_in

Line = tuple[AgentId, int]
"""A conversation: agent and number."""

Tell = Callable[[Sequence[StoredEvent | Delta]], None]
"""Publishes what happens in a run, in order; it takes no time."""

VIEWS_MAX = 256


@dataclass(frozen=True, slots=True)
class RequestParts:
    """The parts of a pending step's request, besides its recipe."""

    agent: Agent
    view: View


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomPlan:
    """A request that would not fit, and the plan that makes room for it.

    Args:
        nodes: the summary nodes in view, oldest first.
    """

    log: RunLog
    agent: Agent
    conversation: Conversation
    view: View
    nodes: Sequence[SummaryNode]
    plan: Plan
    budget_tokens: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The log as a transaction left it in the store, and the events to send.

    Args:
        request: of the pending step, if this transaction recorded it.
        room: the plan that has to be carried out before the next request can be made.
    """

    log: RunLog
    events: Sequence[StoredEvent] = ()
    request: RequestParts | None = None
    room: RoomPlan | None = None


class Views(OrderedDict[Line, RequestParts]):
    """The parts of the newest requests of at most 256 conversations, so that a long conversation costs no more than a
    short one. Safe to lose: a view is a prefix and the rows after it, and neither ever changes."""

    def put(self, progress: Progress) -> None:
        """Keep the parts of a request that was recorded, or that needs room first."""
        parts = progress.request
        if progress.room is not None:
            parts = RequestParts(progress.room.agent, progress.room.view)
        if parts is not None:
            line = (progress.log.run.key.agent_id, progress.log.run.conversation_seq)
            self[line] = parts
            self.move_to_end(line)
            if len(self) > VIEWS_MAX:
                self.popitem(last=False)

    def extend(self, log: RunLog) -> None:
        """Add the messages of an ended run to the view of its conversation, so that they need not be read."""
        line = (log.run.key.agent_id, log.run.conversation_seq)
        if (parts := self.get(line)) is not None and log.run.ended and not open_calls_in(log.messages):
            self[line] = replace(parts, view=parts.view.with_rows(parts.view.following(log.messages)))
