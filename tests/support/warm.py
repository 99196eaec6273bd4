"""Programs in processes of their own that start in milliseconds: forks of a Python that has imported Perdure.

What a program prints, reads, leaves behind and exits with is what it would be from a cold start, which costs a second
of CPU, nearly all of it imports. Of what is about starting itself (imports, signals, terminals), one test of each
kind takes a cold one.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.at_end import at_end
from tests.support.warm_server import LENGTH_BYTES

SERVER = Path(__file__).parent / "warm_server.py"
SHARED = (
    *("perdure.cli", "perdure.testing", "perdure.features.extractive.model", "typer._adapters", "perdure.server"),
    *("perdure.providers.openai_chat", "uvicorn.protocols.http.httptools_impl", "uvloop", "mcp.server.mcpserver"),
    *("acp.schema", "perdure.toolbox.sandbox", "perdure.toolbox.builtin.web_search", "platformdirs.unix"),
)

KILL = signal.SIGUSR1
"""SIGKILL reaches only the process that was started. This it passes on as SIGKILL, and ends so itself, afterwards."""


def killed(code: int) -> int:
    """The exit code of a program that KILL was sent to: it may have come before there was anything to pass it on to."""
    return -signal.SIGKILL if code == -KILL else code


# What is started: its streams become those of the program, it passes signals on. It imports nothing that is not built
# in: `os`, `json`, `signal` and `socket` take longer to import than many a program takes to run.
CLIENT = f"""
import posix, sys, _signal, _socket
place, module, *arguments = [part.encode(sys.getfilesystemencoding(), "surrogateescape") for part in sys.argv[1:]]
ignores = _signal.getsignal(_signal.SIGINT) == _signal.SIG_IGN
variables = [name + b"=" + value for name, value in posix.environ.items()]
order = b"\\0".join([module, posix.getcwdb(), b"ignores" * ignores, b"%d" % len(arguments), *arguments, *variables])
server = _socket.socket(_socket.AF_UNIX)
server.connect(place)
streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in (0, 1, 2))
rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)]
server.sendmsg([len(order).to_bytes({LENGTH_BYTES}, "big")], rights)
server.sendall(order)
for stream in (0, 1, 2):
    posix.close(stream)
told = open(server.fileno(), "rb", closefd=False)
program = int(told.readline())
signals = dict(SIGTERM="SIGTERM", {KILL.name}="SIGKILL", **({{}} if ignores else dict(SIGINT="SIGINT")))
for sent, passed_on in signals.items():
    number = getattr(_signal, passed_on)
    _signal.signal(getattr(_signal, sent), lambda *_, number=number: posix.kill(program, number))
code = int(told.readline() or 70)
if code < 0:
    if -code != _signal.SIGKILL:
        _signal.signal(-code, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -code)
posix._exit(code)
"""


def warm(module: str, environment: Mapping[str, str]) -> Path:
    """A program that does what `python -m MODULE` does in this environment; its name is the module's.

    A path that ends in .py is a module too: it is run as `python FILE` would.
    """
    return _program(module, _server(frozenset(filter(_is_read_at_start, environment.items()))))


def _is_read_at_start(variable: tuple[str, str]) -> bool:
    """Whether it is Python's own start that reads it: a program with another value needs another server.

    PYTHONPATH needs none: the fork puts its folders in place.
    """
    name, _ = variable
    return name != "PYTHONPATH" and (name.startswith(("PYTHON", "LC_")) or name == "LANG")


@functools.cache
def _program(module: str, folder: Path) -> Path:
    program = folder / Path(module).name
    words = (sys.executable, "-IS", folder / "client.py", folder / "socket", module)
    program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


@functools.cache
def _server(variables: frozenset[tuple[str, str]]) -> Path:
    """The folder of a running server, which ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-warm-"))
    (folder / "client.py").write_text(CLIENT, encoding="utf-8")
    server = subprocess.Popen(
        [sys.executable, SERVER, folder / "socket", *SHARED],
        env={name: value for name, value in os.environ.items() if not _is_read_at_start((name, value))}
        | dict(variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # the interrupt key is for the tests; they end, and so does this
    )
    assert server.stdin is not None
    assert server.stdout is not None
    at_end.callback(shutil.rmtree, folder)
    at_end.callback(server.wait)
    at_end.callback(server.stdin.close)
    with server.stdout as told:
        assert told.readline() == b"ready\n", "the server of warm programs did not start"
    return folder
