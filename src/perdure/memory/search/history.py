"""What a search has to know of every message of an agent: who said it, when, in which session, beside which others.

Columns of numbers, read once and then extended by what was added: a message is never changed, so what was read stays
true. A removed message stays in its column; it is left out when the hits are read.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from perdure.core.ids import AgentId
from perdure.core.tx import MessageFilter, Turn, Tx
from perdure.memory.ranking.pool import role_number

__all__ = ["Histories", "History", "once"]

SESSION_GAP_S = 4 * 3_600.0
"""A conversation that was silent for longer begins a new session."""
READ_ROWS = 20_000
CACHED_ROWS = 2_000_000
"""Of all agents together; a row takes about 50 bytes."""


@dataclass(frozen=True, slots=True)
class _Last:
    """The newest row of a conversation: its index, time, and whether it asks."""

    index: int
    at: float
    asks: bool


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """One row for each thing that people and agents said, in order of `seq`: n rows.

    Attributes:
        upto: every message with a lower number is in it.
        names: who spoke, as far as messages carry names; `speaker` (n) is an index into it, -1: no name.
        session: (n) number of the session; `sizes[session]` is how many rows it has.
        place: (n) position within the session.
        before, after: (n) index of the neighbouring row in the session, -1: none.
        occurred_at: (n) epoch seconds.
        latest_at: the largest of `occurred_at`; mean_chars: the mean of `chars`.
        asks: (n) whether it holds a question; after_question: whether the row before it in the session does.
    """

    upto: int = 0
    names: tuple[str, ...] = ()
    seq: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    conversation: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    session: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    place: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    before: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    after: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    speaker: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    role: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    occurred_at: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0, np.float64))
    chars: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    asks: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    after_question: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    sizes: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    latest_at: float = -math.inf
    mean_chars: float = 150.0
    _last: dict[int, _Last] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(self.seq)

    def extended(self, turns: Sequence[Turn], *, upto: int) -> History:
        """With these rows after its own, which are in order of `seq`."""
        if not turns:
            return replace(self, upto=upto)
        names = {name: index for index, name in enumerate(self.names)}
        chars = [turn.chars for turn in turns]
        last = dict(self._last)
        sizes = self.sizes.tolist()
        first = self.rows
        session: list[int] = []
        place: list[int] = []
        before: list[int] = []
        after_question: list[bool] = []
        after = np.concatenate([self.after, np.full(len(turns), -1, np.int32)])
        speaker: list[int] = []
        for index, turn in enumerate(turns, start=first):
            previous = last.get(turn.conversation_seq)
            if previous is None or abs(turn.occurred_at - previous.at) > SESSION_GAP_S:
                session.append(len(sizes))
                sizes.append(0)
                before.append(-1)
                after_question.append(False)
            else:
                at = previous.index
                session.append(session[at - first] if at >= first else int(self.session[at]))
                before.append(at)
                after[at] = index
                after_question.append(previous.asks)
            place.append(sizes[session[-1]])
            sizes[session[-1]] += 1
            last[turn.conversation_seq] = _Last(index, turn.occurred_at, turn.asks)
            speaker.append(-1 if turn.name is None else names.setdefault(turn.name, len(names)))
        return History(
            upto=upto,
            names=tuple(names),
            seq=np.concatenate([self.seq, [turn.seq for turn in turns]]),
            conversation=_joined(self.conversation, [turn.conversation_seq for turn in turns]),
            session=_joined(self.session, session),
            place=_joined(self.place, place),
            before=_joined(self.before, before),
            after=after,
            speaker=_joined(self.speaker, speaker),
            role=np.concatenate([self.role, np.array([role_number(turn.role) for turn in turns], np.int8)]),
            occurred_at=np.concatenate([self.occurred_at, [turn.occurred_at for turn in turns]]),
            chars=_joined(self.chars, chars),
            asks=np.concatenate([self.asks, np.array([turn.asks for turn in turns], np.bool_)]),
            after_question=np.concatenate([self.after_question, np.array(after_question, np.bool_)]),
            sizes=np.array(sizes, np.int32),
            latest_at=max(self.latest_at, *(turn.occurred_at for turn in turns)),
            mean_chars=(self.mean_chars * self.rows + sum(chars)) / (self.rows + len(turns)),
            _last=last,
        )

    def indexes(self, seqs: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Where rows of these numbers stand, -1 for those that are not in it."""
        wanted = np.asarray(seqs, np.int64)
        if not self.rows:
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self.seq, wanted), self.rows - 1)
        return np.where(self.seq[at] == wanted, at, -1)

    def with_neighbours(self, indexes: NDArray[np.int64], *, steps: int) -> NDArray[np.int64]:
        """The rows and those up to `steps` places before and after them in their sessions, each once, in order."""
        found, earlier, later = [indexes], indexes, indexes
        for _ in range(steps):
            earlier = _there(self.before[earlier])
            later = _there(self.after[later])
            found += [earlier, later]
        return once(np.concatenate(found))

    def mask(
        self, where: MessageFilter, *, out_of_view: Mapping[int, int] = MappingProxyType({})
    ) -> NDArray[np.bool_] | None:
        """(n) which rows the filter lets through; None: all of them. Of the conversations in `out_of_view`, none up to
        that number."""
        mask: NDArray[np.bool_] | None = None
        for condition in self._conditions(where):
            mask = condition if mask is None else mask & condition
        for line, upto in out_of_view.items():
            later = (self.conversation != line) | (self.seq > upto)
            mask = later if mask is None else mask & later
        return mask

    def _conditions(self, where: MessageFilter) -> list[NDArray[np.bool_]]:
        conditions: list[NDArray[np.bool_]] = []
        if where.conversation_seq is not None:
            conditions.append(self.conversation == where.conversation_seq)
        if where.roles:
            conditions.append(np.isin(self.role, [role_number(role) for role in where.roles]))
        if where.since is not None:
            conditions.append(self.occurred_at >= where.since.timestamp())
        if where.until is not None:
            conditions.append(self.occurred_at <= where.until.timestamp())
        if where.before_seq is not None:
            conditions.append(self.seq < where.before_seq)
        return conditions


class Histories:
    """The histories of the agents that were searched last. Several threads may read and extend them."""

    def __init__(self, *, max_rows: int = CACHED_ROWS) -> None:
        self._max_rows = max_rows
        self._held: OrderedDict[AgentId, History] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, tx: Tx, agent_id: AgentId) -> History:
        """The history of all that this transaction sees; it may hold rows that came later."""
        upto = tx.messages.next_seq(agent_id)
        with self._lock:
            history = self._held.get(agent_id, History())
        if history.upto < upto:
            turns: list[Turn] = []
            while page := tx.messages.turns(
                agent_id, from_seq=turns[-1].seq + 1 if turns else history.upto, limit=READ_ROWS
            ):
                turns += page
            history = history.extended(turns, upto=upto)
        with self._lock:
            held = self._held.get(agent_id)
            if held is None or held.upto < history.upto:
                self._held[agent_id] = history
            self._held.move_to_end(agent_id)
            while sum(held.rows for held in self._held.values()) > self._max_rows and len(self._held) > 1:
                self._held.popitem(last=False)
        return history


def once(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers in order, each once; numpy's own `unique` takes five times as long for some hundreds."""
    ordered = np.sort(numbers)
    new = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def _there(indexes: NDArray[np.int32]) -> NDArray[np.int64]:
    return indexes[indexes >= 0].astype(np.int64)


def _joined(old: NDArray[np.int32], new: Sequence[int]) -> NDArray[np.int32]:
    return np.concatenate([old, np.array(new, np.int32)])
