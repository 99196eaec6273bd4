"""The log of `perdure serve`: one line for each event on stderr, as text or as JSON, with the trace id of its request.

It tells what went wrong and where, never what was said: of an error that other code raises, its kind and the lines of
code that led to it are shown, its text only at the level `debug`, because it may quote a message.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TextIO

from perdure.app import masked_text, secrets_in
from perdure.core.errors import PerdureError
from perdure.server.trace import current_trace

__all__ = ["logging_to"]

ALIKE_MAX, ALIKE_S = 10, 60.0
"""So many equal lines are written within so many seconds, then they are counted: whoever sends broken requests must not
fill the disk. Errors with a traceback are always written."""

CHAIN_MAX, FRAMES_MAX = 5, 40

TELLING = (PerdureError, sqlite3.Error, OSError, ImportError, AttributeError, NameError, TypeError, MemoryError)
"""Errors whose texts are of the code, not of what was said."""

_LEFT_OUT = "(its text is left out: PERDURE_LOG_LEVEL=debug shows it)"


@contextlib.contextmanager
def logging_to(stream: TextIO, *, form: str, level: str, environment: Mapping[str, str]) -> Iterator[None]:
    """Write the log to `stream` while this holds.

    Args:
        form, level: as of `ServerConfig`. Other packages' lines are written from `warning` on.
        environment: the values of its keys, passwords and secrets are written as `***`.
    """
    if form == "off":
        yield
        return
    number = getattr(logging, level.upper())
    lines = _Json if form == "json" else _Console
    handler = logging.StreamHandler(stream)
    handler.setFormatter(lines(secrets_in(environment), texts=number <= logging.DEBUG))
    handler.addFilter(_Wanted(number))
    handler.addFilter(_Alike())
    root, ours = logging.getLogger(), logging.getLogger("perdure")
    before = (ours.level, logging.raiseExceptions, threading.excepthook)
    root.addHandler(handler)
    ours.setLevel(number)
    logging.raiseExceptions = False  # nobody reads stderr, or its disk is full: the server goes on
    threading.excepthook = _thread_stopped
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(before[0])
        _, logging.raiseExceptions, threading.excepthook = before


class _Wanted:
    """Leaves out what is below the level; of other packages what is below `warning` too, as it may quote requests, and
    of `mcp` everything, which quotes what servers send."""

    def __init__(self, level: int) -> None:
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        name = record.name.partition(".")[0]
        return name != "mcp" and record.levelno >= (
            self._level if name == "perdure" else max(self._level, logging.WARNING)
        )


class _Alike:
    """Counts equal lines instead of writing all of them."""

    def __init__(self) -> None:
        self._since, self._counts = 0.0, dict[tuple[str, str], int]()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info:
            return True
        now, key = time.monotonic(), (record.name, record.getMessage())
        if now - self._since > ALIKE_S or len(self._counts) > 1_000:
            self._since, before, self._counts = now, self._counts, {}
            more = before.get(key, 0) - ALIKE_MAX
            if more > 0:
                record.msg, record.args = f"{key[1]} ({more:,} more of these lines were left out)", ()
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] == ALIKE_MAX:
            record.msg, record.args = f"{key[1]} (more of these lines are left out for up to {ALIKE_S:.0f} s)", ()
        return self._counts[key] <= ALIKE_MAX


class _Lines(logging.Formatter):
    """What both forms have in common."""

    def __init__(self, secrets: Sequence[str], *, texts: bool) -> None:
        super().__init__()
        self._secrets, self._texts = secrets, texts

    def _message(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.name == "asyncio":  # what follows repeats the error, with its text
            message = message.partition("\n")[0]
        return _printable(masked_text(message, self._secrets))

    def _trace(self) -> str:
        trace = current_trace.get()
        return "" if trace is None else trace.id

    def _error(self, record: logging.LogRecord) -> list[str]:
        """The lines of the error's traceback, the first cause first."""
        error = record.exc_info[1] if record.exc_info else None
        chain: list[BaseException] = []
        while error is not None and len(chain) < CHAIN_MAX:
            chain.append(error)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return [_printable(masked_text(line, self._secrets)) for one in reversed(chain) for line in self._lines(one)]

    def _lines(self, error: BaseException) -> Iterator[str]:
        for frame in traceback.extract_tb(error.__traceback__, limit=-FRAMES_MAX):
            yield f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
            if frame.line:
                yield f"    {frame.line}"
        kind = type(error).__qualname__
        if not str(error):
            yield kind
        else:
            shown = self._texts or isinstance(error, TELLING)
            yield f"{kind}: {error if shown else _LEFT_OUT}"
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions[:CHAIN_MAX]:
                yield from self._lines(one)


class _Console(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        trace = self._trace()
        line = f"{_at(record)} {record.levelname:<7} {record.name}: {self._message(record)}"
        return "\n".join((line + (f" trace_id={trace}" if trace else ""), *self._error(record)))


class _Json(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        shape: dict[str, object] = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._message(record),
        }
        if trace := self._trace():
            shape["trace_id"] = trace
        if record.exc_info and (error := record.exc_info[1]) is not None:
            shape |= {"error": type(error).__qualname__, "traceback": self._error(record)}
        return json.dumps(shape)


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _printable(text: str) -> str:
    """The text on one line and without control characters: paths and names are chosen by whoever sends them."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _thread_stopped(stopped: threading.ExceptHookArgs) -> None:
    error = stopped.exc_value
    if error is None or isinstance(error, SystemExit):
        return
    name = "of this process" if stopped.thread is None else stopped.thread.name
    logging.getLogger("perdure").error("the thread %s stopped at a defect", name, exc_info=error)
