"""One event loop in one thread, and plain calls into it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, TypeVar

from perdure.core.errors import StoreClosed, StoreError

__all__ = ["Portal"]

T = TypeVar("T")

END_S = 1.0
"""How long the tasks that are left when the loop stops have for what they do at their end."""


class Portal:
    """Runs coroutines in its own thread until it is closed."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._waiting: set[Future[Any]] = set()  # what callers wait for
        self._ended = False
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
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._waiting.add(future)
        try:
            if self._ended:  # between the look above and now
                raise _stopped()
            return future.result()
        except CancelledError:
            if self._ended:
                raise _stopped() from None
            raise
        except BaseException:
            if self.is_open:
                future.cancel()
            raise
        finally:
            self._waiting.discard(future)
            del future  # its error's traceback holds this frame

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

    def _run_loop(self) -> None:
        try:
            while True:
                # The loop hands on what a task of a tool's own ends with, such as SystemExit; others still run in it.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    self._loop.run_forever()
                    return
        finally:
            self._ended = True
            self._end_tasks()
            for future in tuple(self._waiting):
                with contextlib.suppress(InvalidStateError):  # it has ended
                    future.set_exception(_stopped())

    def _end_tasks(self) -> None:
        """End what nobody will ever go on with; Python would complain of each such task when it is destroyed."""
        if tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            with contextlib.suppress(SystemExit, KeyboardInterrupt, RuntimeError):  # one may stop the loop again
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=END_S))


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
