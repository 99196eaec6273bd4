"""An event loop in a thread of its own, and plain calls into it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, TypeVar

from perdure.core.errors import StoreClosed, StoreError

T = TypeVar("T")

CANCEL_S = 1.0
"""How long tasks may take to end after the loop was stopped."""


class Portal:
    """Runs coroutines in its own thread until it is closed."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._futures: set[Future[Any]] = set()  # of callers that wait
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run_loop, name="perdure", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return not self._loop.is_closed() and not self._is_stopped

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return or raise what the coroutine does. It is cancelled when the caller is interrupted.

        Raises: StoreClosed: after `close`; StoreError: a tool or model stopped the loop; RuntimeError: the loop itself
            makes the call, such as in a method of an interface.
        """
        if not self.is_open:
            coroutine.close()
            raise StoreClosed
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a plain call in the store's own event loop would wait for itself: do it afterwards")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._futures.add(future)
        try:
            if self._is_stopped:  # since the check above
                raise _stop_error()
            return future.result()
        except CancelledError:
            if self._is_stopped:
                raise _stop_error() from None
            raise
        except BaseException:
            if self.is_open:
                future.cancel()
            raise
        finally:
            self._futures.discard(future)
            del future  # its error's traceback holds this frame

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator, and close it at the end, also when the caller stops early."""
        try:
            while True:
                try:
                    yield self.run(_next(source))
                except StopAsyncIteration:
                    return
        finally:
            aclose = getattr(source, "aclose", None)
            if aclose is not None and self.is_open:
                self.run(aclose())

    def close(self) -> None:
        """Stop the loop and its thread. Closing twice is no error."""
        if self._loop.is_closed():
            return
        if self._is_stopped:
            self._thread.join()
            self._loop.close()
            return
        # All in the thread of the loop: the caller's thread may have a running loop of its own, as in a notebook.
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run_loop(self) -> None:
        """Run the loop until it is stopped; then fail the callers that still wait."""
        try:
            while True:
                # A tool's task may end with SystemExit, which leaves the loop; other tasks still run in it.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    self._loop.run_forever()
                    return
        finally:
            self._is_stopped = True
            self._end_tasks()
            for future in tuple(self._futures):
                with contextlib.suppress(InvalidStateError):  # it is done
                    future.set_exception(_stop_error())

    def _end_tasks(self) -> None:
        """Cancel the tasks of the stopped loop. Python warns of each pending task when it is destroyed."""
        if tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            with contextlib.suppress(SystemExit, KeyboardInterrupt, RuntimeError):  # one may stop the loop again
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_S))


def _new_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop where it is installed: it saves a tenth of a message's CPU time."""
    try:
        import uvloop
    except ImportError:  # there is none for some systems
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _stop_error() -> StoreError:
    """The error for calls to a loop that was stopped from inside."""
    return StoreError("the event loop of this store was stopped by a tool or a model: open the store again")


async def _next(source: AsyncIterator[T]) -> T:
    """The next item: only a coroutine, which `anext` may not return, can be sent to another thread's loop."""
    return await anext(source)
