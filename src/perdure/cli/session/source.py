"""Where the texts of a chat come from: stdin. `prompt` has the source for a person."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

CHUNK_BYTES = 65_536
LINES_AHEAD = 100


class TextSource(Protocol):
    """Where the texts of a chat come from: a person at a terminal, or the lines of stdin."""

    interactive: bool
    """A person types: an interruption ends the current run, not the program."""

    prefills: bool
    """`ask` can start with a text that the person edits."""

    async def read(self) -> str | None:
        """The next text; None when there are no more."""

    async def ask(self, question: str, *, prefill: str = "") -> str | None:
        """The answer of a person to a question, one line; None: no answer.

        Args:
            prefill: the start of the answer.
        """

    def interrupt(self) -> None:
        """Handle SIGINT that comes while the chat waits for the next text."""

    def keep_keys(self, interrupt: Callable[[], None]) -> AbstractContextManager[None]:
        """While the block runs, keep what a person types for the next `read`; Ctrl-C calls `interrupt`."""


class StdinLines:
    """Lines of a file descriptor in UTF-8; an invalid byte becomes a lone surrogate.

    A thread reads, because an event loop can't wait for a regular file. It reads the descriptor and not `sys.stdin`,
    whose lock it would hold when the interpreter shuts down.
    """

    interactive = prefills = False

    def __init__(self) -> None:
        # Without stdin, descriptor 0 may be another file, such as the store.
        self._fd = None if sys.stdin is None else 0
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._room = threading.Semaphore(LINES_AHEAD)
        self._thread: threading.Thread | None = None

    async def read(self) -> str | None:
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._queue_lines, args=(loop,), name="perdure-stdin", daemon=True)
            self._thread.start()
        line = await self._lines.get()
        self._room.release()
        return line

    async def ask(self, question: str, *, prefill: str = "") -> str | None:
        return None  # a line is a message, never the answer to a question that nobody sees

    def interrupt(self) -> None:
        self._lines.put_nowait(None)  # which ends the input

    def keep_keys(self, interrupt: Callable[[], None]) -> AbstractContextManager[None]:
        return contextlib.nullcontext()  # its lines wait by themselves

    def _queue_lines(self, loop: asyncio.AbstractEventLoop) -> None:
        """Put every line into the queue, and None at the end; runs in the thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            for line in self._read_lines():
                self._room.acquire()
                loop.call_soon_threadsafe(self._lines.put_nowait, line)
            loop.call_soon_threadsafe(self._lines.put_nowait, None)

    def _read_lines(self) -> Iterator[str]:
        pieces: list[bytes] = []  # of the unfinished line
        while chunk := self._read_chunk():
            first, *more = chunk.split(b"\n")
            pieces.append(first)
            if more:
                yield _decode(b"".join(pieces))
                yield from map(_decode, more[:-1])
                pieces = [more[-1]]
        if rest := b"".join(pieces):
            yield _decode(rest)

    def _read_chunk(self) -> bytes:
        """The next bytes; none at the end."""
        if self._fd is None:
            return b""
        while True:
            try:
                return os.read(self._fd, CHUNK_BYTES)
            except BlockingIOError:  # stdin is non-blocking
                select.select([self._fd], [], [])
            except OSError:
                return b""


def _decode(line: bytes) -> str:
    """A line as text, without its line end."""
    return line.decode("utf-8", "surrogateescape").removesuffix("\r")
