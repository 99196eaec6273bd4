"""Accepts the connections of the listening socket, so that workers which share it get equal shares.

An event loop's own server would not do: uvloop accepts all that wait at once, so the first worker that wakes gets all
connections of a burst, and a flood of them could use up the process's open files before one is counted.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import mmap
import os
import socket
import tempfile
from collections.abc import Callable
from typing import BinaryIO

log = logging.getLogger(__name__)

UNFINISHED_MAX = 64
"""How many accepted connections may not be counted yet."""
COURTESY_S = 0.01
"""How long waiting connections are left to a worker that has fewer. That one may be busy, or about to die."""
RECHECK_S = 0.001
"""How often a worker looks in that time whether the others have as many connections by now."""
LATE_MAX = 8
"""How many connections it accepts if they have fewer after that time: a stuck worker must not slow down new clients."""
PAUSE_S = 1.0
"""The pause when the process can't open another file."""
NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

ABSENT = 0xFFFF_FFFF
SIZE = 4


class ConnectionCounts:
    """How many connections each worker has, in memory that all of them and their supervisor share. Each count is one
    aligned word, so nobody reads half of one."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self._counts = memoryview(mmap.mmap(file.fileno(), 0)).cast("I")

    @classmethod
    def create(cls, count: int) -> ConnectionCounts:
        """The shares of so many workers, none of which is there yet."""
        file = tempfile.TemporaryFile()  # noqa: SIM115  # until `close`
        file.write(ABSENT.to_bytes(SIZE, "little") * count)
        file.flush()
        return cls(file)

    @classmethod
    def inherit(cls, number: int) -> ConnectionCounts:
        """The shares in an open file of this process. Raises: OSError, ValueError: it is none."""
        with os.fdopen(number, "r+b") as file:  # the memory stays without it
            return cls(file)

    def close(self) -> None:
        """Close the file; the memory stays as long as this."""
        self.file.close()

    def put(self, place: int, count: int) -> None:
        """Note how many connections a worker has."""
        self._counts[place] = count

    def leave(self, place: int) -> None:
        """Note that a worker is gone."""
        self._counts[place] = ABSENT

    def has_fewest(self, place: int) -> bool:
        """Whether no other worker has fewer connections."""
        return self._counts[place] <= min(self._counts)


class Acceptor:
    """Accepts connections until it is closed; uvicorn takes it for a server.

    Args:
        make: makes the protocol of a connection.
        count: how many connections are open.
        shares: those of the workers that share the socket, and the place of this one.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], asyncio.Protocol],
        count: Callable[[], int],
        shares: tuple[ConnectionCounts, int] | None = None,
    ) -> None:
        self._listener, self._make, self._count, self._shares = listener, make, count, shares
        self._loop = asyncio.get_running_loop()
        self._unfinished: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._courtesy_until = 0.0
        self._is_closed = False

    def start(self) -> None:
        """Accept from now on."""
        self.note()
        self._watch()

    def note(self) -> None:
        """Tell the other workers how many connections there are; call it when the number has changed."""
        if self._shares is not None and not self._is_closed:
            shares, place = self._shares
            shares.put(place, self._count() + len(self._unfinished))

    def close(self) -> None:
        """Accept no more."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._shares is not None:
            shares, place = self._shares
            shares.leave(place)
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._listener)

    async def wait_closed(self) -> None:
        """Return when no accepted connection is about to be made."""
        while self._unfinished:
            await asyncio.wait(self._unfinished)

    def _watch(self) -> None:
        """Accept connections again."""
        if not self._is_closed:
            self._loop.add_reader(self._listener, self._accept)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        """Accept nothing for so many seconds, and call `then` after them."""
        self._loop.remove_reader(self._listener)
        self._timer = self._loop.call_later(seconds, then)

    def _accept(self) -> None:
        """Accept waiting connections; where workers share the socket one, and none for a while if another has fewer."""
        if self._shares is not None and not self._shares[0].has_fewest(self._shares[1]):
            self._courtesy_until = self._loop.time() + COURTESY_S
            self._wait(RECHECK_S, self._recheck)
            return
        self._accept_some(UNFINISHED_MAX - len(self._unfinished) if self._shares is None else 1)

    def _recheck(self) -> None:
        """Accept again when the others have as many connections, or have had the time to take some."""
        assert self._shares is not None
        is_late = self._loop.time() >= self._courtesy_until
        if is_late or self._shares[0].has_fewest(self._shares[1]):
            self._watch()
            self._accept_some(LATE_MAX if is_late else 1)
        else:
            self._wait(RECHECK_S, self._recheck)

    def _accept_some(self, most: int) -> None:
        """Accept waiting connections, at most so many."""
        for _ in range(most):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_FILES:
                    raise
                log.warning("no connection can be accepted for %g s: %s", PAUSE_S, error.strerror)
                self._wait(PAUSE_S, self._watch)
                return
            task = self._loop.create_task(self._connect(connection))
            self._unfinished.add(task)
            task.add_done_callback(self._forget)
            self.note()

    async def _connect(self, connection: socket.socket) -> None:

        try:
            connection.setblocking(False)
            transport, _ = await self._loop.connect_accepted_socket(self._make, connection)
            if self._is_closed:  # the server has told its connections to end already
                transport.close()
        except Exception:
            log.exception("an accepted connection could not be served")
            connection.close()

    def _forget(self, task: asyncio.Task[None]) -> None:
        """Drop a finished task, and update the counts."""
        self._unfinished.discard(task)
        self.note()
