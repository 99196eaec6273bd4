"""The MCP server of `tests/support` as a program, over stdin and stdout or over HTTP."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.warm import KILL, warm

COMMAND = sys.executable
_PROGRAM = Path(__file__).parents[2] / "support" / "mcp_server.py"


def child_arguments() -> Sequence[str]:
    """The arguments of Python that start the server."""
    return ("-P", str(_PROGRAM))


def warm_command() -> str:
    """A command that starts the server without the second that importing the SDK takes."""
    return str(warm(str(_PROGRAM), os.environ))


class Running:
    """A server that answers over HTTP on this machine; it can be killed and started again at the same place."""

    def __init__(self, option: str, path: str, state: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._arguments = (option, str(self.port), "--state", str(state))
        self.url = f"http://127.0.0.1:{self.port}{path}"
        self.state = state
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [warm_command(), *self._arguments],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.02)
        raise AssertionError("the MCP server did not start")

    def kill(self) -> None:
        self.process.send_signal(KILL)
        self.process.wait()


@contextlib.contextmanager
def running(option: str, path: str, state: Path) -> Iterator[Running]:
    """A running server, which is ended with the context."""
    server = Running(option, path, state)
    try:
        yield server
    finally:
        server.kill()


def wait_until_gone(pid: int) -> None:
    """Wait until no process of this number runs."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} is still there")
