"""A Python that has imported Perdure and forks for each program that is asked for: `warm.py` says when and why.

Run with the path of a socket to listen on, and with what to import. It lives as long as its stdin is open.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LENGTH_BYTES = 8
"""Of a request: first its length, with the three streams beside it, then its parts: see `_request`.

It is answered by two lines: the id of the process, and at its end the exit code, negative for a signal.
"""


def main(path: str, *packages: str) -> dict[str, Any]:
    """Serve until the starter is gone; in each fork, return what is to be run."""
    gc.disable()  # looking for garbage in what is imported takes a tenth of the time
    _import(packages)
    gc.enable()
    store: Any = importlib.import_module("perdure.storage.stores.sqlite_store")
    store.connect = without_flushes(store.connect)
    # Nothing that is there now is ever collected: the forks share these pages.
    gc.collect()
    gc.freeze()
    running: dict[int, tuple[int, socket.socket]] = {}  # end of pipe that closes with the program -> (its id, client)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(32)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            clients = {client: pid for pid, client in running.values()}
            waited: list[Any] = [0, listener, *running, *clients]
            ready, _, _ = select.select(waited, [], [])
            if 0 in ready:
                os._exit(0)
            for left in clients.keys() & set(ready):  # nobody asks any more: it was killed, or waited long enough
                os.kill(clients[left], signal.SIGKILL)
            for end in running.keys() & set(ready):
                _ended(end, *running.pop(end))
            if listener in ready:
                client, _ = listener.accept()
                if request := _forked(client, running):
                    listener.close()
                    return request


def without_flushes(connect: Callable[..., Any]) -> Callable[..., Any]:
    """Open a file as `connect` does, and never wait for the disk, which takes a third of many a test's time.

    A program that is killed loses nothing by that. What a power cut leaves is shown by programs that start cold.
    """

    @functools.wraps(connect)
    def connect_without_flushes(*arguments: Any, **more: Any) -> Any:
        connection = connect(*arguments, **more)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    return connect_without_flushes


def _import(packages: Sequence[str]) -> None:
    """These, and what lies in them."""
    for name in packages:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
            importlib.import_module(module.name)


def _forked(client: socket.socket, running: dict[int, tuple[int, socket.socket]]) -> dict[str, Any] | None:
    """In the fork what it is to run, else nothing."""
    head, streams, _, _ = socket.recv_fds(client, LENGTH_BYTES, 3)
    length = int.from_bytes(head, "big")
    with client.makefile("rb") as told:
        text = told.read(length)
    if not text or len(text) < length:  # whoever asked was killed meanwhile
        client.close()
        for descriptor in streams:
            os.close(descriptor)
        return None
    end, life = os.pipe()
    if pid := os.fork():
        for descriptor in (life, *streams):
            os.close(descriptor)
        running[end] = pid, client
        _tell(client, pid)
        return None
    for other, (_, others) in running.items():
        os.close(other)
        others.close()
    os.close(end)
    client.close()
    request = _request(text)
    _become(request, streams)
    return request


def _request(text: bytes) -> dict[str, Any]:
    """Read module, folder, whether SIGINT is ignored, arguments after their number, and variables."""
    module, folder, ignores, count, *others = map(os.fsdecode, text.split(b"\0"))
    arguments, variables = others[: int(count)], others[int(count) :]
    return {
        "module": module,
        "folder": folder,
        "ignores": bool(ignores),
        "arguments": arguments,
        "environment": dict(variable.split("=", 1) for variable in variables),
    }


def _ended(end: int, pid: int, client: socket.socket) -> None:
    os.close(end)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with client:
        _tell(client, code)


def _tell(client: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # it is gone
        client.sendall(b"%d\n" % number)


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Streams, environment, folder, arguments and the reaction to SIGINT as a new process has them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN if request["ignores"] else signal.default_int_handler)
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
        os.close(stream)
    sys.path[: len(_python_path(os.environ))] = _python_path(request["environment"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = [request["module"], *request["arguments"]]
    sys.stdin = _text(0, sys.stdin)
    sys.stdout = _text(1, sys.stdout)
    sys.stderr = _text(2, sys.stderr)


def _python_path(environment: Mapping[str, str]) -> list[str]:
    """The folders that Python puts first into `sys.path` at its start."""
    return list(filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))


def _text(descriptor: int, before: Any) -> Any:
    """A standard stream, opened as Python opens it."""
    at_once = bool(descriptor and os.environ.get("PYTHONUNBUFFERED"))
    raw = open(descriptor, "wb" if descriptor else "rb", 0 if at_once else -1, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        raw,
        encoding=before.encoding,
        errors=before.errors,
        newline="\n" if descriptor else None,
        line_buffering=descriptor == 2 or raw.isatty(),
        write_through=at_once,
    )


def run(module: str) -> int:
    """The module as a program; its exit code."""
    if not hasattr(sys.modules.get(module), "__path__"):
        sys.modules.pop(module, None)  # it is not to run twice in one process
    try:
        if module.endswith(".py"):
            runpy.run_path(module, run_name="__main__")
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def leave(code: int) -> None:
    """The end of a process without taking apart all that was imported, which would take longer than most programs."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = code or 120  # as Python itself says that nobody reads
    os._exit(code)


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file, whose modules are nobody's
    leave(run(main(*sys.argv[1:])["module"]))
