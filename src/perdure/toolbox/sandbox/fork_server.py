"""The fork server as a process of this one: starting it, asking it for calls, noticing its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.toolbox.sandbox.cgroups import ControlGroup

START_TIMEOUT_S = 20.0
END_TIMEOUT_S = 2.0
MESSAGE_BYTES = 64 << 10
FULL_RETRY_S = 0.001

_START = "import sys; sys.path.insert(0, sys.argv[1]); from inside.zygote import main; main(int(sys.argv[2]))"


class StartFailed(Exception):
    """The fork server did not come up; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How a fork server is started.

    Args:
        python: the interpreter.
        user: whom to start it as, for a server that is root; None: as this process's user.
        namespaces, landlock: whether to use them.
        tolerant: measures that the kernel refuses are left out.
        site: folders of packages that code may import from.
        store: the folder of installed requirement sets.
        slots: how many calls it can have at a time.
        groups: the control group in which it gets one of its own; None: there is none.
        memory_bytes, processes: what its own one limits, of all calls together.
    """

    python: str
    user: int | None = None
    namespaces: bool = True
    landlock: bool = True
    tolerant: bool = False
    site: tuple[Path, ...] = ()
    store: Path | None = None
    slots: int = 16
    groups: Path | None = None
    memory_bytes: int = 0
    processes: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call's process ended.

    Args:
        exit: its exit code; negative: the signal that ended it; None: not known, the fork server is gone.
        failed: why there never was such a process; empty if there was.
        heavy: it was ended because its processes took too much memory together.
    """

    exit: int | None
    cpu_s: float = 0.0
    failed: str = ""
    heavy: bool = False


class ForkServer:
    """A running fork server. It belongs to the event loop that started it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        control: socket.socket,
        facts: Mapping[str, Any],
        *,
        group: ControlGroup | None = None,
        no_group: str = "",
    ) -> None:
        self._process = process
        self._group = group
        self.no_group = no_group
        self._control = control
        self._calls: dict[int, asyncio.Future[Ended]] = {}
        self._number = 0
        self.facts = facts
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(control, self._hear)
        self.alive = True

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def namespaces(self) -> bool:
        """Whether its calls have namespaces of their own."""
        return bool(self.facts["namespaces"])

    @classmethod
    async def start(cls, settings: ServerSettings) -> ForkServer:
        """Raises: StartFailed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            process, group, no_group = await asyncio.to_thread(_started, settings, theirs.fileno())
        except (OSError, subprocess.SubprocessError) as error:
            ours.close()
            raise StartFailed(f"{settings.python} could not be started: {error}") from None
        finally:
            theirs.close()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await loop.sock_sendall(ours, json.dumps(_told(settings)).encode())
                message = await loop.sock_recv(ours, MESSAGE_BYTES)
            facts = json.loads(message) if message else {"failed": "the fork server ended"}
        except (OSError, TimeoutError, ValueError) as error:
            facts = {"failed": f"the fork server did not answer: {error or type(error).__name__}"}
        except BaseException:
            ours.close()
            await asyncio.to_thread(_end, process, group)
            raise
        if "failed" in facts:
            ours.close()
            await asyncio.to_thread(_end, process, group)
            raise StartFailed(str(facts["failed"]))
        return cls(process, ours, facts, group=group, no_group=no_group)

    async def fork(self, call: Mapping[str, Any], pipes: Sequence[int]) -> tuple[int, asyncio.Future[Ended]]:
        """Start a call's process. Returns its number and what will tell its end."""
        self._number += 1
        number = self._number
        ended: asyncio.Future[Ended] = self.loop.create_future()
        self._calls[number] = ended
        message = json.dumps({**call, "call": number}).encode()
        while self.alive:
            try:
                socket.send_fds(self._control, [message], list(pipes))
                break
            except BlockingIOError:
                await asyncio.sleep(FULL_RETRY_S)
            except OSError:
                self._disconnect()
        return number, ended

    def kill(self, number: int) -> None:
        """End a call and all that it has started. It may have ended already."""
        self._tell(number, {"kill": number})

    def limit(self, number: int, bytes_max: int) -> None:
        """End a call as soon as its processes hold more memory than this together."""
        self._tell(number, {"limit": number, "bytes_max": bytes_max})

    def _tell(self, number: int, message: Mapping[str, Any]) -> None:
        if self.alive and number in self._calls:
            try:
                self._control.send(json.dumps(message).encode())
            except BlockingIOError:
                self.loop.call_later(FULL_RETRY_S, self._tell, number, message)
            except OSError:
                self._disconnect()

    async def close(self) -> None:
        """End the fork server and all its calls, and wait until its process is gone."""
        self._disconnect()
        await asyncio.to_thread(_end, self._process, self._group)

    def abandon(self) -> None:
        """Let go of it without its event loop, which is closed."""
        self._control.close()
        _end(self._process, self._group)

    def _hear(self) -> None:
        try:
            message = self._control.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._disconnect()
            return
        heard = json.loads(message)
        ended = self._calls.pop(heard["ended"], None)
        if ended is not None and not ended.done():
            facts = (heard.get("cpu_s", 0.0), heard.get("failed", ""), heard.get("heavy", False))
            ended.set_result(Ended(heard.get("exit"), *facts))

    def _disconnect(self) -> None:
        """Close the connection to the fork server, which ends it; every open call ends without a result."""
        if not self.alive:
            return
        self.alive = False
        self.loop.remove_reader(self._control)
        self._control.close()  # the fork server and all its calls end with this
        calls, self._calls = self._calls, {}
        for ended in calls.values():
            if not ended.done():
                ended.set_result(Ended(None))


def _started(settings: ServerSettings, control: int) -> tuple[subprocess.Popen[bytes], ControlGroup | None, str]:
    """The process, its control group, and why it has none. It waits for its settings, so it has started nothing yet."""
    process = _spawn(settings, control)
    if settings.groups is None:
        return process, None, ""
    group = None
    try:
        group = ControlGroup.make(settings.groups, memory_bytes=settings.memory_bytes, processes=settings.processes)
        group.take(process.pid)
    except OSError as error:
        if group is not None:
            group.remove()
        return process, None, f"{settings.groups}: {error.strerror or error}"
    return process, group, ""


def _spawn(settings: ServerSettings, control: int) -> subprocess.Popen[bytes]:
    command = [settings.python, "-I", "-S", "-B", "-c", _START, str(Path(__file__).parent), str(control)]
    who: dict[str, Any] = {}
    if settings.user is not None:
        who = {"user": settings.user, "group": settings.user, "extra_groups": []}
    null = subprocess.DEVNULL
    return subprocess.Popen(command, pass_fds=[control], env={}, cwd="/", stdin=null, stdout=null, stderr=null, **who)


def _told(settings: ServerSettings) -> dict[str, Any]:
    return {
        "namespaces": settings.namespaces,
        "landlock": settings.landlock,
        "tolerant": settings.tolerant,
        "site": [str(path) for path in settings.site],
        "store": str(settings.store) if settings.store else None,
        "slots": settings.slots,
    }


def _end(process: subprocess.Popen[bytes], group: ControlGroup | None) -> None:
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_TIMEOUT_S)
    if group is not None:
        group.remove()
