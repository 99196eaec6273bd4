"""An event loop whose time passes only while everything waits: an hour of timeouts takes milliseconds, in the same
order."""

from __future__ import annotations

import asyncio
import gc
import selectors
from collections.abc import Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from perdure.testing.clock import START
from tests.simulator.faults import Crash

T = TypeVar("T")


class UnhandledErrors(Exception):
    """Errors that nobody has taken note of; elsewhere asyncio would log them."""


class _Selector(selectors.BaseSelector):
    """Waits for nothing: it moves the loop's time to the next timer. There are no sockets and threads to wait for."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self._inner = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("deadlock: every task waits for something that nothing will bring")
        self.elapsed += max(0.0, timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, from 0 seconds. `unhandled` holds the errors that nobody has taken note of."""

    def __init__(self) -> None:
        self.unhandled: list[str] = []
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), Crash):  # of a dead process: nobody is left to take note of it
            return
        work = context.get("task") or context.get("future")
        self.unhandled.append(f"{context['message']}: {context.get('exception')!r} of {work!r}")

    def time(self) -> float:
        return self._virtual.elapsed


class VirtualClock:
    """`Clock` of a virtual loop."""

    def now(self) -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """What `main` returns, run in a virtual loop of its own. Raises: UnhandledErrors."""
    loop = VirtualLoop()
    # So that only objects of `main` are looked at below. They stay frozen: thawed, the million objects of a test run
    # would be gone through again and again.
    gc.collect()
    gc.freeze()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(main)
    gc.collect()  # tells of tasks whose errors nobody has taken note of
    if loop.unhandled:
        raise UnhandledErrors("; ".join(loop.unhandled))
    return result
