"""The supervisor of workers: they share a socket, come back when they die, and stop with it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.server.config import ServerConfig
from perdure.server.serving.serve import bind
from perdure.server.serving.supervisor import SHORT_LIVES, Supervisor, WorkersFailed

# A worker that answers each connection with its number, says that it is ready, and ends with SIGTERM or its line.
WORKER = """
import os, select, socket, sys
listener, line = (socket.socket(fileno=int(number)) for number in sys.argv[-1].split(",")[:2])
listener.setblocking(True)
line.sendall(b'{"model": "m"}\\n')
while True:
    ready, _, _ = select.select([listener, line], [], [])
    if line in ready and not line.recv(1):
        sys.exit(0)
    if listener in ready:
        connection, _ = listener.accept()
        connection.sendall(str(os.getpid()).encode())
        connection.close()
"""


def python(program: str) -> tuple[str, ...]:
    return sys.executable, "-IS", "-c", program


async def answer_of(listener: socket.socket) -> int:
    """The number of the worker that answers."""
    reader, writer = await asyncio.open_connection(*listener.getsockname()[:2])
    number = int(await reader.read())
    writer.close()
    return number


@asynccontextmanager
async def supervised(program: str, count: int, **more: Any) -> AsyncIterator[tuple[socket.socket, asyncio.Task[None]]]:
    """The listening socket of workers that are ready, and the task of their supervisor."""
    ready = asyncio.Event()

    def note(about: Mapping[str, Any]) -> None:
        assert about == {"model": "m"}
        ready.set()

    with bind(ServerConfig(port=0)) as listener:
        supervisor = Supervisor(
            listener, count, grace_s=5, on_ready=note, command=python(program), environment=dict(os.environ), **more
        )
        task = asyncio.create_task(supervisor.run())
        waiting = asyncio.create_task(ready.wait())
        try:
            async with asyncio.timeout(20):
                await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            yield listener, task
        finally:
            waiting.cancel()
            supervisor.stop()
            await asyncio.wait({task})


async def test_a_worker_that_dies_is_started_again() -> None:
    """Meanwhile the other one answers; nobody is refused."""
    async with supervised(WORKER, 2, short_life_s=0) as (listener, task):
        first = await answer_of(listener)
        os.kill(first, signal.SIGKILL)
        seen: set[int] = set()
        async with asyncio.timeout(20):
            while len(seen) < 2:
                seen.add(await answer_of(listener))

        assert first not in seen
        assert not task.done()


async def test_a_worker_is_told_that_it_is_a_replacement() -> None:
    """A first one may end when its database is away; one that comes later has to wait for it."""
    once = WORKER.replace("str(os.getpid()).encode())", "sys.argv[-1][-1:].encode()); os._exit(1)")
    async with supervised(once, 1) as (listener, _):
        assert [await answer_of(listener) for _ in range(3)] == [0, 1, 1]


async def test_a_signal_stops_all_workers() -> None:
    """The supervisor ends without an error, leaves no process behind, and keeps no client waiting that nobody
    answers."""
    async with supervised(WORKER, 2) as (listener, task):
        number, address = await answer_of(listener), listener.getsockname()[:2]
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(20):
            await task

        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)


async def test_workers_that_die_at_once_are_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After some tries, with a pause between them, and in words."""
    monkeypatch.setattr("perdure.server.serving.supervisor.WAIT_S", 0.001)
    count = tmp_path / "count"
    async with supervised(f"open({str(count)!r}, 'a').write('x'); raise SystemExit(3)", 1) as (_, task):
        with pytest.raises(WorkersFailed, match="with code 3 right after its start, 5 times in a row"):
            await task

    assert count.read_text() == "x" * SHORT_LIVES


async def test_a_refused_configuration_is_said_once() -> None:
    """A worker that ends with code 1 before all were ready has said what is wrong."""
    async with supervised("raise SystemExit(1)", 2) as (_, task):
        with pytest.raises(WorkersFailed, match=r"ended with code 1 right after its start: its own lines"):
            await task


async def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    """Also when it was killed."""
    program = f"""
import asyncio, os, socket, sys
from perdure.server.serving.supervisor import Supervisor
listener = socket.create_server(("127.0.0.1", 0))
def ready(about):
    print(listener.getsockname()[1], flush=True)
command = {python(WORKER)!r}
work = Supervisor(listener, 1, grace_s=5, on_ready=ready, command=command, environment=dict(os.environ)).run()
asyncio.run(work)
"""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    port = int(await parent.stdout.readline())
    parent.kill()
    await parent.wait()

    async with asyncio.timeout(20):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                break
            writer.close()
            await asyncio.sleep(0.05)
