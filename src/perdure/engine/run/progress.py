"""What one transaction of a run brought."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.context.request.assemble import View
from perdure.context.window.plan import Plan
from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.events import StoredEvent
from perdure.core.nodes import SummaryNode
from perdure.engine.run.log import RunLog


@dataclass(frozen=True, slots=True)
class RequestParts:
    """What the request of a pending step is made of, besides its recipe."""

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
    window_tokens: int
    reserve_tokens: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The log as a transaction left it in the store, and the events to send.

    Args:
        request: of the pending step, if this transaction recorded it.
        room: what has to be done before the next request can be made.
    """

    log: RunLog
    events: Sequence[StoredEvent] = ()
    request: RequestParts | None = None
    room: RoomPlan | None = None
