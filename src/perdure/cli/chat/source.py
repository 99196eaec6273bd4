"""Where messages come from when no person types them at a prompt: lines of stdin, or a script of a test."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

__all__ = ["GivenLines", "Source", "StdinLines"]

CHUNK_BYTES = 65_536
LINES_AHEAD = 100


class Source(Protocol):
    interactive: bool
    """A person types: an interruption ends what is going on, not the program."""

    prefills: bool
    """What `ask` begins the answer with is seen, and can be changed."""

    async def read(self) -> str | None:
        """The next text; None when there are no more."""

    async def ask(self, question: str, *, prefill: str = "") -> str | None:
        """One line in answer to a question, for a person only; None: they don't answer.

        Args:
            prefill: what the answer begins with.
        """

    def interrupt(self) -> None:
        """SIGINT came while nothing but the next text was waited for."""


class GivenLines:
    """Lines that are known beforehand. None among them: Ctrl-C where something is asked, else the end.

    `asked` holds what was asked, with what the answer began with.
    """

    prefills = True

    def __init__(self, lines: Sequence[str | None], *, interactive: bool = False) -> None:
        self.lines = list(lines)
        self.interactive = interactive
        self.asked: list[tuple[str, str]] = []

    async def read(self) -> str | None:
        return self.lines.pop(0) if self.lines else None

    async def ask(self, question: str, *, prefill: str = "") -> str | None:
        self.asked.append((question, prefill))
        return self.lines.pop(0) if self.lines else None

    def interrupt(self) -> None:
        self.lines.clear()


class StdinLines:
    """Lines of a file descriptor, decoded as UTF-8; a byte that is none is kept as a lone surrogate.

    A thread reads, because a regular file can't be waited for. It reads the descriptor itself: a daemon thread inside
    `sys.stdin` would hold its lock when the interpreter shuts down.
    """

    interactive = prefills = False

    def __init__(self, fd: int | None = None) -> None:
        # Without stdin its number may belong to another file, such as the store.
        self._fd = (0 if sys.stdin is not None else None) if fd is None else fd
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._room = threading.Semaphore(LINES_AHEAD)
        self._thread: threading.Thread | None = None

    async def read(self) -> str | None:
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._read_all, args=(loop,), name="perdure-stdin", daemon=True)
            self._thread.start()
        line = await self._lines.get()
        self._room.release()
        return line

    async def ask(self, question: str, *, prefill: str = "") -> str | None:
        return None  # a line is a message, never an answer that nobody there could have been asked for

    def interrupt(self) -> None:
        self._lines.put_nowait(None)

    def _read_all(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody wants more
            for line in self._decoded():
                self._room.acquire()
                loop.call_soon_threadsafe(self._lines.put_nowait, line)
            loop.call_soon_threadsafe(self._lines.put_nowait, None)

    def _decoded(self) -> Iterator[str]:
        pieces: list[bytes] = []  # of the line that is not ended yet
        while chunk := self._chunk():
            first, *more = chunk.split(b"\n")
            pieces.append(first)
            if more:
                yield _text(b"".join(pieces))
                yield from map(_text, more[:-1])
                pieces = [more[-1]]
        if rest := b"".join(pieces):
            yield _text(rest)

    def _chunk(self) -> bytes:
        if self._fd is None:
            return b""
        while True:
            try:
                return os.read(self._fd, CHUNK_BYTES)
            except BlockingIOError:  # whoever gave us stdin made it non-blocking
                select.select([self._fd], [], [])
            except OSError:
                return b""


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape").removesuffix("\r")
