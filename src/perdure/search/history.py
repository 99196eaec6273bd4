"""The facts about every message of an agent that a search needs: speaker, time, session and neighbours.

They are columns of numbers, read once and then extended by new messages. Messages never change, so the columns stay
true. A removed message stays in its column; reading the hits leaves it out.
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
from perdure.core.messages import MessageFilter, Turn
from perdure.search.ranking.pool import ROLE, SESSION_SPAN, TOOL, role_number, traits_of
from perdure.storage.tx import Tx

SESSION_GAP_S = 4 * 3_600.0
"""A conversation that was silent for longer begins a new session."""
READ_ROWS = 20_000
CACHED_ROWS = 2_000_000
"""Of all agents together; a row takes about 70 bytes."""


@dataclass(frozen=True, slots=True)
class _Last:
    """The newest row of a conversation: its index, its time, and whether it asks something."""

    index: int
    at: float
    asks: bool


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The messages of people and agents as columns: n rows, in order of `seq`.

    Attributes:
        upto: all messages with a lower number are in it.
        names: the names of speakers that messages carry.
        seq: (n) the number of each message.
        conversation: (n) the number of its conversation.
        spot: (n) its session and its place there, as one number: `session * SESSION_SPAN + place`.
        near: (n, 4) the indexes of the rows 2 and 1 places before and 1 and 2 after in the session; -1 for none.
        occurred_at: (n) epoch seconds.
        traits: (4, n) what ranking needs of each row, from `traits_of`; speakers are indexes into `names`.
        sizes: the number of rows of each session.
        latest_at: the largest of `occurred_at`.
        mean_chars: the mean length of a row.
    """

    upto: int = 0
    names: tuple[str, ...] = ()
    seq: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    conversation: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    spot: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    near: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 4), np.int32))
    occurred_at: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0, np.float64))
    traits: NDArray[np.float32] = field(default_factory=lambda: np.zeros((4, 0), np.float32))
    sizes: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    latest_at: float = -math.inf
    mean_chars: float = 150.0
    _last: dict[int, _Last] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.seq)

    def extend(self, turns: Sequence[Turn], *, upto: int) -> History:
        """Return the history with new rows at its end; the rows are in order of `seq`."""
        if not turns:
            return replace(self, upto=upto)
        names = {name: index for index, name in enumerate(self.names)}
        chars = [turn.chars for turn in turns]
        last = dict(self._last)
        sizes = self.sizes.tolist()
        first = self.rows
        spot: list[int] = []
        before: list[int] = []
        answers: list[bool] = []
        speaker: list[int] = []
        for index, turn in enumerate(turns, start=first):
            previous = last.get(turn.conversation_seq)
            if previous is None or abs(turn.occurred_at - previous.at) > SESSION_GAP_S:
                session = len(sizes)
                sizes.append(0)
                before.append(-1)
                answers.append(False)
            else:
                at = previous.index
                session = (spot[at - first] if at >= first else int(self.spot[at])) // SESSION_SPAN
                before.append(at)
                answers.append(previous.asks)
            spot.append(session * SESSION_SPAN + sizes[session])
            sizes[session] += 1
            last[turn.conversation_seq] = _Last(index, turn.occurred_at, turn.asks)
            speaker.append(-1 if turn.name is None else names.setdefault(turn.name, len(names)))
        traits = traits_of(
            asks=np.array([turn.asks for turn in turns]),
            answers=np.array(answers),
            speaker=np.array(speaker),
            role=np.array([role_number(turn.role) for turn in turns]),
        )
        return History(
            upto=upto,
            names=tuple(names),
            seq=np.concatenate([self.seq, [turn.seq for turn in turns]]),
            conversation=np.concatenate(
                [self.conversation, np.array([turn.conversation_seq for turn in turns], np.int32)]
            ),
            spot=np.concatenate([self.spot, spot]),
            near=_link_neighbours(self.near, before),
            occurred_at=np.concatenate([self.occurred_at, [turn.occurred_at for turn in turns]]),
            traits=np.concatenate([self.traits, traits], axis=1),
            sizes=np.array(sizes, np.int32),
            latest_at=max(self.latest_at, *(turn.occurred_at for turn in turns)),
            mean_chars=(self.mean_chars * self.rows + sum(chars)) / (self.rows + len(turns)),
            _last=last,
        )

    def indexes(self, seqs: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indexes of rows by their numbers, -1 for a number that the history doesn't have."""
        wanted = np.asarray(seqs, np.int64)
        if not (self.rows and len(wanted)):
            return np.full(len(wanted), -1, np.int64)
        first = int(self.seq[0])
        if int(self.seq[-1]) - first == self.rows - 1:  # no number is missing, as in an imported log
            at = wanted - first
            if np.minimum.reduce(at) >= 0 and np.maximum.reduce(at) < self.rows:
                return at
        at = np.minimum(self.seq.searchsorted(wanted), self.rows - 1)
        return np.where(self.seq[at] == wanted, at, -1)

    def columns(self, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float32]]:
        """Return (spot (m), occurred_at (m), traits (4, m)) of the rows at these indexes.

        Index -1 stands for a tool result. It is in no session, so it gets a negative session of its own, and no time.
        """
        if not len(at) or np.minimum.reduce(at) >= 0:
            return self.spot.take(at), self.occurred_at.take(at), self.traits.take(at, axis=1)
        known = at >= 0
        spot = SESSION_SPAN * (-1 - np.arange(len(at)))
        occurred_at = np.full(len(at), -np.inf)
        nothing = np.zeros(len(at))
        traits = traits_of(asks=nothing, answers=nothing, speaker=nothing - 1, role=nothing + TOOL)
        spot[known], occurred_at[known] = self.spot[at[known]], self.occurred_at[at[known]]
        traits[:, known] = self.traits[:, at[known]]
        return spot, occurred_at, traits

    def with_neighbours(self, indexes: NDArray[np.int64], *, first: int) -> NDArray[np.int64]:
        """Return these rows with up to two rows before and after each of the `first` ones, each row once, in order."""
        near = np.unique(np.concatenate([indexes, self.near.take(indexes[:first], axis=0).ravel()]))
        return near[1:] if len(near) and near[0] < 0 else near

    def mask(
        self, where: MessageFilter, *, out_of_view: Mapping[int, int] = MappingProxyType({})
    ) -> NDArray[np.bool_] | None:
        """Return (n) which rows the filter lets through; None means all.

        `out_of_view` maps a conversation to a number: its rows up to that number are left out.
        """
        mask: NDArray[np.bool_] | None = None
        for condition in self._conditions(where):
            mask = condition if mask is None else mask & condition
        for line, upto in out_of_view.items():
            later = (self.conversation != line) | (self.seq > upto)
            mask = later if mask is None else mask & later
        return mask

    def _conditions(self, where: MessageFilter) -> list[NDArray[np.bool_]]:
        """Build one mask for each condition of the filter."""
        conditions: list[NDArray[np.bool_]] = []
        if where.conversation_seq is not None:
            conditions.append(self.conversation == where.conversation_seq)
        if where.roles:
            conditions.append(np.isin(self.traits[ROLE], [role_number(role) for role in where.roles]))
        if where.since is not None:
            conditions.append(self.occurred_at >= where.since.timestamp())
        if where.until is not None:
            conditions.append(self.occurred_at <= where.until.timestamp())
        if where.before_seq is not None:
            conditions.append(self.seq < where.before_seq)
        return conditions


class Histories:
    """A cache of the histories of the agents that were searched last. Several threads may use it."""

    def __init__(self, *, max_rows: int = CACHED_ROWS) -> None:
        self._max_rows, self._rows = max_rows, 0
        self._entries: OrderedDict[AgentId, History] = OrderedDict()
        self._lock = threading.Lock()
        self._empty = History()

    def load(self, tx: Tx, agent_id: AgentId) -> History:
        """Load the history that this transaction sees; it may hold later rows too."""
        upto = tx.messages.next_seq(agent_id)
        with self._lock:
            history = self._entries.get(agent_id) or self._empty
        if history.upto < upto:
            turns: list[Turn] = []
            while page := tx.messages.turns(
                agent_id, from_seq=turns[-1].seq + 1 if turns else history.upto, limit=READ_ROWS
            ):
                turns += page
            history = history.extend(turns, upto=upto)
        with self._lock:
            cached = self._entries.get(agent_id, self._empty)
            if cached.upto < history.upto or agent_id not in self._entries:
                self._entries[agent_id] = history
                self._rows += history.rows - cached.rows
            self._entries.move_to_end(agent_id)
            while self._rows > self._max_rows and len(self._entries) > 1:
                self._rows -= self._entries.popitem(last=False)[1].rows
        return history


def _link_neighbours(near: NDArray[np.int32], before: Sequence[int]) -> NDArray[np.int32]:
    """Extend `History.near` by new rows. `before` holds the index of the row before each of them; -1 for none."""
    first = len(near)
    near = np.concatenate([near, np.full((len(before), 4), -1, np.int32)])
    one = np.array(before, np.int32)
    rows = np.arange(first, len(near), dtype=np.int32)[one >= 0]
    one = one[one >= 0]
    near[rows, 1], near[one, 2] = one, rows
    two = near[one, 1]
    rows, two = rows[two >= 0], two[two >= 0]
    near[rows, 0], near[two, 3] = two, rows
    return near
