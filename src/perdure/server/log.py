"""The log of `perdure serve`: one line per event on stderr, as text or JSON, with the ids of its request and run.

The log never quotes messages. For an error of other code it shows the type and the traceback; the text, which may quote
a message, only at the level `debug`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import sqlite3
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

from perdure.app import environment_secrets, mask_text
from perdure.core.errors import PerdureError
from perdure.core.telemetry import current_run

REPEATS_MAX, REPEATS_S = 10, 60.0
"""How many equal lines are written in how many seconds. Further ones are only counted, so that broken requests can't
fill the disk. Errors with a traceback are always written."""

CHAIN_MAX, FRAMES_MAX = 5, 40

SAFE_ERRORS = (PerdureError, sqlite3.Error, OSError, ImportError, AttributeError, NameError, TypeError, MemoryError)
"""Errors whose texts come from code, never from messages."""

TRACE_HEADER = "x-trace-id"
ACCESS_LOG = "perdure.access"
"""The logger of requests, one line each."""

current_trace: ContextVar[str] = ContextVar("current_trace", default="")
"""The trace id of the current request, 32 hexadecimal digits as in W3C trace ids; empty outside any. Its error and its
log lines carry it. Tasks that the request starts, such as the one that drives its run, share it."""

_OMITTED = "(its text is left out: PERDURE_LOG_LEVEL=debug shows it)"


def trace_id() -> str:
    """The id of the current request, or a new one outside any request."""
    return current_trace.get() or secrets.token_hex(16)


@contextlib.contextmanager
def log_to(stream: TextIO, *, form: str, level: str, environment: Mapping[str, str]) -> Iterator[None]:
    """Write the log to `stream` inside the context.

    Args:
        form, level: `log` and `log_level` of `ServerConfig`. Lines of other packages need at least `warning`.
        environment: the values of its keys, passwords and secrets are masked as `***`.
    """
    if form == "off":
        yield
        return
    number = getattr(logging, level.upper())
    lines = _JsonFormatter if form == "json" else _ConsoleFormatter
    handler = logging.StreamHandler(stream)
    handler.setFormatter(lines(environment_secrets(environment), texts=number <= logging.DEBUG))
    handler.addFilter(_LevelFilter(number))
    handler.addFilter(_RepeatFilter())
    root, ours = logging.getLogger(), logging.getLogger("perdure")
    before = (ours.level, logging.raiseExceptions, threading.excepthook)
    root.addHandler(handler)
    ours.setLevel(min(number, logging.WARNING))  # metrics count warnings, also those that the log leaves out
    logging.raiseExceptions = False  # a closed stderr or a full disk must not stop the server
    threading.excepthook = _log_thread_error
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(before[0])
        _, logging.raiseExceptions, threading.excepthook = before


class _LevelFilter:
    """Passes records from a level on: other packages' only from `warning`, as their lines may quote requests, and never
    those of `mcp`, which quote what servers send."""

    def __init__(self, level: int) -> None:
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        name = record.name.partition(".")[0]
        return name != "mcp" and record.levelno >= (
            self._level if name == "perdure" else max(self._level, logging.WARNING)
        )


class _RepeatFilter:
    """Passes the first `REPEATS_MAX` equal lines, and counts further ones."""

    def __init__(self) -> None:
        self._since, self._counts = 0.0, dict[tuple[str, str], int]()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info or record.name == ACCESS_LOG:
            return True
        now, key = time.monotonic(), (record.name, record.getMessage())
        if now - self._since > REPEATS_S or len(self._counts) > 1_000:
            self._since, before, self._counts = now, self._counts, {}
            omitted = before.get(key, 0) - REPEATS_MAX
            if omitted > 0:
                record.msg, record.args = f"{key[1]} ({omitted:,} more of these lines were left out)", ()
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] == REPEATS_MAX:
            record.msg, record.args = f"{key[1]} (more of these lines are left out for up to {REPEATS_S:.0f} s)", ()
        return self._counts[key] <= REPEATS_MAX


class _Formatter(logging.Formatter):
    """The parts of a line that text and JSON share. Secrets in `masked` become ***; `texts`: all errors' are shown."""

    def __init__(self, masked: Sequence[str], *, texts: bool) -> None:
        super().__init__()
        self._masked, self._texts = masked, texts

    def _message(self, record: logging.LogRecord) -> str:
        """The message of a record, without secrets."""
        message = record.getMessage()
        if record.name == "asyncio":  # its further lines repeat the error's text
            message = message.partition("\n")[0]
        return _printable(mask_text(message, self._masked))

    def _error(self, record: logging.LogRecord) -> list[str]:
        """The lines of the error's traceback; the first cause comes first."""
        error = record.exc_info[1] if record.exc_info else None
        chain: list[BaseException] = []
        while error is not None and len(chain) < CHAIN_MAX:
            chain.append(error)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return [_printable(mask_text(line, self._masked)) for link in reversed(chain) for line in self._lines(link)]

    def _lines(self, error: BaseException) -> Iterator[str]:
        """The lines of one error's traceback, and of the errors of a group."""
        for frame in traceback.extract_tb(error.__traceback__, limit=-FRAMES_MAX):
            yield f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
            if frame.line:
                yield f"    {frame.line}"
        kind = type(error).__qualname__
        if not str(error):
            yield kind
        else:
            is_safe = self._texts or isinstance(error, SAFE_ERRORS)
            yield f"{kind}: {error if is_safe else _OMITTED}"
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions[:CHAIN_MAX]:
                yield from self._lines(inner)


class _ConsoleFormatter(_Formatter):
    """Writes a line of text, and the traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {self._message(record)}"
        ids = "".join(f" {name}={value}" for name, value in _ids().items())
        return "\n".join((line + ids, *self._error(record)))


class _JsonFormatter(_Formatter):
    """Writes one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        shape: dict[str, object] = {
            "at": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._message(record),
        }
        shape |= _ids()
        if record.exc_info and (error := record.exc_info[1]) is not None:
            shape |= {"error": type(error).__qualname__, "traceback": self._error(record)}
        return json.dumps(shape)


def _ids() -> dict[str, str]:
    """The ids of the current request and of the run that this task drives, as far as there are any."""
    ids = {"trace_id": trace} if (trace := current_trace.get()) else {}
    if (run := current_run.get()) is not None:
        ids |= {"run_id": run.id, "agent_id": run.key.agent_id}
    return ids


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _printable(text: str) -> str:
    """The text with line breaks and control characters escaped: clients choose paths and names."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _log_thread_error(args: threading.ExceptHookArgs) -> None:
    error = args.exc_value
    if error is None or isinstance(error, SystemExit):
        return
    name = "of this process" if args.thread is None else args.thread.name
    logging.getLogger("perdure").error("the thread %s stopped at a defect", name, exc_info=error)
