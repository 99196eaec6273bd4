"""Leases: a run belongs to one process, which is heard of while it works on it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

from perdure.core.errors import LeaseLost, StoreError
from perdure.core.runs import Lease, Run, RunKey
from perdure.engine.ports import Ports
from perdure.engine.run.interrupts import Interruptible
from perdure.storage.tx import Tx


@asynccontextmanager
async def holding(key: RunKey, lease: Lease, ports: Ports) -> AsyncIterator[None]:
    """Keep the lease while the block waits for a model or a tool.

    Raises inside the block: Interrupted: the run was asked to stop; LeaseLost: another process has taken it.
    """
    waiting = ports.interrupts[key] = Interruptible()
    beats = asyncio.create_task(_beat(key, lease, ports, waiting))
    try:
        async with waiting:
            yield
    finally:
        ports.interrupts.pop(key, None)
        beats.cancel()


async def _beat(key: RunKey, lease: Lease, ports: Ports, waiting: Interruptible) -> None:
    settings = ports.settings
    while True:
        await asyncio.sleep(settings.beat_s)
        until = ports.clock.now() + timedelta(seconds=settings.lease_s)
        try:
            run = await ports.store.write(_hold, key, lease, until)
        except LeaseLost as lost:
            waiting.fire(lost)
            return
        except StoreError:
            pass  # the lease outlives several beats; if the store stays away, the next commit will say so
        else:
            if run.cancel_requested:
                waiting.fire()
                return


def _hold(tx: Tx, key: RunKey, lease: Lease, until: datetime) -> Run:
    return tx.runs.hold(key, lease, until=until)


def process_owner(token: str = "") -> str:
    """A name for leases: machine, process namespace, process, when that began, and a token that tells apart two engines
    of one process."""
    pid = os.getpid()
    return f"{socket.gethostname()}/{_namespace()}/{pid}/{_started(pid)}/{token}"


def is_dead(owner: str) -> bool:
    """Whether the process of this name is known to be gone; False when it can't be known from here.

    So a run needs not wait for its lease after a crash, when the next process starts on the same machine.
    """
    parts = owner.rsplit("/", 4)
    if len(parts) != 5 or parts[0] != socket.gethostname() or parts[1] != _namespace() or not parts[2].isdigit():
        return False
    pid = int(parts[2])
    if pid == os.getpid():
        return parts[3] != _started(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _started(pid) != parts[3]  # it has ended unreaped, or the number was given to another process


def _namespace() -> str:
    """Process numbers of another container say nothing here."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "-"


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks; a dash where the system doesn't say; a zombie began never."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "ended" if fields[0] in ("Z", "X") else fields[19]
    except (OSError, IndexError):
        return "-"
