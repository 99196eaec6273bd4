"""The fork server as a process of this one: start it, send it calls, notice its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perdure.toolbox.sandbox.cgroups import ControlGroup

START_TIMEOUT_S = 20.0
END_TIMEOUT_S = 2.0
MESSAGE_BYTES = 64 << 10
FULL_RETRY_S = 0.001
"""The wait before a message is sent again that did not fit into the socket's buffer."""

_START = "import sys; sys.path.insert(0, sys.argv[1]); from inside.zygote import main; main(int(sys.argv[2]))"


class StartFailed(Exception):
    """The fork server did not start; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of a fork server. It gets them as JSON.

    Args:
        python: the interpreter.
        user: the user that runs it, for a server that is root; None: this process's user.
        namespaces, landlock: whether to use them.
        tolerant: measures that the kernel refuses are left out.
        site: folders of packages that code may import from.
        store: the folder of installed requirement sets.
        slots: how many calls it can have at a time.
        group_parent: the control group in which it gets one of its own; None: there is none.
        memory_bytes, processes: the limits of that group, for all calls together.
    """

    python: str
    user: int | None = None
    namespaces: bool = True
    landlock: bool = True
    tolerant: bool = False
    site: tuple[Path, ...] = ()
    store: Path | None = None
    slots: int = 16
    group_parent: Path | None = None
    memory_bytes: int = 0
    processes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a fork server can use: namespaces, the version of Landlock (0: none), a separate user id for each call."""

    namespaces: bool
    landlock: int
    own_users: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CallExit:
    """How a call's process ended.

    Args:
        code: its exit code; negative: the signal that ended it; None: not known, the fork server is gone.
        failure: why there never was such a process; empty if there was.
        over_memory: it was ended because its processes took too much memory together.
    """

    code: int | None = None
    cpu_s: float = 0.0
    failure: str = ""
    over_memory: bool = False


class ForkServer:
    """A running fork server. It belongs to the event loop that started it. `group`: the control group around it and its
    calls; `no_group`: why it has none, where one was wanted."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        control: socket.socket,
        facts: ServerFacts,
        *,
        group: ControlGroup | None = None,
        no_group: str = "",
    ) -> None:
        self._process, self._group, self._control = process, group, control
        self.facts, self.no_group = facts, no_group
        self._exits: dict[int, asyncio.Future[CallExit]] = {}  # by number of the call
        self._last_number = 0
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(control, self._receive)
        self.alive = True

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls, settings: ServerSettings) -> ForkServer:
        """Start a fork server and wait until it is ready. Raises: StartFailed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            process, group, no_group = await asyncio.to_thread(_spawn_in_group, settings, theirs.fileno())
        except (OSError, subprocess.SubprocessError) as error:
            ours.close()
            raise StartFailed(f"{settings.python} could not be started: {error}") from None
        finally:
            theirs.close()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await loop.sock_sendall(ours, json.dumps(asdict(settings), default=str).encode())
                message = await loop.sock_recv(ours, MESSAGE_BYTES)
            answer = json.loads(message) if message else {"failure": "the fork server ended"}
            if "failure" in answer:
                raise StartFailed(str(answer["failure"]))
            return cls(process, ours, ServerFacts(**answer), group=group, no_group=no_group)
        except BaseException as error:
            ours.close()
            await asyncio.to_thread(_end, process, group)
            if isinstance(error, (OSError, TimeoutError, ValueError)):
                why = f"the fork server did not answer: {error or type(error).__name__}"
                raise StartFailed(why) from None
            raise

    async def fork(self, request: Mapping[str, Any], pipes: Sequence[int]) -> tuple[int, asyncio.Future[CallExit]]:
        """Start a call's process, which gets these pipes. Returns (number of the call, future of its exit)."""
        self._last_number += 1
        number = self._last_number
        exit_: asyncio.Future[CallExit] = self.loop.create_future()
        self._exits[number] = exit_
        message = json.dumps({**request, "call": number}).encode()
        while self.alive:
            try:
                socket.send_fds(self._control, [message], list(pipes))
                break
            except BlockingIOError:
                await asyncio.sleep(FULL_RETRY_S)
            except OSError:
                self._disconnect()
        return number, exit_

    def kill(self, number: int) -> None:
        """End the call of this number and all that it has started. It may have ended already."""
        if self.alive and number in self._exits:
            try:
                self._control.send(json.dumps({"kill": number}).encode())
            except BlockingIOError:
                self.loop.call_later(FULL_RETRY_S, self.kill, number)
            except OSError:
                self._disconnect()

    async def close(self) -> None:
        """End the fork server and all its calls, and wait until its process is gone."""
        self._disconnect()
        await asyncio.to_thread(_end, self._process, self._group)

    def abandon(self) -> None:
        """End the fork server when its event loop is closed already."""
        self._control.close()
        _end(self._process, self._group)

    def _receive(self) -> None:
        """Take a message of the fork server, which says how a call has ended, and resolve the call's future."""
        try:
            message = self._control.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._disconnect()
            return
        facts = json.loads(message)
        exit_ = self._exits.pop(facts.pop("call"), None)
        if exit_ is not None and not exit_.done():
            exit_.set_result(CallExit(**facts))

    def _disconnect(self) -> None:
        """Close the connection to the fork server, which ends it; every open call ends without a result."""
        if not self.alive:
            return
        self.alive = False
        self.loop.remove_reader(self._control)
        self._control.close()  # the fork server and all its calls end with this
        exits, self._exits = self._exits, {}
        for exit_ in exits.values():
            if not exit_.done():
                exit_.set_result(CallExit())


def _spawn_in_group(settings: ServerSettings, control: int) -> tuple[subprocess.Popen[bytes], ControlGroup | None, str]:
    """(process of a new fork server, its control group, why it has none). `control` is the descriptor of its socket,
    where it waits for its settings, so it has started nothing yet. Raises: OSError, SubprocessError."""
    # Without Perdure's modules and environment.
    command = [settings.python, "-I", "-S", "-B", "-c", _START, str(Path(__file__).parent), str(control)]
    user: dict[str, Any] = {}
    if settings.user is not None:
        user = {"user": settings.user, "group": settings.user, "extra_groups": []}
    null = subprocess.DEVNULL
    process = subprocess.Popen(
        command, pass_fds=[control], env={}, cwd="/", stdin=null, stdout=null, stderr=null, **user
    )
    if settings.group_parent is None:
        return process, None, ""
    group = None
    try:
        parent, memory_bytes = settings.group_parent, settings.memory_bytes
        group = ControlGroup.create(parent, memory_bytes=memory_bytes, processes=settings.processes)
        group.add_process(process.pid)
    except OSError as error:
        if group is not None:
            group.remove()
        return process, None, f"{settings.group_parent}: {error.strerror or error}"
    return process, group, ""


def _end(process: subprocess.Popen[bytes], group: ControlGroup | None) -> None:
    """Wait for a fork server whose connection was closed, kill it if that takes long; remove its group."""
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_TIMEOUT_S)
    if group is not None:
        group.remove()
