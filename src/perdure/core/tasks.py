"""Tasks of asyncio: wait for an event for some time, end tasks, take note of their errors; long work in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from perdure.core.errors import StoreClosed

T = TypeVar("T")

Progress = Callable[[str, int, int], None]
"""Is called with (step in words, how much is done, how much there is). An error that it raises ends the work."""


async def wait_for(event: asyncio.Event, most_s: float | None) -> None:
    """Wait for an event, at most `most_s` seconds (None: without end). Returns in both cases.

    Not `asyncio.wait_for`: before Python 3.12 it swallows a cancellation that comes together with the event.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            await event.wait()


async def end_tasks(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks and wait until they have ended; their errors are dropped. None is skipped: a task never begun."""
    begun = [task for task in tasks if task is not None]
    for task in begun:
        task.cancel()
    await asyncio.gather(*begun, return_exceptions=True)


@contextlib.asynccontextmanager
async def undone_by(undo: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Call `undo` and wait for it, if what is done meanwhile fails or is cancelled."""
    try:
        yield
    except BaseException:
        await to_the_end(undo())
        raise


def retrieve_error(task: asyncio.Future[Any]) -> None:
    """Mark a task's error as retrieved, or asyncio would log that it never was; whoever waits for it gets it too."""
    if not task.cancelled():
        task.exception()


async def to_the_end(work: Awaitable[T]) -> T:
    """Wait for `work` to end, however often the caller is cancelled meanwhile, and return its result.

    The store commits a transaction whether or not anybody still waits for it. A caller that went on before that would
    read a log in which the transaction is missing. The error of work whose caller was cancelled is dropped.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(retrieve_error)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            # A scope of anyio cancels its task in each round of the loop, unless it is shielded.
            anyio = cancelled and sys.modules.get("anyio")
            with anyio.CancelScope(shield=True) if anyio else contextlib.nullcontext():
                await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


async def run_in_thread(work: Callable[[Progress], T], progress: Progress) -> T:
    """Run `work` in a thread and return its result; it reports to `progress`, in that thread.

    If the caller is cancelled, the work ends at its next report, for which this waits.
    """
    stopped = threading.Event()

    def report(step: str, done: int, total: int) -> None:
        """Pass progress on; raise StoreClosed once the caller is cancelled, to end the work."""
        if stopped.is_set():
            raise StoreClosed
        progress(step, done, total)

    working = asyncio.get_running_loop().run_in_executor(None, work, report)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        stopped.set()
        await to_the_end(asyncio.wait({working}))
        raise
