"""What the kernel holds for a call, which no limit of a process counts: buffers, tables, queues.

Every attempt runs inside the sandbox under test, and takes a hundred megabytes or so at most, for a moment.
"""

from __future__ import annotations

import pytest

from perdure.core.tools.sandbox import SandboxLimits
from tests.toolbox.sandbox.attempts import outcomes_of
from tests.toolbox.sandbox.cages import Cage
from tests.toolbox.sandbox.conftest import options_of

SERVERS = ["root", "user", "root without namespaces", "user without namespaces"]
WITH_NAMESPACES = SERVERS[:2]

HELD_MB = {"sockets": 16, "pipes": 4}
"""What `docs/sandbox.md` says that a process may hold in buffers at most."""

SLACK = 1.5


def option(number: int) -> str:
    return f"a, b = socket.socketpair()\nreturn a.setsockopt(socket.SOL_SOCKET, {number}, 1 << 20)"


REFUSED = {
    "a larger buffer to send from": option(7),
    "a larger buffer to receive in": option(8),
    "a larger buffer to send from, by force": option(32),
    "a larger buffer to receive in, by force": option(33),
    "memory kept for a socket": option(73),
    "pages sent without a copy": option(60),
    "a larger pipe": "return fcntl.fcntl(os.pipe()[0], 1031, 1 << 20)",
    "pages put into a pipe": "return system_call('vmsplice', os.pipe()[1], 0, 0, 0)",
    "pages of a pipe, doubled": "return system_call('tee', os.pipe()[0], os.pipe()[1], 1, 0)",
    "pages of a file in a pipe": "return system_call('splice', os.open(library, 0), 0, os.pipe()[1], 0, 1, 0)",
    "a hundred open files": "return [os.dup(0) for _ in range(100)]",
    "a higher limit of open files": "return resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))",
    "locks without end": (
        "return fcntl.fcntl(open(library), fcntl.F_SETLK + 31, struct.pack('hhqqi4x', 0, 0, 1, 1, 0))"
    ),
    "memory that is shared without a file": "return mmap.mmap(-1, 4096)",
    "memory that is shared through a device": "return mmap.mmap(os.open('/dev/zero', os.O_RDWR), 4096)",
    "memory that grows by itself": "return mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100)",
    "locked memory": "return system_call('mlock', 0, 4096)",
    "a queue of messages of System V": "return system_call('msgget', 0, 0o1600)",
    "semaphores of System V": "return system_call('semget', 0, 1, 0o1600)",
    "a queue of messages": "return system_call('mq_open', b'/queue', 0o102, 0o600, 0)",
    "secret memory": "return system_call('memfd_secret', 0)",
    "queued signals": "return system_call('rt_sigqueueinfo', os.getpid(), 18, bytes(128))",
    "queued signals of a thread": "return system_call('rt_tgsigqueueinfo', os.getpid(), os.getpid(), 18, bytes(128))",
    "a key that is asked for": "return system_call('request_key', b'user', b'x', 0, 0)",
}

FILL = """
import fcntl, os, socket, struct

def pipes():
    '''What one process gets into pipes, in bytes; it stops at 48 MiB. The end to write to need not stay open.'''
    held, ends = 0, []
    try:
        while held < 48 << 20:
            end, write = os.pipe()
            ends.append(end)
            try:
                fcntl.fcntl(write, 1031, 1 << 20)
            except OSError:
                pass
            os.set_blocking(write, False)
            try:
                while held < 48 << 20:
                    held += os.write(write, bytes(32768))
            except BlockingIOError:
                os.close(write)
    except OSError:
        pass
    return held, ends

def sockets():
    '''What one process gets into sockets, in bytes; it stops at 48 MiB.'''
    held, pairs = 0, []
    try:
        while held < 48 << 20:
            pairs.append(socket.socketpair())
            for end in pairs[-1]:
                try:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                except OSError:
                    pass
                end.setblocking(False)
                try:
                    while held < 48 << 20:
                        held += end.send(bytes(32768))
                except BlockingIOError:
                    pass
    except OSError:
        pass
    return held, pairs

def run(fill, processes):
    fill = globals()[fill]
    filled, tell = os.pipe()
    stay, leave = os.pipe()
    for _ in range(processes):
        if os.fork() == 0:
            os.close(leave)
            held, kept = fill()
            os.write(tell, struct.pack('q', held))
            os.read(stay, 1)
            os._exit(0)
    found = [struct.unpack('q', os.read(filled, 8))[0] for _ in range(processes)]
    return [min(found), sum(found)]
"""

TABLES = """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for number in range(14_000):  # a page in each gigabyte, read only: two pages of tables, and none of its own
    address = (number + 2048) << 30
    if libc.mmap(address, 4096, 1, 0x100022, -1, 0) == address:
        ctypes.string_at(address, 1)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def outcomes(cage: Cage) -> dict[str, tuple[str, str]]:
    return outcomes_of(cage, REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize("cage", SERVERS, indirect=True)
@pytest.mark.parametrize("name", REFUSED)
def test_buffers_and_queues_stay_as_they_are(outcomes: dict[str, tuple[str, str]], name: str) -> None:
    assert outcomes[name][0] == "refused", outcomes[name]


@pytest.mark.parametrize("cage", WITH_NAMESPACES, indirect=True)
@pytest.mark.parametrize("kind", HELD_MB)
def test_what_buffers_hold_stays_within_what_the_docs_say(cage: Cage, kind: str) -> None:
    """Even in the moment before it is weighed, and with larger buffers where they can be had."""
    processes = 5
    arguments = {"fill": kind, "processes": processes}
    result = cage.run(FILL, "run", arguments=arguments, limits=SandboxLimits(wall_s=10))
    assert result.status == "success", result

    least, total = result.value

    assert least > 1 << 20  # they do fill
    assert total <= SLACK * processes * (HELD_MB[kind] << 20)


@pytest.mark.parametrize("cage", WITH_NAMESPACES, indirect=True)
def test_sockets_count_as_memory(cage: Cage) -> None:
    """As if they were full; those that are on their way between processes too, which have no descriptor."""
    source = (
        "import os, socket, time\nmade = []\n"
        "for _ in range(10):\n    if os.fork() == 0:\n"
        "        way, back = socket.socketpair()\n"
        "        try:\n            while True:\n"
        "                pair = socket.socketpair()\n"
        "                if len(made) < 5:\n                    socket.send_fds(way, [b'x'], [pair[0].fileno()])\n"
        "                    pair[0].close()\n"
        "                made.append(pair)\n"
        "        except OSError:\n            time.sleep(60)\n"
        "time.sleep(60)"
    )

    result = cage.run(source, limits=SandboxLimits(wall_s=10, memory_mb=128))

    assert (result.status, "need more memory than 128 MiB" in result.error) == ("memory", True)


@pytest.mark.slow
@pytest.mark.parametrize("cage", SERVERS, indirect=True)
def test_page_tables_count_as_memory(cage: Cage) -> None:
    """Pages that are only read take none themselves, but each may need two pages of tables."""
    result = cage.run(TABLES, limits=SandboxLimits(wall_s=10, memory_mb=96))

    assert (result.status, "need more memory than 96 MiB" in result.error) == ("memory", True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WITH_NAMESPACES)
def test_connections_within_a_call_have_small_buffers(kind: str) -> None:
    """The kernel would let those of TCP grow to tens of megabytes. Connections nobody accepts are few."""
    source = (
        "import socket\n"
        "def f():\n"
        "    listener = socket.create_server(('127.0.0.1', 0), backlog=4096)\n"
        "    sender = socket.create_connection(listener.getsockname())\n"
        "    held, receiver = 0, listener.accept()[0]\n"
        "    sender.settimeout(0.1)\n"
        "    try:\n        while held < 32 << 20:\n            held += sender.send(bytes(65536))\n"
        "    except TimeoutError:\n        pass\n"
        "    unheard = []\n"
        "    try:\n        for _ in range(40):\n"
        "            made = socket.socket()\n            made.settimeout(0.1)\n"
        "            made.connect(listener.getsockname())\n            unheard.append(made)\n"
        "    except TimeoutError:\n        pass\n"
        "    return [held, len(unheard)]\n"
    )
    cage = Cage(**options_of(kind), network=True)
    try:
        result = cage.run(source, "f", network=("*",))
    finally:
        cage.close()

    assert result.status == "success", result
    held_bytes, unheard = result.value
    assert 64 << 10 < held_bytes < 1 << 20
    assert unheard < 20


@pytest.mark.parametrize("cage", WITH_NAMESPACES, indirect=True)
def test_ordinary_programs_have_room(cage: Cage) -> None:
    """A pool, an event loop with programs, a pipe for each of many threads: what open files and sockets are for."""
    source = (
        "import asyncio, multiprocessing, sys\nfrom multiprocessing import shared_memory\n"
        "async def program():\n"
        "    pipe = asyncio.subprocess.PIPE\n"
        "    made = [await asyncio.create_subprocess_exec(sys.executable, '-I', '-S', '-c', 'print(1)', stdin=pipe,"
        " stdout=pipe, stderr=pipe) for _ in range(3)]\n"
        "    return sum([int((await one.communicate())[0]) for one in made])\n"
        "def f():\n"
        "    shared = shared_memory.SharedMemory(create=True, size=40 << 20)\n    shared.buf[:] = bytes(40 << 20)\n"
        "    with multiprocessing.get_context('fork').Pool(6) as pool:\n        found = pool.map(abs, [-1] * 20)\n"
        "        shared.close()\n        shared.unlink()\n"
        "    return [sum(found), asyncio.run(program())]\n"
    )

    assert cage.run(source, "f").value == [20, 3]
