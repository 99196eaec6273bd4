"""Leases: a run belongs to one process, which renews its lease while it works on the run."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from perdure.core.errors import LeaseLost, StoreError
from perdure.core.runs import Run
from perdure.core.tasks import wait_for
from perdure.engine.log.interrupts import Interrupt, interruptible
from perdure.engine.ports import Ports


@asynccontextmanager
async def holding(run: Run, ports: Ports) -> AsyncIterator[None]:
    """Keep the lease of a run while the block waits for a model or a tool.

    Raises inside the block: WaitInterrupted: the run was asked to stop; LeaseLost: another process has taken it.
    """
    interrupt, news = Interrupt(), asyncio.Event()
    beats: list[asyncio.Task[None]] = []

    def begin() -> None:
        """Begin to beat, or beat now: most models have answered before, and cost no task."""
        news.set()
        if not beats:
            beats.append(asyncio.create_task(_beat(run, ports, interrupt, news)))

    ports.interrupts[run.key], interrupt.hear = interrupt, begin
    first = asyncio.get_running_loop().call_later(ports.settings.beat_s, begin)
    with interruptible(interrupt):
        try:
            yield
        finally:
            del ports.interrupts[run.key]
            first.cancel()
            for task in beats:
                task.cancel()


async def _beat(run: Run, ports: Ports, interrupt: Interrupt, news: asyncio.Event) -> None:
    """Extend the lease of a run for ever, and interrupt its wait when it is lost or the run is asked to stop."""
    settings = ports.settings
    while True:
        await wait_for(news, settings.beat_s)
        news.clear()
        until = ports.clock.now() + timedelta(seconds=settings.lease_s)
        try:
            stored = await ports.store.write(lambda tx, until: tx.runs.keep_lease(run, until=until), until)
        except LeaseLost as lost:
            interrupt.fire(lost)
            return
        except StoreError:
            pass  # the lease outlives several beats; if the store stays away, the next commit will say so
        else:
            if stored.cancel_requested:
                interrupt.fire()
                return


def process_owner(token: str = "") -> str:
    """Return this process's name in leases: machine, namespace, number, start time, and its engine's `token`."""
    pid = os.getpid()
    return f"{socket.gethostname()}/{_namespace()}/{pid}/{_start_time(pid)}/{token}"


def is_dead(owner: str) -> bool:
    """Whether the process of this name is known to be gone; False if that can't be known from here. After a crash a run
    does not wait for its lease to end, if the next process starts on the same machine."""
    parts = owner.rsplit("/", 4)
    if len(parts) != 5 or parts[0] != socket.gethostname() or parts[1] != _namespace() or not parts[2].isdecimal():
        return False
    pid = int(parts[2])
    if pid == os.getpid():
        return parts[3] != _start_time(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _start_time(pid) != parts[3]  # it has ended unreaped, or the number was given to another process


def _namespace() -> str:
    """Return the id of this process namespace: process numbers of another container mean nothing here."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "-"


def _start_time(pid: int) -> str:
    """Return the start time of a process in the kernel's ticks; "ended" for a zombie, a dash if it is unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "ended" if fields[0] in ("Z", "X") else fields[19]
    except (OSError, IndexError):
        return "-"
