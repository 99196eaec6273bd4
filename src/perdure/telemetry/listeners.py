"""Several listeners as one."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

from perdure.core.telemetry.port import NOTHING, Fact, Telemetry, Work


class Listeners:
    """`Telemetry` that passes everything on to those who listen, in the order in which they came."""

    def __init__(self, *listeners: Telemetry) -> None:
        self._listeners = listeners

    def add(self, listener: Telemetry) -> None:
        """Have one more listen, from now on."""
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Telemetry) -> None:
        """Have one listen no longer; work that is under way is reported to it."""
        self._listeners = tuple(one for one in self._listeners if one is not listener)

    def during(self, work: Work) -> AbstractContextManager[object]:
        listeners = self._listeners
        if not listeners:
            return NOTHING
        if len(listeners) == 1:
            return listeners[0].during(work)
        contexts = contextlib.ExitStack()
        for listener in listeners:
            contexts.enter_context(listener.during(work))
        return contexts

    def count(self, fact: Fact) -> None:
        for listener in self._listeners:
            listener.count(fact)
