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
    "acp.schema",
)

KILL = signal.SIGUSR1
"""SIGKILL reaches only the process that was started. This it passes on as SIGKILL, and ends so itself, afterwards."""


def killed(code: int) -> int:
    """The exit code of a program that KILL was sent to: it may have come before there was anything to pass it on to."""
    return -signal.SIGKILL if code == -KILL else code


# What is started: it imports next to nothing, its streams become those of the program, it passes signals on.
CLIENT = f"""
import json, os, signal, socket, sys
place, module, *arguments = sys.argv[1:]
ignores = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
order = dict(module=module, arguments=arguments, environment=dict(os.environ), folder=os.getcwd(), ignores=ignores)
text = json.dumps(order).encode()
server = socket.socket(socket.AF_UNIX)
server.connect(place)
socket.send_fds(server, [len(text).to_bytes({LENGTH_BYTES}, "big")], [0, 1, 2])
server.sendall(text)
for stream in (0, 1, 2):
    os.close(stream)
told = server.makefile("rb")
program = int(told.readline())
signals = dict(SIGTERM="SIGTERM", {KILL.name}="SIGKILL", **({{}} if ignores else dict(SIGINT="SIGINT")))
for sent, passed_on in signals.items():
    number = getattr(signal, passed_on)
    signal.signal(getattr(signal, sent), lambda *_, number=number: os.kill(program, number))
code = int(told.readline() or 70)
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
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
