"""One call from outside: its pipes, what came through them, and its end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from perdure.toolbox.sandbox.fork_server import Ended, ForkServer
from perdure.toolbox.sandbox.inside.frames import HEADER

READ_BYTES = 64 << 10
FILE_BYTES = 64 << 10
READS_AT_ONCE = 4
"""After so many reads the event loop gets its turn, however much is there."""


class TooMuchOutput(Exception):
    """More was printed than anybody will read, past what prints in Python are held to."""


class Stream:
    """One pipe that is read as it fills. The first `keep` bytes are kept, the rest is thrown away.

    Args:
        heard: called whenever something was read, or the end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, keep: int, heard: Callable[[], None]) -> None:
        self._loop, self._fd, self._heard = loop, fd, heard
        self.keep = keep
        self.data = bytearray()
        self.total = 0
        self.ended = False
        self._open = True
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    def drain(self) -> None:
        """Read what is there already."""
        while self._open and not self.ended and self.total <= 2 * self.keep and self._step():
            continue

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._fd)
            os.close(self._fd)

    def _read(self) -> None:
        for _ in range(READS_AT_ONCE):
            if self.ended or not self._step():
                break
        self._heard()

    def _step(self) -> bool:
        try:
            part = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            part = b""
        if not part:
            self.ended = True
            self._loop.remove_reader(self._fd)
            return False
        self.total += len(part)
        self.data += part[: max(0, self.keep + HEADER.size - len(self.data))]
        return True


class Call:
    """A process that was forked for one call, with its pipes. Raises: OSError: there can be no more of those."""

    def __init__(
        self, server: ForkServer, slot: int, answer_keep: int, output_keep: int, *, network: bool = False
    ) -> None:
        self.server, self.slot = server, slot
        self._changed = asyncio.Event()
        ends = socket.socketpair() if network else ()
        (job, self._job), (answer_fd, answer), (out_fd, out), (err_fd, err) = _pipes(4)
        self._theirs = [job, answer, out, err]
        self._channel = ends[0] if ends else None
        if ends:
            ends[0].setblocking(False)
            self._theirs.append(ends[1].detach())
        self.answer = Stream(server.loop, answer_fd, answer_keep, self._changed.set)
        self.stdout = Stream(server.loop, out_fd, output_keep, self._changed.set)
        self.stderr = Stream(server.loop, err_fd, output_keep, self._changed.set)
        self.number = -1
        self.ended: asyncio.Future[Ended] = server.loop.create_future()

    async def fork(self, how: Mapping[str, Any]) -> None:
        try:
            self.number, self.ended = await self.server.fork({**how, "slot": self.slot}, self._theirs)
        finally:
            for fd in self._theirs:
                os.close(fd)

    async def send(self, data: bytes, file: Path | None = None) -> None:
        """Write the job to its pipe, and after it the file. A reader that has gone away is noticed elsewhere.

        Raises: OSError: the file can't be read.
        """
        try:
            os.set_blocking(self._job, False)
            await self._write(data)
            if file is not None:
                with file.open("rb") as opened:
                    while part := opened.read(FILE_BYTES):
                        await self._write(part)
        except BrokenPipeError:
            pass
        finally:
            self.close_job()

    async def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._job, view) :]
            except BlockingIOError:
                await self._writable()

    def listener(self) -> socket.socket:
        """The socket that its proxy listens on, once it is ready. Raises: OSError: there is none."""
        assert self._channel is not None
        _, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
        if not descriptors:
            raise OSError("the call has no network")
        return socket.socket(fileno=descriptors[0])

    def close_job(self) -> None:
        if self._job >= 0:
            os.close(self._job)
            self._job = -1

    async def frame(self, *, output_max: int, lines: Callable[[str], None] | None = None) -> bytes | None:
        """The next message of the answer pipe; None: the pipe ended before, or the message is too long.

        Args:
            lines: is given each line of stdout.
        Raises: TooMuchOutput: more than `output_max` bytes came through stdout or stderr.
        """
        told = 0
        while True:
            self._changed.clear()
            while lines is not None and (end := self.stdout.data.find(b"\n", told)) >= 0:
                lines(self.stdout.data[told:end].decode(errors="replace"))
                told = end + 1
            found = self._whole_frame()
            if found is not None:
                return found
            if self.answer.ended or self._announced() > self.answer.keep:
                return None
            if max(self.stdout.total, self.stderr.total) > output_max:
                raise TooMuchOutput
            await self._changed.wait()

    def kill(self) -> None:
        self.server.kill(self.number)

    def limit_memory(self, memory_mb: int) -> None:
        """Have it ended if all its processes hold more together."""
        self.server.limit(self.number, memory_mb << 20)

    def close(self) -> None:
        """Let go of the pipes."""
        self.close_job()
        if self._channel is not None:
            self._channel.close()
        for stream in (self.answer, self.stdout, self.stderr):
            stream.close()

    def _announced(self) -> int:
        """The length that the message which has begun says it has."""
        data = self.answer.data
        return int(HEADER.unpack_from(data)[0]) if len(data) >= HEADER.size else 0

    def _whole_frame(self) -> bytes | None:
        data = self.answer.data
        end = HEADER.size + self._announced()
        if not HEADER.size < end <= len(data):
            return None
        found = bytes(data[HEADER.size : end])
        del data[:end]
        return found

    async def _writable(self) -> None:
        loop = self.server.loop
        free = loop.create_future()

        def tell() -> None:
            if not free.done():
                free.set_result(None)

        loop.add_writer(self._job, tell)
        try:
            await free
        finally:
            loop.remove_writer(self._job)


def _pipes(count: int) -> list[tuple[int, int]]:
    """The ends to read from and to write to. Raises: OSError: there can be no more; then none is left."""
    made: list[tuple[int, int]] = []
    try:
        made.extend(os.pipe() for _ in range(count))
    except OSError:
        for fd in chain.from_iterable(made):
            os.close(fd)
        raise
    return made
