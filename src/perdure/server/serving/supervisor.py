"""Several processes that serve one address: they share a socket that is bound once, and one that dies is started again.

A worker is `python -m perdure serve --worker LISTENER,LINE,SHARES,PLACE,REPLACEMENT`: three open files that it
inherits, its place among the workers, and 1 if all of them were ready before. The files are the listening socket; a
line to this process, over which it says that it is ready, and whose break stops it, so that none is left behind; and
the number of connections that each worker has.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.errors import PerdureError
from perdure.server.serving.acceptor import ConnectionCounts

log = logging.getLogger(__name__)

SHORT_LIFE_S = 10.0
"""A worker that lived shorter than this died at once."""
SHORT_LIVES = 5
"""After so many short lives in a row a worker is given up, and the others stop."""
WAIT_S, WAIT_MAX_S = 0.2, 5.0
"""The pause before a worker is started again: the first one, doubled after each short life, up to the longest."""
KILL_S = 15.0
"""How long after the time for draining and for answers a worker may take to stop, in seconds."""


class WorkersFailed(PerdureError):
    """A worker ended again and again right after its start."""


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """What a worker inherits: the listening socket, its line to the supervisor, and the counts of connections of all
    workers with its own place among them. `is_replacement`: all workers were ready before this one was started."""

    listener: socket.socket
    line: socket.socket
    shares: tuple[ConnectionCounts, int]
    is_replacement: bool

    @classmethod
    def parse(cls, text: str) -> WorkerLine:
        """The files that `--worker` names. Raises: ValueError, OSError: they are none."""
        *sockets, shares, place, replacement = map(int, text.split(","))
        listener, line = (socket.socket(fileno=number) for number in sockets)
        for one in (listener, line):
            one.setblocking(False)
        for number in (*sockets, shares):
            os.set_inheritable(number, False)  # the programs that tools start do not get them
        return cls(listener, line, (ConnectionCounts.inherit(shares), place), bool(replacement))

    def tell_ready(self, about: Mapping[str, Any]) -> None:
        """Tell the supervisor that this worker answers requests, with the facts that it prints, such as the model."""
        with contextlib.suppress(OSError):
            self.line.send(json.dumps(about).encode() + b"\n")

    async def wait_for_end(self) -> None:
        """Return when the supervisor is gone."""
        with contextlib.suppress(OSError):
            while await asyncio.get_running_loop().sock_recv(self.line, 64):
                pass


class Supervisor:
    """Runs workers on a listening socket, until a signal or `stop`, which closes it here.

    Args:
        command: what starts a worker; `--worker FILES` is added.
        grace_s: how long a worker may take to stop before it is killed, in seconds.
        on_ready: called once, when all workers answer, with what the first said of itself.
        on_end: called with the process number of each worker that has ended.
    """

    def __init__(
        self,
        listener: socket.socket,
        count: int,
        *,
        grace_s: float,
        on_ready: Callable[[Mapping[str, Any]], None],
        command: Sequence[str],
        environment: Mapping[str, str],
        short_life_s: float = SHORT_LIFE_S,
        on_end: Callable[[int], object] = lambda pid: None,
    ) -> None:
        self._listener, self._count, self._command, self._environment = listener, count, command, environment
        self._grace_s, self._on_ready, self._short_life_s = grace_s, on_ready, short_life_s
        self._on_end = on_end
        self._shares = ConnectionCounts.create(count)
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._ready: dict[int, Mapping[str, Any]] = {}
        self._was_ready = False
        self._stopping = asyncio.Event()
        self._signal = signal.SIGTERM

    async def run(self) -> None:
        """Run the workers until a signal stops them all. Raises: WorkersFailed."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, number)
        places = [asyncio.create_task(self._keep_running(place)) for place in range(self._count)]
        try:
            done, _ = await asyncio.wait(places, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            if not self._stopping.is_set():
                self.stop()
            await asyncio.gather(*places, return_exceptions=True)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            self._shares.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Pass a signal on to all workers, and start none any more. A second one ends what they wait for."""
        self._signal = number
        self._stopping.set()
        # The workers have it. Kept open here, it would take connections after the last of them has gone, for a reset.
        self._listener.close()
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep_running(self, place: int) -> None:
        """Run the worker of a place, and start it again whenever it ends, until all stop. Raises: WorkersFailed."""
        short_lives, wait_s = 0, WAIT_S
        clock = asyncio.get_running_loop().time
        while not self._stopping.is_set():
            began_at = clock()
            code = await self._run_worker(place)
            if self._stopping.is_set():
                return
            if clock() - began_at >= self._short_life_s:
                short_lives, wait_s = 0, WAIT_S
            short_lives += 1
            log.warning("worker %s ended %s; it is started again", place + 1, _end_text(code))
            if short_lives == SHORT_LIVES or (not self._was_ready and code == 1):  # it has said itself what is wrong
                raise WorkersFailed(
                    f"worker {place + 1} ended {_end_text(code)} right after its start"
                    + (f", {short_lives} times in a row" if short_lives > 1 else "")
                    + ": its own lines above say why"
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()
            wait_s = min(2 * wait_s, WAIT_MAX_S)

    async def _run_worker(self, place: int) -> int:
        """Start a worker, and return its exit code once it has ended."""
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            with theirs:
                files = (self._listener.fileno(), theirs.fileno(), self._shares.file.fileno())
                # A session of its own: the interrupt key of a terminal reaches this process alone, which passes it on.
                process = await asyncio.create_subprocess_exec(
                    *(*self._command, "--worker", ",".join(map(str, (*files, place, int(self._was_ready))))),
                    env=self._environment,
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=files,
                    start_new_session=True,
                )
            self._processes[place] = process
            if self._stopping.is_set():  # the signal came meanwhile
                process.send_signal(self._signal)
            hearing = asyncio.create_task(self._hear(place, ours))
            stopping = asyncio.create_task(self._kill_late(process))
            try:
                return await process.wait()
            finally:
                for task in (hearing, stopping):
                    task.cancel()
                await asyncio.gather(hearing, stopping, return_exceptions=True)
                self._processes.pop(place, None)
                self._ready.pop(place, None)
                self._shares.leave(place)
                if process.returncode is None:
                    process.kill()
                self._on_end(process.pid)

    async def _hear(self, place: int, line: socket.socket) -> None:
        """Wait until a worker reports over its line that it is ready; once all are, call `on_ready`."""
        text = b""
        while not text.endswith(b"\n"):
            part = await asyncio.get_running_loop().sock_recv(line, 65_536)
            if not part:
                return
            text += part
        self._ready[place] = json.loads(text)
        if len(self._ready) == self._count and not self._was_ready:
            self._was_ready = True
            self._on_ready(self._ready[min(self._ready)])

    async def _kill_late(self, process: asyncio.subprocess.Process) -> None:
        """Kill a worker that does not stop in time."""
        await self._stopping.wait()
        await asyncio.sleep(self._grace_s)
        log.warning("process %s did not stop in %g s and is killed", process.pid, self._grace_s)
        process.kill()


def _end_text(code: int) -> str:
    """How a process ended, for people."""
    if code >= 0:
        return f"with code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
