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
from functools import reduce
from operator import and_
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from perdure.core.ids import AgentId
from perdure.core.messages import TURN_FORMAT, MessageFilter, TurnPart
from perdure.search.ranking.pool import ASKS, ROLE, SESSION_SPAN, TOOL, role_number, traits_of
from perdure.storage.tx import Tx

SESSION_GAP_S = 4 * 3_600.0
"""A conversation that was silent for longer begins a new session."""
CACHED_ROWS = 2_000_000
"""Of all agents together; a row takes about 70 bytes."""


_NAMES = ("seq", "at", "line", "chars", "speaker", "role", "asks")
_TURNS = np.dtype([(name, f"<{letter}") for name, letter in zip(_NAMES, TURN_FORMAT[1:], strict=True)])
"""`TURN_FORMAT` for numpy."""
Indexes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class LogColumns:
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
    _last: Mapping[int, int] = field(default_factory=dict)  # conversation -> the index of its newest row

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.seq)

    def extend(self, parts: Sequence[TurnPart], *, upto: int) -> LogColumns:
        """Return the history with new rows at its end; the rows are in order of `seq`."""
        names = {name: index for index, name in enumerate(self.names)}
        read = [np.frombuffer(part.rows, _TURNS) for part in parts]
        new = np.concatenate([np.zeros(0, _TURNS), *read])
        if not len(new):
            return replace(self, upto=upto)
        # The last place stands for nobody, -1.
        numbers = [np.array([*(names.setdefault(name, len(names)) for name in part.names), -1]) for part in parts]
        speaker = np.concatenate([known[rows["speaker"]] for known, rows in zip(numbers, read, strict=True)])
        occurred_at = np.concatenate([self.occurred_at, new["at"]])
        asks = np.concatenate([self.traits[ASKS], new["asks"]])
        line = np.ascontiguousarray(new["line"])
        order = np.argsort(line, kind="stable")
        before, last = self._rows_before(line, order)
        begins = (before < 0) | (np.abs(new["at"] - occurred_at[before]) > SESSION_GAP_S)
        before[begins] = -1
        spot = self._spots(order, before, begins)
        sizes = np.bincount(spot // SESSION_SPAN, minlength=len(self.sizes))
        sizes[: len(self.sizes)] += self.sizes
        answers = np.where(begins, 0, asks[before])
        traits = traits_of(asks=new["asks"], answers=answers, speaker=speaker, role=new["role"])
        return LogColumns(
            upto=upto,
            names=tuple(names),
            seq=np.concatenate([self.seq, new["seq"]]),
            conversation=np.concatenate([self.conversation, line]),
            spot=np.concatenate([self.spot, spot]),
            near=_link_neighbours(self.near, before),
            occurred_at=occurred_at,
            traits=np.concatenate([self.traits, traits], axis=1),
            sizes=sizes.astype(np.int32),
            latest_at=max(self.latest_at, float(new["at"].max())),
            mean_chars=(self.mean_chars * self.rows + float(new["chars"].sum())) / len(occurred_at),
            _last={**self._last, **last},
        )

    def _rows_before(self, lines: NDArray[np.int32], order: Indexes) -> tuple[Indexes, dict[int, int]]:
        """Return the index of the row before each new one in its conversation, -1 for none; and the new `_last`.

        Args:
            lines: the number of each new row's conversation.
            order: the indexes of the new rows, sorted by conversation.
        """
        first = np.flatnonzero(np.diff(lines[order], prepend=-1))
        each = lines[order[first]].tolist()
        before = np.empty(len(lines), np.int64)
        before[order[1:]] = order[:-1] + self.rows
        before[order[first]] = [self._last.get(line, -1) for line in each]
        newest = order[np.append(first[1:], len(order)) - 1] + self.rows
        return before, dict(zip(each, newest.tolist(), strict=True))

    def _spots(self, order: Indexes, before: Indexes, begins: NDArray[np.bool_]) -> Indexes:
        """Return the `spot` of each new row. Those that begin a session get the next numbers, in their order."""
        spot = np.zeros(len(order), np.int64)
        spot[begins] = SESSION_SPAN * (len(self.sizes) + np.arange(np.count_nonzero(begins)))
        goes_on = ~begins & (before < self.rows)  # in the session of a row that was there before
        spot[goes_on] = self.spot[before[goes_on]] + 1
        # Each other row stands behind the last of these in its conversation.
        places = np.arange(len(order))
        head = np.maximum.accumulate(np.where((begins | goes_on)[order], places, 0))
        spot[order] = spot[order][head] + places - head
        return spot

    def indexes(self, seqs: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indexes of rows by their numbers, -1 for a number that the history doesn't have."""
        wanted = np.asarray(seqs, np.int64)
        if not (self.rows and len(wanted)):
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(self.seq.searchsorted(wanted), self.rows - 1)
        return np.where(self.seq[at] == wanted, at, -1)

    def columns(self, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float32]]:
        """Return (spot (m), occurred_at (m), traits (4, m)) of the rows at these indexes. Index -1 stands for a tool
        result, which has no time and a negative session number of its own."""
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
        """Return (n) which rows the filter lets through; None means all. `out_of_view` maps a conversation to a number:
        its rows up to that number are left out."""
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
        conditions += [(self.conversation != line) | (self.seq > upto) for line, upto in out_of_view.items()]
        return reduce(and_, conditions) if conditions else None


class Histories:
    """A cache of the histories of the agents that were searched last. Several threads may use it."""

    def __init__(self, *, max_rows: int = CACHED_ROWS) -> None:
        self._max_rows, self._rows = max_rows, 0
        self._entries: OrderedDict[AgentId, LogColumns] = OrderedDict()
        self._lock = threading.Lock()
        self._empty = LogColumns()

    def load(self, tx: Tx, agent_id: AgentId, upto: int | None = None) -> LogColumns:
        """Load the history up to message `upto`, None: all that this transaction sees. It may hold later rows too."""
        upto = tx.messages.next_seq(agent_id) if upto is None else upto
        with self._lock:
            history = self._entries.get(agent_id) or self._empty
        if history.upto < upto:
            history = history.extend(tx.turns.list(agent_id, from_seq=history.upto, before_seq=upto), upto=upto)
        with self._lock:
            cached = self._entries.get(agent_id, self._empty)
            if cached.upto < history.upto or agent_id not in self._entries:
                self._entries[agent_id] = history
                self._rows += history.rows - cached.rows
            self._entries.move_to_end(agent_id)
            while self._rows > self._max_rows and len(self._entries) > 1:
                self._rows -= self._entries.popitem(last=False)[1].rows
        return history


def _link_neighbours(near: NDArray[np.int32], one: NDArray[np.int64]) -> NDArray[np.int32]:
    """Extend `LogColumns.near` by new rows. `one` holds the index of the row before each of them; -1 for none."""
    first = len(near)
    near = np.concatenate([near, np.full((len(one), 4), -1, np.int32)])
    rows = np.arange(first, len(near), dtype=np.int32)[one >= 0]
    one = one[one >= 0]
    near[rows, 1], near[one, 2] = one, rows
    two = near[one, 1]
    rows, two = rows[two >= 0], two[two >= 0]
    near[rows, 0], near[two, 3] = two, rows
    return near
