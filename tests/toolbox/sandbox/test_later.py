"""Modules that are loaded when they are first used, and what the fork server holds because of that."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

import pytest

from perdure.toolbox.sandbox.inside.later import Later, import_later
from tests.toolbox.sandbox.cages import Cage

NAME = "a_module_for_later"
IDLE_KB = 25 << 10
"""The most that an idle worker may hold."""


@pytest.fixture
def later(tmp_path: Path) -> Iterator[Later]:
    """A module that is imported and not loaded; it counts how often it is."""
    Path(tmp_path, f"{NAME}.py").write_text(
        '"""What it is."""\nimport sys\nsys.loads_counted += 1\nvalue = 1\ndef read():\n    return value\n'
    )
    vars(sys)["loads_counted"] = 0
    found = PathFinder.find_spec(NAME, [str(tmp_path)])
    assert found is not None
    yield import_later(found)
    sys.modules.pop(NAME, None)
    del vars(sys)["loads_counted"]


def loads() -> int:
    return int(vars(sys)["loads_counted"])


def test_an_import_does_not_load_it_and_a_use_does_once(later: Later) -> None:
    module = importlib.import_module(NAME)
    assert (module, loads()) == (later, 0)

    assert (module.value, module.read(), loads()) == (1, 1, 1)
    assert type(module) is ModuleType


def test_what_is_set_on_it_or_deleted_from_it_is_set_and_deleted_after_loading(later: Later) -> None:
    """As in a module that was there from the start: its functions see it."""
    later.value = 2

    assert (later.read(), loads()) == (2, 1)

    del later.value

    assert not hasattr(later, "value")


def test_deleting_first_loads_it(later: Later) -> None:
    del later.value

    assert (hasattr(later, "value"), loads()) == (False, 1)


def test_listing_its_names_loads_it(later: Later) -> None:
    """For whoever looks around in it: `dir`, `inspect`, `help`."""
    assert {"value", "read"} <= set(dir(later))
    assert (dict(inspect.getmembers(later))["value"], loads()) == (1, 1)


def test_names_that_it_does_not_have_are_missing(later: Later) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        later.other  # noqa: B018


def test_threads_that_use_it_at_once_load_it_once(later: Later) -> None:
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(later.value)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (seen, loads()) == ([1] * 8, 1)


def test_one_that_fails_to_load_says_so_each_time(tmp_path: Path) -> None:
    Path(tmp_path, f"{NAME}.py").write_text("raise ImportError('not on this machine')")
    found = PathFinder.find_spec(NAME, [str(tmp_path)])
    assert found is not None
    later = import_later(found)
    try:
        for _ in range(2):
            with pytest.raises(ImportError, match="not on this machine"):
                later.value  # noqa: B018
    finally:
        del sys.modules[NAME]


def test_the_idle_fork_server_holds_no_library_for_encryption(cage: Cage) -> None:
    """It is large, and most calls never use it."""
    cage.run("1")
    pid = cage.sandbox.pid
    assert pid is not None

    maps = []
    for one in _below(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process of the call, which just ended
            maps.append(Path(f"/proc/{one}/maps").read_text())
    assert maps and not any("libssl" in text or "/_ssl" in text for text in maps)


def test_the_idle_fork_server_holds_little(cage: Cage) -> None:
    """It, the process before it and the one that waits for a job: most of their memory is the same pages."""
    cage.run("1")
    cage.wait(asyncio.sleep(0.1))  # until the next call's process waits
    pid = cage.sandbox.pid
    assert pid is not None

    assert sum(map(_pss_kb, _below(pid))) < IDLE_KB


@pytest.mark.parametrize("cage", ["root", "user", "root without namespaces", "user without namespaces"], indirect=True)
def test_code_finds_ssl_and_what_asyncio_does_with_it(cage: Cage) -> None:
    """Loaded by its first use, in the call, whichever way it is come to."""
    source = """
import asyncio, sys
from asyncio import base_events, selector_events

before = "_ssl" in sys.modules
again = asyncio.sslproto.SSLAgainErrors
import ssl
from ssl import SSLContext
import asyncio.sslproto as protocol
same = base_events.ssl is selector_events.ssl is ssl is protocol.ssl and protocol is base_events.sslproto
errors = again == (ssl.SSLWantReadError, ssl.SSLSyscallError)
(before, errors, same, type(ssl).__name__, ssl.create_default_context().check_hostname)
"""

    result = cage.run(source)

    assert result.value == [False, True, True, "module", True], result


def test_asyncio_speaks_tls_in_a_call(cage: Cage) -> None:
    """A handshake is begun over a pair of sockets, by code that never names `ssl`."""
    source = """
import asyncio, socket

async def hello():
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    begun = asyncio.create_task(asyncio.open_connection(sock=ours, ssl=True, server_hostname="example.org"))
    first = await loop.sock_recv(theirs, 3)
    begun.cancel()
    return first.hex()
"""

    result = cage.run(source, "hello")

    assert result.value == "160301", result  # a handshake's record of TLS


def _pss_kb(pid: int) -> int:
    """What a process holds, with its share of what others hold too."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))


def _below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(below for child in children for below in _below(int(child)))]
