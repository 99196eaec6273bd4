"""One event loop in one thread, and plain calls into it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from typing import Any, Generic, TypeVar, cast

from perdure.core.callers import let_know
from perdure.core.errors import StoreClosed, StoreError

__all__ = ["Portal"]

T = TypeVar("T")

END_S = 1.0
"""How long the tasks that are left when the loop stops have for what they do at their end."""


class Portal:
    """Runs coroutines in its own thread until it is closed."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._waiting: set[_Call[Any]] = set()  # what callers wait for
        self._ended = False
        self._serves_several: Callable[[], bool] = bool  # nobody said so
        self._thread = threading.Thread(target=self._run_loop, name="perdure", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        return not self._loop.is_closed() and not self._ended

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises. It is cancelled when the caller is interrupted while waiting.

        Raises: StoreClosed: after `close`; StoreError: a tool or model stopped the loop that all others run in.
        """
        if not self.is_open:
            coroutine.close()
            raise StoreClosed
        call = _Call(coroutine, self._loop, self._is_alone)
        self._waiting.add(call)
        try:
            self._loop.call_soon_threadsafe(call.start)
            if self._ended:  # between the look above and now
                raise _stopped()
            return call.wait()
        except BaseException:
            call.cancel()
            raise
        finally:
            self._waiting.discard(call)

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous iterator, one wait each; it is closed when the loop over it is left."""
        try:
            while True:
                try:
                    yield self.run(_next(source))
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(source, "aclose", None)
            if close is not None and self.is_open:
                self.run(close())

    def close(self) -> None:
        """Stop the loop and its thread. Closing twice is no error."""
        if self._loop.is_closed():
            return
        if self._ended:
            self._thread.join()
            self._loop.close()
            return
        # In its own thread to the end: the caller's may have a running loop of its own, as in a notebook.
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def ask_too(self, serves_several: Callable[[], bool]) -> None:
        """Ask this too, which is called in the loop's thread, before a task is told that one caller waits alone: much
        may go on that nobody waits for now."""
        self._serves_several = serves_several

    def _is_alone(self) -> bool:
        # A tool's thread has the context of the call, and may run a loop of its own.
        here = threading.get_ident() == self._thread.ident
        return here and len(self._waiting) <= 1 and not self._serves_several()

    def _run_loop(self) -> None:
        try:
            while True:
                # The loop hands on what a task of a tool's own ends with, such as SystemExit; others still run in it.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    self._loop.run_forever()
                    return
        finally:
            self._ended = True
            for call in tuple(self._waiting):
                call.fail(_stopped())
            self._end_tasks()

    def _end_tasks(self) -> None:
        """End what nobody will ever go on with; Python would complain of each such task when it is destroyed."""
        if tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            with contextlib.suppress(SystemExit, KeyboardInterrupt, RuntimeError):  # one may stop the loop again
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=END_S))


class _Call(Generic[T]):
    """A coroutine in the loop, and the one thread that waits for it.

    It does what `asyncio.run_coroutine_threadsafe` does, whose future any number of threads may share, for which it
    takes several times as long.
    """

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, alone: Callable[[], bool]
    ) -> None:
        self._coroutine, self._loop, self._alone = coroutine, loop, alone
        self._task: asyncio.Task[T] | None = None
        self._outcome: tuple[T | None, BaseException | None] | None = None
        self._running = threading.Lock()
        self._running.acquire()

    def start(self) -> None:
        """In the loop's thread."""
        let_know(self._alone)
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._end)

    def wait(self) -> T:
        self._running.acquire()
        assert self._outcome is not None
        result, error = self._outcome
        if error is None:
            return cast(T, result)
        try:
            raise error
        finally:
            del error, self  # its traceback holds this frame

    def cancel(self) -> None:
        if self._outcome is None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self._loop.call_soon_threadsafe(self._cancel)

    def fail(self, error: BaseException) -> None:
        """In the loop's thread, when the loop has ended."""
        self._settle(None, error)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if task.cancelled():
            self._settle(None, CancelledError())
        elif (error := task.exception()) is not None:
            self._settle(None, error)
        else:
            self._settle(task.result(), None)

    def _settle(self, result: T | None, error: BaseException | None) -> None:
        if self._outcome is None:
            self._outcome = (result, error)
            self._running.release()


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where there is one: it costs a message a tenth less."""
    try:
        import uvloop
    except ImportError:  # it is not made for every system
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _stopped() -> StoreError:
    return StoreError("the event loop of this store was stopped by a tool or a model: open the store again")


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)
