"""Model calls that nobody waits for: of a server that answers one at a time, they are made while people are silent.

Such a call takes the place of a conversation in the server's cache, and a person who writes meanwhile would wait for
its end. So it begins after some seconds of silence, ends when a person writes, and is made again later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

from perdure.core.conversations import ConversationKey
from perdure.core.errors import NotFound, PerdureError, StoreClosed
from perdure.core.tasks import end_tasks, wait_for
from perdure.engine.log.interrupts import Interrupt, interruptible

log = logging.getLogger(__name__)

Key = TypeVar("Key")

QUIET_S, APART_S, IDLE_S = 10.0, 3_600.0, 600.0
LOOK_S = 1.0


class CallPostponed(Exception):
    """The call was given up, because a person writes or the process ends; it is to be made again later.

    Args:
        ended: this process makes no such call any more.
    """

    def __init__(self, *, ended: bool = False) -> None:
        super().__init__("put back")
        self.ended = ended


class Foreground:
    """Who is answered in a process, and which calls are made in its silence.

    Attributes:
        is_busy: one for each engine of the process: whether it answers a request.
        yielding_runs: conversations whose runs let everybody go first; they count as silent.
        turns: of each model, who of its calls is next.
        people: how many are answered by other means than a run.
    """

    def __init__(self) -> None:
        self.is_busy: list[Callable[[], bool]] = []
        self.yielding_runs: Counter[ConversationKey] = Counter()
        self.turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.people = 0
        self._seen_at: float | None = None  # when a request was answered last, by the loop's clock
        self._call: Interrupt | None = None  # of the call that goes on
        self._cold: set[str] = set()  # models of which a call took the cache since anybody was answered
        self._taken_at: dict[str, float] = {}  # model -> when a call took the place of a conversation in its cache

    @contextlib.contextmanager
    def person(self) -> Iterator[None]:
        """Answer a person within the block, by other means than a run."""
        self.people += 1
        self.note_begin()
        try:
            yield
        finally:
            self.people -= 1
            self.note_end()

    @contextlib.contextmanager
    def aside(self, conversation_key: ConversationKey) -> Iterator[None]:
        """Let everybody go before a conversation within the block: it counts as silent."""
        self.yielding_runs[conversation_key] += 1
        try:
            yield
        finally:
            self.yielding_runs[conversation_key] -= 1
            self.yielding_runs += Counter()  # without those that are 0

    def note_begin(self) -> None:
        """Note that a person is about to be answered: the call that goes on is put back."""
        self._seen_at = asyncio.get_running_loop().time()
        self._cold.clear()
        if self._call is not None:
            self._call.fire(CallPostponed())

    def note_end(self) -> None:
        """Note that a person was answered."""
        self._seen_at = asyncio.get_running_loop().time()

    def seconds_left(self, model: str, *, quiet_s: float, apart_s: float, idle_s: float) -> float:
        """Return in how many seconds to look again whether a call of this model may begin; 0: it may.

        Where a conversation is in the model's cache again, that is `apart_s` after the last time that a call took its
        place, or after `idle_s` of silence.
        """
        now = asyncio.get_running_loop().time()
        if self._seen_at is None:
            self._seen_at = now
        if self._call is not None or self.people or any(is_busy() for is_busy in self.is_busy):
            return min(LOOK_S, quiet_s)
        silent_s = now - self._seen_at
        left_s, taken_at = quiet_s - silent_s, self._taken_at.get(model)
        if taken_at is not None and model not in self._cold:
            left_s = max(left_s, min(taken_at + apart_s - now, idle_s - silent_s))
        return max(0.0, left_s)

    @contextlib.asynccontextmanager
    async def call(self, model: str) -> AsyncIterator[None]:
        """Make one call within the block. Raises inside it: CallPostponed."""
        interrupt = self._call = Interrupt()
        if model not in self._cold:
            self._taken_at[model] = asyncio.get_running_loop().time()
            self._cold.add(model)
        with interruptible(interrupt):
            try:
                yield
            finally:
                self._call = None


class Background:
    """The background calls of one engine.

    Args:
        mode: `idle`: all calls wait for silence; `always`: none waits; `never`: none is made; empty: those of local
            models wait.
        foreground: shared with the other engines of the process.
        quiet_s: how long nobody has to be answered until a call begins.
        apart_s, idle_s: as in `Foreground.seconds_left`.
    """

    def __init__(
        self,
        mode: str = "",
        foreground: Foreground | None = None,
        *,
        quiet_s: float = QUIET_S,
        apart_s: float = APART_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self.mode, self.foreground = mode, foreground or Foreground()
        self.quiet_s, self.apart_s, self.idle_s = quiet_s, apart_s, idle_s
        self._ended = asyncio.Event()
        self._lines: Callable[[], Iterable[ConversationKey]] = tuple

    def watch(self, lines: Callable[[], Iterable[ConversationKey]]) -> None:
        """Hear from this which conversations are answered here."""
        self._lines = lines
        self.foreground.is_busy.append(self.is_busy)

    def is_busy(self) -> bool:
        """Return whether a person is answered here, besides runs that let everybody go first."""
        return self.foreground.people > 0 or any(
            not self.foreground.yielding_runs[conversation_key] for conversation_key in self._lines()
        )

    def yields(self, *, local: bool) -> bool:
        """Return whether calls of a model, `local` or not, let everybody go first."""
        return self.mode == "idle" or (local and self.mode != "always")

    @contextlib.asynccontextmanager
    async def slot(self, model: str, *, local: bool) -> AsyncIterator[None]:
        """Wait until a model call may begin, and make it in the block. Raises, even inside the block: CallPostponed."""
        if not self.yields(local=local):
            yield
            return
        async with self.foreground.turns[model]:
            await self.wait(model, local=local)
            async with self.foreground.call(model):
                yield

    async def wait(self, model: str, *, local: bool) -> None:
        """Wait until a call of a model may begin. Raises: CallPostponed: this process makes none any more."""
        if not self.yields(local=local):
            return
        while not self._ended.is_set():
            seconds = self.foreground.seconds_left(
                model, quiet_s=self.quiet_s, apart_s=self.apart_s, idle_s=self.idle_s
            )
            if not seconds:
                return
            await wait_for(self._ended, seconds)
        raise CallPostponed(ended=True)

    def end(self) -> None:
        """Let no further call begin: the process ends, or this engine."""
        self._ended.set()
        if self.is_busy in self.foreground.is_busy:
            self.foreground.is_busy.remove(self.is_busy)


CLOSING_S = 5.0
"""How long a closing process goes on with what it has begun."""


class KeyedWorker(Generic[Key]):
    """The work of one process: at most one task at a time for each conversation, group or the like.

    Args:
        what: what is done, as the log names it.
        work: does it. What fails is logged, and met again when the work is begun again; what was deleted is left.
    """

    def __init__(self, what: str, work: Callable[[Key], Awaitable[None]]) -> None:
        self._what, self._do = what, work
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._again: set[Key] = set()  # with new work since the task looked last

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that are going on."""
        return list(self._tasks.values())

    @property
    def keys_at_work(self) -> Collection[Key]:
        """What is worked on."""
        return self._tasks.keys()

    def start(self, key: Key) -> None:
        """Work on this in the background; once more, if that is going on already."""
        if key in self._tasks:
            self._again.add(key)
            return
        task = self._tasks[key] = asyncio.create_task(self._work(key))
        task.add_done_callback(lambda _: self._end(key, task))

    async def close(self) -> None:
        """Let tasks finish for a few seconds, then stop them."""
        while self._tasks:  # one that ends may begin another
            await finish_tasks(self.tasks)

    def _end(self, key: Key, task: asyncio.Task[None]) -> None:
        """Forget a finished task; begin another one if new work came after its last look."""
        del self._tasks[key]
        if key in self._again and not task.cancelled():
            self.start(key)

    async def _work(self, key: Key) -> None:
        """Do the work of this conversation or group, again if it was requested once more meanwhile."""
        while True:
            self._again.discard(key)
            try:
                await self._do(key)
            except CallPostponed as back:
                if back.ended:
                    self._again.discard(key)
                    return
                continue
            except (NotFound, StoreClosed):  # deleted meanwhile, or the process ends
                pass
            except PerdureError as error:
                log.warning("%s of %s: %s", self._what, _name_of(key), error)
            except Exception:
                log.exception("%s of %s stopped at a defect", self._what, _name_of(key))
            if key not in self._again:
                return


def _name_of(key: object) -> str:
    """Return what is worked on, as the log names it."""
    return f"conversation {key[1]} of {key[0]}" if isinstance(key, tuple) else str(key)


async def finish_tasks(tasks: Collection[asyncio.Task[None]]) -> None:
    """Let tasks finish for a few seconds, then stop them."""
    if tasks:
        _, unfinished = await asyncio.wait(tasks, timeout=CLOSING_S)
        await end_tasks(*unfinished)


BUSY_SHARE = 0.02
"""The share of the time that background work takes while requests do not pause."""

Piece = Callable[[], AbstractAsyncContextManager[None]]
"""Opens a piece of background work, once it may begin."""

AT_ONCE: Piece = contextlib.nullcontext
"""A piece of work that a person waits for."""


class Pauses:
    """When background work of one process may go on: where no request has been answered for a moment; and, once they
    have not paused for long, for a small share of the time.

    Args:
        is_busy: whether requests are being answered.
        quiet_s: how long none has to be.
        wait_s: how long requests may go on without a pause until work begins beside them.
    """

    def __init__(self, is_busy: Callable[[], bool], *, quiet_s: float, wait_s: float) -> None:
        self._is_busy, self._quiet_s, self.wait_s = is_busy, quiet_s, wait_s
        self._one = asyncio.Lock()  # held by the piece of work that goes on
        self._ended = asyncio.Event()
        # When a request was answered last, when requests began without a pause, when work may go on beside them.
        self._seen_at = self._busy_at = self._next_at = float("-inf")

    def note_begin(self) -> None:
        """Note that a request is about to be answered."""
        now = asyncio.get_running_loop().time()
        if self._is_pause(now):
            self._busy_at = now
        self._seen_at = now

    def note_end(self) -> None:
        """Note that a request was answered."""
        self._seen_at = asyncio.get_running_loop().time()

    def end(self) -> None:
        """Let work go on at once from here on: the process ends."""
        self._ended.set()

    @contextlib.asynccontextmanager
    async def piece(self) -> AsyncIterator[None]:
        """Wait until a piece of work may begin; others wait until it is done. It should take a few milliseconds."""
        loop = asyncio.get_running_loop()
        async with self._one:
            while not self._ended.is_set() and (seconds := self._seconds_left(loop.time())) > 0:
                await wait_for(self._ended, seconds)
            began_at, is_pause = loop.time(), self._is_pause(loop.time())
            try:
                yield
            finally:
                if not is_pause:
                    self._next_at = loop.time() + (loop.time() - began_at) * (1 / BUSY_SHARE - 1)

    def _is_pause(self, time: float) -> bool:
        """Return whether no request has been answered for a moment."""
        return time - self._seen_at >= self._quiet_s and not self._is_busy()

    def _seconds_left(self, time: float) -> float:
        """Return in how many seconds to look again; 0: work may go on."""
        if self._is_pause(time):
            return 0.0
        pause_s = self._quiet_s if self._is_busy() else self._seen_at + self._quiet_s - time
        return max(0.0, min(pause_s, max(self._busy_at + self.wait_s, self._next_at) - time))
