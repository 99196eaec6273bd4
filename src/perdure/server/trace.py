"""The trace id of a request, which its error and its log lines carry.

It is generated when first needed. Tasks that a request starts, such as the one that drives its run, share it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from contextvars import ContextVar

TRACE_HEADER = "x-trace-id"


class Trace:
    """The trace of one request."""

    __slots__ = ("_id",)

    def __init__(self) -> None:
        self._id = ""

    @property
    def id(self) -> str:
        """32 hexadecimal digits, the format of W3C trace ids."""
        if not self._id:
            self._id = secrets.token_hex(16)
        return self._id


current_trace: ContextVar[Trace | None] = ContextVar("current_trace", default=None)


@contextlib.contextmanager
def new_trace() -> Iterator[None]:
    """Give the request that is answered inside the context a trace of its own."""
    token = current_trace.set(Trace())
    try:
        yield
    finally:
        current_trace.reset(token)


def trace_id() -> str:
    """The id of the current request, or a new one outside any request."""
    trace = current_trace.get()
    return Trace().id if trace is None else trace.id
