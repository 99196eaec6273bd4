"""One event loop in one thread, and plain calls into it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

from perdure.core.errors import StoreClosed

__all__ = ["Portal"]

T = TypeVar("T")


class Portal:
    """Runs coroutines in its own thread until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="perdure", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        return not self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises. It is cancelled when the caller is interrupted while waiting.

        Raises: StoreClosed: after `close`.
        """
        if not self.is_open:
            coroutine.close()
            raise StoreClosed
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

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
            if close is not None and self._loop.is_running():
                self.run(close())

    def close(self) -> None:
        """Stop the loop and its thread. Closing twice is no error."""
        if self._loop.is_closed():
            return
        # In its own thread to the end: the caller's may have a running loop of its own, as in a notebook.
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)
