"""What one call could tell another one through what both of them see, or do to it: nothing but by side channels.

Every attempt runs inside the sandbox under test, and nowhere else.
"""

from __future__ import annotations

import asyncio

import pytest

from perdure.core.tools.sandbox import SandboxJob, SandboxResult
from tests.toolbox.sandbox.attempts import outcomes_of
from tests.toolbox.sandbox.cages import LIMITS, Cage

SERVERS = ["root", "user", "root without namespaces", "user without namespaces"]
WITH_NAMESPACES = SERVERS[:2]

REFUSED = {
    "a library, locked alone": "return fcntl.flock(open(library), fcntl.LOCK_EX | fcntl.LOCK_NB)",
    "a library, locked with others": "return fcntl.flock(open(library), fcntl.LOCK_SH | fcntl.LOCK_NB)",
    "a folder of libraries, locked": "return fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)",
    "the device for nothing, locked": "return fcntl.flock(open('/dev/null'), fcntl.LOCK_EX | fcntl.LOCK_NB)",
    "a library, locked by its open file": "return fcntl.fcntl(open(library), 37, struct.pack('hhqqi4x', *[0] * 5))",
    "a library, locked and waited for": "return fcntl.fcntl(open(library), 38, struct.pack('hhqqi4x', *[0] * 5))",
    "a lease on a library": "return fcntl.fcntl(open(library), fcntl.F_SETLEASE, fcntl.F_RDLCK)",
    "a folder of libraries, watched by F_NOTIFY": (
        "return fcntl.fcntl(os.open(folder, os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS)"
    ),
    "a folder of libraries, watched by inotify": (
        "made = libc.inotify_init1(0)\nif made < 0:\n    raise OSError(ctypes.get_errno(), 'inotify')\nreturn made"
    ),
    "a folder of libraries, watched by fanotify": "return system_call('fanotify_init', 0, 0)",
    "a mark on a library's inode": "return fcntl.fcntl(open(library), 1036, struct.pack('Q', 2))",
    "a mark on a library's open file": "return fcntl.fcntl(open(library), 1038, struct.pack('Q', 2))",
    "a library, put out of the page cache": "return os.posix_fadvise(os.open(library, 0), 0, 0, 4)",
    "a library, put into the page cache": "return system_call('readahead', os.open(library, 0), 0, 4096)",
    "whether a library is in the page cache": "return os.preadv(os.open(library, 0), [bytearray(1)], 0, os.RWF_NOWAIT)",
    "pages that are merged with those of others": (
        "made = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE)\nreturn made.madvise(12)"
    ),
    "which pages of a library are in memory": (
        "made = mmap.mmap(os.open(library, os.O_RDONLY), 4096, prot=mmap.PROT_READ)\n"
        "at = ctypes.c_long.from_address(id(made) + object.__basicsize__).value\n"
        "return system_call('mincore', at, 4096, ctypes.create_string_buffer(8))"
    ),
    "pages of a library, put out of memory": (
        "made = mmap.mmap(os.open(library, os.O_RDONLY), 4096, prot=mmap.PROT_READ)\nreturn made.madvise(21)"
    ),
    "the times of a device": "return os.utime('/dev/null')",
    "urgent data, sent": "a, b = socket.socketpair()\nreturn a.send(b'x', socket.MSG_OOB)",
    "urgent data, sent as a message": "a, b = socket.socketpair()\nreturn a.sendmsg([b'x'], [], socket.MSG_OOB)",
    "urgent data, sent as many messages": (
        "a, b = socket.socketpair()\nreturn system_call('sendmmsg', a.fileno(), bytes(64), 0, socket.MSG_OOB)"
    ),
    "urgent data, received": (
        "a, b = socket.socketpair()\nb.setblocking(False)\na.send(b'xy')\n"
        "try:\n    return b.recv(1, socket.MSG_OOB)\n"
        "except OSError as error:\n    if error.errno == 1:\n        raise\n    return 'the kernel looked for it'"
    ),
    "urgent data, received as a message": (
        "a, b = socket.socketpair()\nb.setblocking(False)\na.send(b'xy')\n"
        "try:\n    return b.recvmsg(1, 0, socket.MSG_OOB)\n"
        "except OSError as error:\n    if error.errno == 1:\n        raise\n    return 'the kernel looked for it'"
    ),
    "urgent data, in line": (
        "a, b = socket.socketpair()\nreturn a.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)"
    ),
    "where reading begins": "a, b = socket.socketpair()\nreturn a.setsockopt(socket.SOL_SOCKET, 42, 1)",
    "a timer of processor time": "return signal.setitimer(signal.ITIMER_PROF, 60)",
    "a timer of its own processor time": "return signal.setitimer(signal.ITIMER_VIRTUAL, 60)",
    "a timer of a process's clock": "return system_call('timer_create', 2, 0, bytes(8))",
    "a timer of a thread's clock": "return system_call('timer_create', 3, 0, bytes(8))",
    "a timer of another process's clock": "return system_call('timer_create', (~os.getppid() << 3) | 2, 0, bytes(8))",
    "a sleep by a process's clock": "return system_call('clock_nanosleep', 2, 0, bytes(16), 0)",
}

ALLOWED = {
    "flags of a descriptor": "return fcntl.fcntl(open(library), fcntl.F_GETFL)",
    "a descriptor, doubled": "return os.dup(os.open(library, 0)) + fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 20)",
    "data of a pair": "a, b = socket.socketpair()\na.sendmsg([b'xy'])\nreturn b.recv(1, socket.MSG_PEEK) + b.recv(2)",
    "an option of a pair": "a, b = socket.socketpair()\nreturn a.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)",
    "a timer": "signal.setitimer(signal.ITIMER_REAL, 60)\nreturn signal.setitimer(signal.ITIMER_REAL, 0)",
    "a timer of the clock on the wall": "return system_call('timer_create', 1, 0, ctypes.create_string_buffer(8))",
    "a sleep": "return time.sleep(0.001)",
    "processor time, read": "return time.process_time() + time.thread_time()",
    "the device for nothing, written": "return open('/dev/null', 'w').write('x')",
    "a file, written to the disk": "return os.fsync(os.open(library, 0))",
    "pages, given back": "return mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE).madvise(mmap.MADV_DONTNEED)",
    "bytes of a library": "return os.preadv(os.open(library, 0), [bytearray(1)], 0)",
}


@pytest.fixture(scope="module")
def outcomes(cage: Cage) -> dict[str, tuple[str, str]]:
    return outcomes_of(cage, {**REFUSED, **ALLOWED})


@pytest.mark.slow
@pytest.mark.parametrize("cage", SERVERS, indirect=True)
@pytest.mark.parametrize("name", REFUSED)
def test_what_calls_share_takes_no_messages(outcomes: dict[str, tuple[str, str]], name: str) -> None:
    assert outcomes[name][0] == "refused", outcomes[name]


@pytest.mark.slow
@pytest.mark.parametrize("cage", SERVERS, indirect=True)
@pytest.mark.parametrize("name", ALLOWED)
def test_ordinary_programs_are_not_in_the_way_of_that(outcomes: dict[str, tuple[str, str]], name: str) -> None:
    """The same calls with what ordinary programs give them."""
    assert outcomes[name][0] == "done", outcomes[name]


@pytest.mark.parametrize("cage", SERVERS, indirect=True)
def test_a_lock_of_one_call_is_not_seen_by_another(cage: Cage) -> None:
    """A POSIX lock can be had for reading on a file that can only be read: it is granted, and nobody is told."""
    prelude = "import fcntl, json, struct, time\nfile = open(json.__file__)\n"
    holds = f"{prelude}fcntl.lockf(file, fcntl.LOCK_SH)\ntime.sleep(0.5)\n'held'"
    looks = (
        f"{prelude}kinds = []\nuntil = time.monotonic() + 0.4\nwhile time.monotonic() < until:\n"
        "    asked = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)\n"
        "    kinds.append(struct.unpack('hhqqi4x', fcntl.fcntl(file, fcntl.F_GETLK, asked))[0])\n    time.sleep(0.02)\n"
        "[len(kinds) > 1, {*kinds} == {fcntl.F_UNLCK}]"
    )

    async def both() -> list[SandboxResult]:
        jobs = [SandboxJob(source=source, limits=LIMITS) for source in (holds, looks)]
        return await asyncio.gather(*map(cage.sandbox.run, jobs))

    holder, reader = cage.wait(both())

    assert (holder.value, reader.value) == ("held", [True, True]), (holder.error, reader.error)


@pytest.mark.parametrize("cage", WITH_NAMESPACES, indirect=True)
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_sqlite_works_in_the_work_folder(cage: Cage, mode: str) -> None:
    """Although locks of files are granted without being set: two connections, a roll-back, a crash's journal."""
    source = (
        "import os, sqlite3\n"
        "def f(mode):\n"
        "    one, two = (sqlite3.connect('own.db', timeout=0.1, isolation_level=None) for _ in range(2))\n"
        "    found = list(one.execute(f'PRAGMA journal_mode={mode}').fetchone())\n"
        "    one.execute('CREATE TABLE t (x)')\n"
        "    one.execute('BEGIN IMMEDIATE')\n"
        "    one.execute('INSERT INTO t VALUES (1)')\n"
        "    try:\n        two.execute('BEGIN IMMEDIATE')\n"
        "    except sqlite3.OperationalError as error:\n        found.append(str(error))\n"
        "    one.execute('COMMIT')\n"
        "    two.execute('BEGIN')\n    two.execute('INSERT INTO t VALUES (2)')\n    two.execute('ROLLBACK')\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        three = sqlite3.connect('own.db', isolation_level=None)\n"
        "        three.execute('PRAGMA cache_size=1')\n        three.execute('BEGIN')\n"
        "        for n in range(2000):\n            three.execute('INSERT INTO t VALUES (?)', [str(n) * 50])\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "    four = sqlite3.connect('own.db')\n"
        "    return found + [four.execute('SELECT count(*) FROM t').fetchone()[0],"
        " four.execute('PRAGMA integrity_check').fetchone()[0]]\n"
    )

    result = cage.run(source, "f", arguments={"mode": mode})

    assert result.value == [mode, "database is locked", 1, "ok"], result.error
