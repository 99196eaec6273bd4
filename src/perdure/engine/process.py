"""What one process has beside the store: views of its conversations, its own end, and signals of other processes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from perdure.core.conversations import ConversationKey
from perdure.core.ids import AgentId
from perdure.core.messages import Message
from perdure.core.runs import RunKey
from perdure.engine.log.run_log import Progress, RequestParts, RunLog, open_calls_in
from perdure.storage.store import Store

VIEWS_MAX = 256
VIEWS_BYTES = 32 * 2**20
"""256 views of a hundred short messages, or one that fills a window of a million tokens."""
MESSAGE_BYTES = 1_100
"""What a message takes beside its text."""
TOKEN_BYTES = 4


class ViewCache(OrderedDict[ConversationKey, RequestParts]):
    """The parts of the newest requests of the conversations that were used last, so that a long conversation costs no
    more than a short one. Safe to lose: a view is a prefix and the rows after it, and neither ever changes. A run with
    a system text of its own shows another prefix than the conversation's, so its views are not kept.

    Args:
        max_bytes: of all views together, by an estimate; one that is larger is kept alone.
    """

    def __init__(self, *, max_bytes: int = VIEWS_BYTES) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self._sizes: dict[ConversationKey, int] = {}  # in bytes
        self.nbytes = 0

    def put(self, progress: Progress) -> None:
        """Keep the parts of a request that was recorded, or that needs room first."""
        parts = progress.request
        if progress.room is not None:
            parts = RequestParts(progress.room.agent, progress.room.view)
        if parts is not None and progress.log.run.options.system is None:
            self.keep((progress.log.run.key.agent_id, progress.log.run.conversation_seq), parts)

    def extend(self, log: RunLog) -> None:
        """Add the messages of an ended run to the view of its conversation, so that they need not be read."""
        conversation_key = (log.run.key.agent_id, log.run.conversation_seq)
        if (parts := self.get(conversation_key)) is not None and log.run.ended and not open_calls_in(log.messages):
            self.keep(conversation_key, replace(parts, view=parts.view.with_rows(parts.view.following(log.messages))))

    def keep(self, conversation_key: ConversationKey, parts: RequestParts) -> None:
        """Keep a view as the newest; drop those that were used longest ago and have no room."""
        before, rows = self.get(conversation_key), parts.view.rows
        known = 0 if before is None else len(before.view.rows)
        # A view mostly grows, and a long one is not counted again for each message.
        if before is not None and before.view.prefix is parts.view.prefix and known <= len(rows):
            size = self._sizes[conversation_key] + size_of(rows[known:])
        else:
            size = size_of(parts.view.pinned) + size_of(rows)
        self.nbytes += size - self._sizes.get(conversation_key, 0)
        self[conversation_key], self._sizes[conversation_key] = parts, size
        self.move_to_end(conversation_key)
        while len(self) > 1 and (len(self) > VIEWS_MAX or self.nbytes > self._max_bytes):
            oldest, _ = self.popitem(last=False)
            self.nbytes -= self._sizes.pop(oldest)


def size_of(messages: Sequence[Message]) -> int:
    """Estimate the bytes of memory that these messages take."""
    return sum(MESSAGE_BYTES + TOKEN_BYTES * message.tokens for message in messages)


class RunReleased(Exception):
    """The run is given back to other processes instead of beginning its next step."""


@dataclass(slots=True)
class DrainState:
    """Whether this process is about to end, so that runs no longer begin, and until when (loop time) steps may."""

    is_on: bool = False
    steps_until: float = float("inf")

    def begin(self, within_s: float) -> None:
        """Let runs begin steps for half of this time, in seconds; the other half is for the last ones."""
        if not self.is_on:
            self.is_on, self.steps_until = True, asyncio.get_running_loop().time() + within_s / 2

    def check(self) -> None:
        """Check that a step may still begin. Raises: RunReleased: it is too late."""
        if self.is_on and asyncio.get_running_loop().time() >= self.steps_until:
            raise RunReleased


LOOK_S = 2.0
"""How often who waits looks by itself where signals come: one may be lost with the process that would have sent it."""


class TopicSignals:
    """Calls functions with what the topics of others are about. Without `hear` nothing is ever called."""

    def __init__(self) -> None:
        self._calls: defaultdict[str, list[Callable[[str], None]]] = defaultdict(list)  # by kind
        self._are_heard = False

    def hear(self, store: Store) -> None:
        """Begin to receive signals of other processes, if the store can."""
        self._are_heard = store.listen(self._pass_on)

    def on(self, kind: str, call: Callable[[str], None]) -> None:
        """Register `call` for topics of this kind; it gets the text after the kind, "" for any."""
        self._calls[kind].append(call)

    def look_s(self, poll_s: float) -> float:
        """Return how often to look by oneself: every `poll_s` seconds if no signals come, less often if they do."""
        return max(poll_s, LOOK_S) if self._are_heard else poll_s

    def _pass_on(self, topics: Sequence[str] | None) -> None:
        """Call the functions for these topics, "kind rest"; None: signals may be lost, so call all."""
        if topics is None:
            topics = list(self._calls)
        for topic in topics:
            kind, _, rest = topic.partition(" ")
            for call in self._calls.get(kind, ()):
                call(rest)


def run_of_topic(rest: str) -> RunKey | None:
    """Return the run that a topic is about: "agent-id number", the text behind its kind; None: it is about any run."""
    agent_id, _, seq = rest.rpartition(" ")
    return RunKey(AgentId(agent_id), int(seq)) if agent_id and seq.isdecimal() else None
