"""What other processes of the store have committed, heard by whoever waits for it in this one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from perdure.core.ids import AgentId
from perdure.core.runs import RunKey
from perdure.storage.store import Store

LOOK_S = 2.0
"""How often who waits looks by itself where signals come: one may be lost with the process that would have sent it."""


class Signals:
    """Calls functions with what the topics of others are about. Without `hear` nothing is ever called."""

    def __init__(self) -> None:
        self._calls: defaultdict[str, list[Callable[[str], None]]] = defaultdict(list)
        self._are_heard = False

    def hear(self, store: Store) -> None:
        """Begin to hear, if the store can."""
        self._are_heard = store.listen(self._pass_on)

    def on(self, kind: str, call: Callable[[str], None]) -> None:
        """Have `call` called after each topic of this kind, with the rest of it; an empty text: any may have come."""
        self._calls[kind].append(call)

    def look_s(self, poll_s: float) -> float:
        """How often to look: every `poll_s` if no signals come."""
        return max(poll_s, LOOK_S) if self._are_heard else poll_s

    def _pass_on(self, topics: Sequence[str] | None) -> None:
        if topics is None:
            topics = list(self._calls)
        for topic in topics:
            kind, _, rest = topic.partition(" ")
            for call in self._calls.get(kind, ()):
                call(rest)


def key_of(rest: str) -> RunKey | None:
    """The run that a topic `run` is about; None: of any."""
    agent_id, _, seq = rest.rpartition(" ")
    return RunKey(AgentId(agent_id), int(seq)) if agent_id and seq.isdecimal() else None
