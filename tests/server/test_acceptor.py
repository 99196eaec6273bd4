"""Connections of a socket that several processes share are shared too."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from perdure.server.config import ServerConfig
from perdure.server.serving import acceptor as acceptors
from perdure.server.serving.acceptor import Acceptor, ConnectionCounts
from perdure.server.serving.serve import bind

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Worker:
    """Accepts connections and counts those that are open."""

    def __init__(self, listener: socket.socket, shares: tuple[ConnectionCounts, int] | None) -> None:
        self.listener, self.open = listener, 0
        self.acceptor = Acceptor(listener, self._make, lambda: self.open, shares)

    def _make(self) -> asyncio.Protocol:
        return _Counted(self)


class _Counted(asyncio.Protocol):
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._worker.open += 1
        self._worker.acceptor.note()
        transport.write(b"hello")  # type: ignore[attr-defined]  # uvloop's is a class of its own

    def connection_lost(self, exc: Exception | None) -> None:
        self._worker.open -= 1
        self._worker.acceptor.note()


@asynccontextmanager
async def workers(count: int) -> AsyncIterator[tuple[list[Worker], Callable[[int], asyncio.Future[list[None]]]]]:
    """Workers on one socket, and what opens so many connections at once and waits until all are served."""
    with bind(ServerConfig(port=0)) as listener:
        shares = ConnectionCounts.create(count)
        found = [
            Worker(listener.dup(), (ConnectionCounts.inherit(os.dup(shares.file.fileno())), place))
            for place in range(count)
        ]
        writers: list[asyncio.StreamWriter] = []

        async def connect() -> None:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writers.append(writer)
            assert await reader.readexactly(5) == b"hello"

        try:
            yield found, lambda number: asyncio.gather(*(connect() for _ in range(number)))
        finally:
            for writer in writers:
                writer.close()
            for worker in found:
                worker.acceptor.close()
                await worker.acceptor.wait_closed()
                worker.listener.close()
            shares.close()


def run_in(make_loop: Callable[[], asyncio.AbstractEventLoop], work: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(work())  # type: ignore[arg-type]


@pytest.mark.parametrize("make_loop", LOOPS)
def test_workers_get_equal_shares(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Of many connections at once, and of one after the other."""

    async def work() -> None:
        async with workers(3) as (found, connect):
            for worker in found:
                worker.acceptor.start()
            await connect(30)
            assert all(7 <= worker.open <= 13 for worker in found)
            for _ in range(9):
                await connect(1)
            assert all(10 <= worker.open <= 16 for worker in found)

    run_in(make_loop, work)


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_worker_that_does_not_accept_keeps_nobody_waiting(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """One that is not there, one that is busy, and one that is gone."""

    async def work() -> None:
        async with workers(2) as (found, connect):
            one, other = found
            one.acceptor.start()
            await connect(5)
            other.acceptor.note()  # it is there, with no connection, and too busy to accept any
            async with asyncio.timeout(5):
                await connect(5)
            assert (one.open, other.open) == (10, 0)
            other.acceptor.start()
            await connect(4)
            assert other.open >= 2
            other.acceptor.close()
            await connect(5)
            assert one.open + other.open == 19

    run_in(make_loop, work)


async def test_a_worker_accepts_again_as_soon_as_the_others_have_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """It need not wait for as long as it would leave a connection to them."""
    monkeypatch.setattr(acceptors, "COURTESY_S", 3_600)
    async with workers(2) as (found, connect):
        one, other = found
        one.acceptor.start()
        await connect(5)
        other.acceptor.note()  # it is there, with no connection
        waiting = connect(1)
        await asyncio.sleep(0.02)
        assert not waiting.done()
        other.open = 5
        other.acceptor.note()
        async with asyncio.timeout(5):
            await waiting
        assert one.open == 6


async def test_a_process_without_files_accepts_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptors, "PAUSE_S", 0.01)

    class Short(socket.socket):
        """A listener whose process can't open files for a while."""

        failures = 3

        def accept(self) -> tuple[socket.socket, object]:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    with bind(ServerConfig(port=0)) as bound:
        listener = Short(fileno=os.dup(bound.fileno()))
        listener.setblocking(False)
        worker = Worker(listener, None)
        worker.acceptor.start()
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(*bound.getsockname())
            assert await reader.readexactly(5) == b"hello"
        assert listener.failures == 0
        writer.close()
        worker.acceptor.close()
        listener.close()
