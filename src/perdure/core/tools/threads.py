"""Functions of other people in threads of their own: they may never end."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
GRACE_S = 5.0
"""How long the end of the process waits for functions that still run."""
_running: set[threading.Thread] = set()


async def run_in_own_thread(function: Callable[..., T], *arguments: object) -> T:
    """Run a function in a thread of its own, and return its result. Raises: what the function raises.

    It may never end. In the threads that the process shares, a few such functions would hold up everything, and the
    process could not end before them. Here it waits `GRACE_S` for them.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # the function runs to its end even if its caller is cancelled
    context = contextvars.copy_context()

    def work() -> None:
        """Run the function in this thread, and hand its result or error to `future`."""
        try:
            result = context.run(function, *arguments)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            _running.discard(thread)

    thread = threading.Thread(target=work, name="perdure-function", daemon=True)
    _running.add(thread)
    thread.start()
    return await asyncio.wrap_future(future)


@atexit.register
def wait_for_functions() -> None:
    """Wait until all functions of `run_in_own_thread` have ended, at most `GRACE_S` seconds."""
    deadline = time.monotonic() + GRACE_S
    for thread in tuple(_running):
        thread.join(max(0.0, deadline - time.monotonic()))
