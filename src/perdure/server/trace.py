"""The trace id of a request: what its error names, and every line that the log has of it.

It is made when it is first needed. Tasks that a request starts, such as the one that drives its run, have it too.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from contextvars import ContextVar

__all__ = ["TRACE_HEADER", "Trace", "current_trace", "new_trace", "trace_id"]

TRACE_HEADER = "x-trace-id"


class Trace:
    """One request."""

    __slots__ = ("_id",)

    def __init__(self) -> None:
        self._id = ""

    @property
    def id(self) -> str:
        """32 hexadecimal digits, as traces elsewhere have them."""
        if not self._id:
            self._id = secrets.token_hex(16)
        return self._id


current_trace: ContextVar[Trace | None] = ContextVar("current_trace", default=None)


@contextlib.contextmanager
def new_trace() -> Iterator[None]:
    """One request is answered while this holds."""
    token = current_trace.set(Trace())
    try:
        yield
    finally:
        current_trace.reset(token)


def trace_id() -> str:
    """The id of the request that is being answered, or a new one where there is none."""
    trace = current_trace.get()
    return Trace().id if trace is None else trace.id
