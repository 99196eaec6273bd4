"""One call as the server sees it: the pipes to its process, what comes through them, and its end; and its result, built
of that. All of it is the code's own claim, so all is checked."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, cast, get_args

from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.core.tools.arguments import refuse_constant
from perdure.core.tools.sandbox import SandboxJob, SandboxLimits, SandboxResult, SandboxStatus, ToolFrame
from perdure.toolbox.sandbox.fork_server import CallExit, ForkServer
from perdure.toolbox.sandbox.inside.frames import HEADER
from perdure.toolbox.sandbox.inside.results import CONTAINERS_MAX, DEPTH_MAX, NotJson, clean, to_json

ERROR_CHARS = 5_000
FRAMES_MAX = 20
LINE_CHARS = 200
EXTRA_BYTES, EXTRA_CONTAINERS, EXTRA_DEPTH = 1 << 20, 1_000, 5
"""The most that an answer holds beside its value: an error, a traceback, and the text of each changed block."""

BYTES_PER_CHARACTER = 4
NOTICE_BYTES = 4_096
CPU_SLACK = 0.5
"""If a killed process used this part of its processor time, that is taken for the reason."""

_STATUSES = frozenset(get_args(SandboxStatus))


def answer_bytes_max(job: SandboxJob) -> int:
    """The most bytes that an answer to a job has, if the code does not forge it: result, changed blocks, an error."""
    blocks = (job.agent or {}).get("blocks") or {}
    return 2 * job.limits.result_bytes + EXTRA_BYTES * (1 + len(blocks))


def output_bytes_max(limits: SandboxLimits) -> int:
    """How many bytes the code can print before `print` throws away the rest."""
    return limits.output_chars * BYTES_PER_CHARACTER + NOTICE_BYTES


def decode_output(data: bytes | bytearray, limits: SandboxLimits) -> str:
    """Printed bytes as valid text within the limit; a text that is cut says so at its end."""
    text = clean(data.decode(errors="replace"))
    if len(text) <= limits.output_chars:
        return text
    return f"{text[: limits.output_chars]}\n[cut here: only the first {limits.output_chars:,} characters are kept]"


def parse_result(body: bytes, job: SandboxJob) -> SandboxResult:
    """The result that the bytes of an answer claim, checked; one of status `error`, if they are no answer."""
    # An answer that is not forged keeps these limits: `to_json` has held its value to the same.
    limits = JsonLimits(
        size_bytes=answer_bytes_max(job), depth=DEPTH_MAX + EXTRA_DEPTH, containers=CONTAINERS_MAX + EXTRA_CONTAINERS
    )
    try:
        claimed = parse_json(body, limits, parse_constant=refuse_constant)
        status, error, frames = claimed["status"], claimed.get("error", ""), claimed.get("frames", [])
        if status not in _STATUSES or not isinstance(error, str):
            raise ValueError(status)
        value = to_json(claimed.get("value"), bytes_max=job.limits.result_bytes) if status == "success" else None
        return SandboxResult(
            status=cast("SandboxStatus", status),
            value=value,
            error=clean(error)[:ERROR_CHARS] if status != "success" else "",
            traceback=tuple(_tool_frame(*frame) for frame in frames[:FRAMES_MAX]),
            agent=_changed_blocks(claimed.get("agent"), job) if status == "success" else None,
        )
    except NotJson as error:
        return SandboxResult(status="error", error=str(error))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return SandboxResult(status="error", error="the code sent an answer that can't be read, past its return value")


def result_of_exit(end: CallExit, limits: SandboxLimits, *, answered: bool) -> SandboxResult:
    """Return the result of a call whose process ended without a readable answer; `answered`: one too long."""
    code = end.code
    if answered:
        return SandboxResult(status="crash", error="the code sent more than an answer can hold, and was stopped")
    if end.failure or code is None:
        why = end.failure or "the sandbox was restarted"
        return SandboxResult(status="crash", error=f"the code was interrupted: {why}; try once more")
    if end.over_memory:
        error = (
            f"its processes together need more memory than {limits.memory_mb:,} MiB, with their page tables, and"
            " sockets as if they were full"
        )
        return SandboxResult(status="memory", error=error)
    cpu_s = limits.wall_s if limits.cpu_s is None else limits.cpu_s
    if code == -signal.SIGKILL and end.cpu_s >= CPU_SLACK * cpu_s:
        error = f"it used all the processor time it may have, {cpu_s:g} s, and was stopped"
        return SandboxResult(status="timeout", error=error)
    if code == -signal.SIGKILL:
        return SandboxResult(
            status="memory", error="its process was killed, most likely because the machine's memory ran out"
        )
    if code == -signal.SIGBUS:  # pages of a mapped file that there is no room for
        error = (
            f"its process crashed with SIGBUS, most likely because its work folder was full: files and shared memory"
            f" together may take {limits.disk_mb:,} MiB"
        )
        return SandboxResult(status="crash", error=error)
    if code < 0:
        name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
        return SandboxResult(status="crash", error=f"its process crashed with {name}")
    return SandboxResult(status="crash", error=f"its process ended before it returned a result (exit code {code})")


def _tool_frame(line: object, function: object, text: object) -> ToolFrame:
    """A frame of a traceback that an answer claims, checked and shortened. Raises: TypeError."""
    if not (isinstance(line, int) and isinstance(function, str) and isinstance(text, str)):
        raise TypeError
    return ToolFrame(line, clean(function)[:LINE_CHARS], clean(text)[:LINE_CHARS])


def _changed_blocks(claimed: object, job: SandboxJob) -> Mapping[str, str] | None:
    """Label -> new text of the job's blocks that an answer claims were changed; None: none were. Raises: TypeError."""
    before: Mapping[str, Any] = (job.agent or {}).get("blocks") or {}
    if claimed is None or not before:
        return None
    if not isinstance(claimed, dict):
        raise TypeError
    changed = {
        label: clean(value)
        for label, value in claimed.items()
        if label in before and isinstance(value, str) and value != before[label]
    }
    return changed or None


READ_BYTES = 64 << 10
READS_PER_TURN = 4
"""After so many reads of one pipe, the event loop goes on with other work, even if more is there."""


class TooMuchOutput(Exception):
    """A call printed more bytes than it may."""


class PipeReader:
    """Reads a pipe as it fills, by its end `fd`, which is closed with this. `data` holds the first `bytes_kept` bytes,
    what follows is counted in `total` only. `on_change` is called after each read, and at the end of the pipe."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fd: int, bytes_kept: int, on_change: Callable[[], None]
    ) -> None:
        self._loop, self._fd, self._on_change = loop, fd, on_change
        self.bytes_kept = bytes_kept
        self.data = bytearray()
        self.total = 0
        self.ended = False
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._on_readable)

    def read_available(self) -> None:
        """Read what is in the pipe already, without waiting."""
        while not self.ended and self.total <= 2 * self.bytes_kept and self._read():
            continue

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _on_readable(self) -> None:
        """Read a few times, since the event loop found the pipe readable."""
        for _ in range(READS_PER_TURN):
            if self.ended or not self._read():
                break
        self._on_change()

    def _read(self) -> bool:
        """Read once. False: the pipe is empty, or has ended."""
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
        self.data += part[: max(0, self.bytes_kept + HEADER.size - len(self.data))]
        return True


class JobCall:
    """A process that is forked for one call, with its pipes.

    Args:
        slot: its number among the processes of its time, by which it has a user id.
        answer_bytes, output_bytes: how much is kept of the answer, and of each output.
        network: whether it gets a network, whose proxy this side serves.
    Raises: OSError: no more pipes can be opened.
    """

    def __init__(
        self, server: ForkServer, slot: int, answer_bytes: int, output_bytes: int, *, network: bool = False
    ) -> None:
        self.server, self.slot = server, slot
        self._changed = asyncio.Event()
        channel = socket.socketpair() if network else ()
        (job, self._job_fd), (answer_fd, answer), (out_fd, out), (err_fd, err) = _open_pipes(4)
        self._child_fds = [job, answer, out, err]
        self._channel = channel[0] if channel else None
        if channel:
            channel[0].setblocking(False)
            self._child_fds.append(channel[1].detach())
        self.answer = PipeReader(server.loop, answer_fd, answer_bytes, self._changed.set)
        self.stdout = PipeReader(server.loop, out_fd, output_bytes, self._changed.set)
        self.stderr = PipeReader(server.loop, err_fd, output_bytes, self._changed.set)
        self.number = -1
        self.exit: asyncio.Future[CallExit] = server.loop.create_future()

    async def fork(self, request: Mapping[str, Any]) -> None:
        """Have the fork server start the process; `request` is what it has to know of the job."""
        try:
            self.number, self.exit = await self.server.fork({**request, "slot": self.slot}, self._child_fds)
        finally:
            for fd in self._child_fds:
                os.close(fd)

    async def send_job(self, data: bytes, file: Path | None = None) -> None:
        """Write the job to its pipe, and after it the file. A process that has ended is no error here.

        Raises: OSError: the file can't be read.
        """
        try:
            os.set_blocking(self._job_fd, False)
            await self._write(data)
            if file is not None:
                with file.open("rb") as source:
                    while part := source.read(READ_BYTES):
                        await self._write(part)
        except BrokenPipeError:
            pass
        finally:
            self._close_job_pipe()

    def receive_listener(self) -> socket.socket:
        """The listening socket in the call's network, for its proxy. Raises: OSError: there is none."""
        assert self._channel is not None
        _, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
        if not descriptors:
            raise OSError("the call has no network")
        return socket.socket(fileno=descriptors[0])

    async def read_frame(self, *, output_max: int, lines: Callable[[str], None] | None = None) -> bytes | None:
        """The next message of the answer pipe; None: the pipe ended before, or the message is too long.

        Args:
            lines: gets each line of stdout.
        Raises: TooMuchOutput: more than `output_max` bytes came through stdout or stderr.
        """
        line_start = 0
        while True:
            self._changed.clear()
            while lines is not None and (end := self.stdout.data.find(b"\n", line_start)) >= 0:
                lines(self.stdout.data[line_start:end].decode(errors="replace"))
                line_start = end + 1
            if (frame := self._pop_frame()) is not None:
                return frame
            if self.answer.ended or self._frame_length() > self.answer.bytes_kept:
                return None
            if max(self.stdout.total, self.stderr.total) > output_max:
                raise TooMuchOutput
            await self._changed.wait()

    def kill(self) -> None:
        """End the process and all that it started."""
        self.server.kill(self.number)

    def close(self) -> None:
        """Close the pipes, and kill the process if it still runs."""
        self._close_job_pipe()
        if self._channel is not None:
            self._channel.close()
        for pipe in (self.answer, self.stdout, self.stderr):
            pipe.close()
        if not self.exit.done():
            self.kill()

    def _close_job_pipe(self) -> None:
        """Close the pipe of the job, if it is open: the process then reads its end."""
        if self._job_fd >= 0:
            os.close(self._job_fd)
            self._job_fd = -1

    def _frame_length(self) -> int:
        """The length that the header of the current message announces; 0: the header is not there yet."""
        data = self.answer.data
        return int(HEADER.unpack_from(data)[0]) if len(data) >= HEADER.size else 0

    def _pop_frame(self) -> bytes | None:
        """Take the current message out of the buffer; None: it is not complete."""
        data = self.answer.data
        end = HEADER.size + self._frame_length()
        if not HEADER.size < end <= len(data):
            return None
        frame = bytes(data[HEADER.size : end])
        del data[:end]
        return frame

    async def _write(self, data: bytes) -> None:
        """Write all of the data to the job pipe. Raises: BrokenPipeError."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._job_fd, view) :]
            except BlockingIOError:
                writable = asyncio.Event()
                self.server.loop.add_writer(self._job_fd, writable.set)
                try:
                    await writable.wait()
                finally:
                    self.server.loop.remove_writer(self._job_fd)


def _open_pipes(count: int) -> list[tuple[int, int]]:
    """(end to read, end to write) of new pipes. Raises: OSError: they can't all be opened; then none stays open."""
    pipes: list[tuple[int, int]] = []
    try:
        pipes.extend(os.pipe() for _ in range(count))
    except OSError:
        for fd in chain.from_iterable(pipes):
            os.close(fd)
        raise
    return pipes
