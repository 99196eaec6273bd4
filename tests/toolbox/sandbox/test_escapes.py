"""Attempts to get out of the sandbox, each at a harmless target that the tests made, which must stay untouched.

Every attempt runs inside the sandbox under test, and nowhere else. That the attempts do what they say is shown by
running the same code at what is allowed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from perdure.core.tools.sandbox import SandboxJob, SandboxLimits, SandboxResult
from tests.toolbox.sandbox.cages import LIMITS, Cage, is_gone
from tests.toolbox.sandbox.ground import NUMBERS, Ground

SERVERS = ["root", "user", "root without namespaces", "user without namespaces"]
WITH_NAMESPACES = SERVERS[:2]

PRELUDE = """
import ctypes, os, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)

def system_call(number, *arguments):
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    done = libc.syscall(ctypes.c_long(number), *words)
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done

def connected(family, kind, address):
    with socket.socket(family, kind) as made:
        made.settimeout(2)
        made.connect(address)
        made.send(b"x")
        return "connected"

def run(target):
    try:
        return ["done", repr(probe(target))[:500]]
    except (OSError, ValueError) as error:  # ValueError: a limit that is higher than it may be
        return ["refused", f"{type(error).__name__}: {error}"]

def probe(target):
"""

PROBES = {
    "read": "return open(target, 'rb').read(500)",
    "write": "return open(target, 'r+b').write(b'x')",
    "append": "return open(target, 'ab').write(b'x')",
    "truncate": "return os.truncate(target, 0)",
    "create": "return open(target, 'wb').close()",
    "list": "return os.listdir(target)",
    "delete": "return os.unlink(target)",
    "rename": "return os.rename(target, os.path.basename(target))",
    "change mode": "return os.chmod(target, 0o600)",
    "change times": "return os.utime(target, (1, 1))",
    "link": "os.link(target, 'linked'); return open('linked').read()",
    "symlink": "os.symlink(target, 'pointer'); return open('pointer').read()",
    "up": "return open('../' * 30 + target.lstrip('/')).read()",
    "make device": "os.mknod('device', 0o60666, os.makedev(*map(int, target.split(':')))); return 1",
    "execute": "return os.execv(target, [target, '--version'])",
    "tcp": "return connected(socket.AF_INET, socket.SOCK_STREAM, (target.split(':')[0], int(target.split(':')[1])))",
    "udp": "return connected(socket.AF_INET, socket.SOCK_DGRAM, (target.split(':')[0], int(target.split(':')[1])))",
    "tcp6": "return connected(socket.AF_INET6, socket.SOCK_STREAM, ('::1', int(target)))",
    "unix": "return connected(socket.AF_UNIX, socket.SOCK_STREAM, target.replace('@', chr(0)))",
    "pair": "return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', target.replace('@', chr(0)))",
    "raw": "return socket.socket(*map(int, target.split(',')))",
    "listen": "return socket.create_server(('127.0.0.1', 0))",
    "resolve": "return socket.getaddrinfo(target, 80)",
    "signal": "return os.kill(*map(int, target.split(',')))",
    "pidfd": "return os.pidfd_open(int(target))",
    "call": "return system_call(*map(int, target.split(',')))",
    "owner of signals": "import fcntl; a, b = socket.socketpair(); return fcntl.fcntl(a, fcntl.F_SETOWN, int(target))",
    "become": "return [os.setuid(int(target)), os.getuid()]",
    "limits": "import resource; return resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "limits of another": "import resource; return resource.prlimit(int(target), resource.RLIMIT_NOFILE, (0, 0))",
    "memory of another": "data = ctypes.create_string_buffer(8); return system_call(int(target.split(',')[0]), "
    "int(target.split(',')[1]), struct.pack('PN', ctypes.addressof(data), 8), 1, struct.pack('PN', 4096, 8), 1, 0)",
}

CASES = [
    # name, probe, target
    ("a secret, by its path", "read", "{ground}/secret.txt"),
    ("a secret, over `../`", "up", "{ground}/secret.txt"),
    ("a secret, through a symbolic link", "symlink", "{ground}/secret.txt"),
    ("a secret, through a hard link", "link", "{ground}/secret.txt"),
    ("a secret, through the server's root", "read", "/proc/{server}/root{ground}/secret.txt"),
    ("a secret, through one's own root", "read", "/proc/self/root{ground}/secret.txt"),
    ("a secret, overwritten", "write", "{ground}/secret.txt"),
    ("a secret, cut to nothing", "truncate", "{ground}/secret.txt"),
    ("a secret, deleted", "delete", "{ground}/secret.txt"),
    ("a secret, moved", "rename", "{ground}/secret.txt"),
    ("a secret, closed to its owner", "change mode", "{ground}/secret.txt"),
    ("a secret, made older", "change times", "{ground}/secret.txt"),
    ("the database, read", "read", "{ground}/perdure.db"),
    ("the database, changed", "append", "{ground}/perdure.db"),
    ("other tenants' folders", "list", "{ground}"),
    ("another tenant's file", "read", "{ground}/tenant-b/notes.txt"),
    ("a file in another tenant's folder", "create", "{ground}/tenant-b/new.txt"),
    ("a key in a home folder", "read", "{ground}/home/.key"),
    ("the shadow file", "read", "/etc/shadow"),
    ("the libraries", "append", os.__file__),
    ("a device that exists: memory", "read", "/dev/mem"),
    ("a device that exists: the kernel's log", "read", "/dev/kmsg"),
    ("a device of its own", "make device", "1:3"),
    ("another program", "execute", "/bin/sh"),
    ("the environment of the server", "read", "/proc/{server}/environ"),
    ("the environment of a process", "read", "/proc/{victim}/environ"),
    ("the environment of the parent", "read", "/proc/1/environ"),
    ("the memory of a process", "read", "/proc/{victim}/mem"),
    ("the kernel's settings", "write", "/proc/sys/kernel/core_pattern"),
    ("control groups", "list", "/sys/fs/cgroup"),
    ("shared memory, read", "read", "{shared}"),
    ("shared memory, cut to nothing", "truncate", "{shared}"),
    ("shared memory, deleted", "delete", "{shared}"),
    ("loopback, TCP", "tcp", "127.0.0.1:{tcp}"),
    ("loopback, UDP", "udp", "127.0.0.1:{udp}"),
    ("loopback, IPv6", "tcp6", "{tcp}"),
    ("a private address", "tcp", "10.255.255.1:9"),
    ("the metadata address", "tcp", "169.254.169.254:80"),
    ("a unix socket", "unix", "{ground}/socket"),
    ("an abstract socket", "unix", "@{abstract}"),
    ("an abstract socket, from a pair", "pair", "@{abstract}-datagrams"),
    ("a raw socket", "raw", "2,3,1"),
    ("a packet socket", "raw", "17,3,768"),
    ("a netlink socket", "raw", "16,3,0"),
    ("a server of its own", "listen", ""),
    ("DNS", "resolve", "example.com"),
    ("ending a process", "signal", "{victim},9"),
    ("ending the server, asked only", "signal", "{server},0"),
    ("all processes, woken", "signal", "-1,18"),
    ("a process by descriptor", "pidfd", "{victim}"),
    ("signals sent by the kernel", "owner of signals", "{victim}"),
    ("tracing a process", "call", "{n[ptrace]},16,{victim},0,0"),
    ("reading a process's memory", "memory of another", "{n[process_vm_readv]},{victim}"),
    ("writing a process's memory", "memory of another", "{n[process_vm_writev]},{victim}"),
    ("another process's limits", "limits of another", "{victim}"),
    ("its own limits", "limits", ""),
    ("becoming root", "become", "0"),
    ("becoming the server's user", "become", "{uid}"),
    ("a user namespace", "call", "{n[unshare]},268435456"),
    ("a mount namespace", "call", "{n[unshare]},131072"),
    ("a child in a user namespace", "call", "{n[clone]},268435473,0,0,0,0"),
    ("another's namespace", "call", "{n[setns]},0,0"),
    ("mounting", "call", "{n[mount]},0,0,0,0,0"),
    ("mounting, the new way", "call", "{n[fsopen]},0,0"),
    ("a tree of mounts", "call", "{n[open_tree]},-100,0,1"),
    ("another root folder", "call", "{n[chroot]},0"),
    ("a file by its handle", "call", "{n[open_by_handle_at]},0,0,0"),
    ("io_uring", "call", "{n[io_uring_setup]},1,0"),
    ("the keyring, read", "call", "{n[keyctl]},0,-3,0"),
    ("the keyring, written", "call", "{n[add_key]},0,0,0,0,-3"),
    ("bpf", "call", "{n[bpf]},0,0,0"),
    ("performance counters", "call", "{n[perf_event_open]},0,0,-1,-1,0"),
    ("page faults in user space", "call", "{n[userfaultfd]},1"),
    ("a kernel module", "call", "{n[finit_module]},-1,0,0"),
    ("another kernel", "call", "{n[kexec_load]},0,0,0,0"),
    ("anonymous files", "call", "{n[memfd_create]},0,0"),
    ("shared memory of System V", "call", "{n[shmget]},0,4096,896"),
    ("another personality", "call", "{n[personality]},262144"),
    ("living on without its parent", "call", "{n[prctl]},1,0,0,0,0"),
    ("being traced", "call", "{n[prctl]},4,1,0,0,0"),
    ("a filter of its own", "call", "{n[seccomp]},0,0,0"),
    ("the clock", "call", "{n[clock_settime]},0,0"),
    ("the host's name", "call", "{n[sethostname]},0,0"),
    ("descriptors of another process", "call", "{n[pidfd_getfd]},-1,0,0"),
]

ALLOWED = [
    # the same probes at what is allowed: name, probe, target, what is done before
    ("a library is read", "read", "", "target = os.__file__"),
    ("its own file is read", "read", "own", "open('own', 'w').write('x')"),
    ("its own file is changed", "append", "own", "open('own', 'w').write('x')"),
    ("its own file is cut", "truncate", "own", "open('own', 'w').write('x')"),
    ("its own file is deleted", "delete", "own", "open('own', 'w').close()"),
    ("its own file is linked", "link", "own", "open('own', 'w').close()"),
    ("its own file is pointed to", "symlink", "own", "open('own', 'w').close()"),
    ("its own file, over `../`", "up", "/home/tool/own", "open('own', 'w').close()"),
    ("its own file's mode", "change mode", "own", "open('own', 'w').close()"),
    ("its own file's times", "change times", "own", "open('own', 'w').close()"),
    ("its own folder is listed", "list", ".", ""),
    ("its own shared memory", "create", "/dev/shm/own", ""),
    ("its own child is signalled", "signal", "2,0", "os.fork() or time.sleep(60)"),
    ("its own user is kept", "become", "1000", "os.setuid = lambda uid: None"),
    ("its own number is told", "call", "{n[getpid]}", ""),
    ("its own state is told", "call", "{n[prctl]},3,0,0,0,0", ""),
]


@pytest.fixture(scope="module")
def ground(cage: Cage) -> Iterator[Ground]:
    settings = cage.sandbox._settings
    ground = Ground(python=settings.python, user=settings.user)
    yield ground
    assert ground.changed() == []
    ground.close()


def probe_job(probe: str, target: str, *, before: str = "") -> SandboxJob:
    body = "\n".join(f"    {line}" for line in (*before.splitlines(), *PROBES[probe].split("; ")))
    return SandboxJob(source=f"{PRELUDE}{body}\n", function="run", arguments={"target": target}, limits=LIMITS)


@pytest.fixture(scope="module")
def outcomes(cage: Cage, ground: Ground) -> dict[str, SandboxResult]:
    """What came of every attempt, each in a call of its own."""
    jobs = [probe_job(probe, target.format(n=NUMBERS, **ground.facts)) for _, probe, target in CASES]

    async def all_of_them() -> list[SandboxResult]:
        return await asyncio.gather(*map(cage.sandbox.run, jobs))

    return {name: result for (name, *_), result in zip(CASES, cage.wait(all_of_them()), strict=True)}


@pytest.mark.parametrize("cage", SERVERS, indirect=True)
@pytest.mark.parametrize("name", [name for name, *_ in CASES])
def test_what_is_outside_is_out_of_reach(ground: Ground, outcomes: dict[str, SandboxResult], name: str) -> None:
    """The code is told that it may not, or finds nothing there; and nothing has happened."""
    result = outcomes[name]

    assert result.status == "success", result
    assert result.value[0] == "refused", result
    assert ground.word not in str(result)
    assert ground.changed() == []


@pytest.mark.parametrize("cage", WITH_NAMESPACES, indirect=True)
@pytest.mark.parametrize(("name", "probe", "target", "before"), ALLOWED, ids=[name for name, *_ in ALLOWED])
def test_the_same_attempts_succeed_at_what_is_allowed(
    cage: Cage, name: str, probe: str, target: str, before: str
) -> None:
    """Else a mistake in an attempt would look like containment."""
    result = cage.wait(cage.sandbox.run(probe_job(probe, target.format(n=NUMBERS), before=before)))

    assert result.status == "success", result
    assert result.value[0] == "done", result


@pytest.mark.parametrize("cage", SERVERS, indirect=True)
class TestWhatCodeSees:
    def test_no_environment_but_its_own(self, cage: Cage, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither in Python's view of it, nor in the C library's, nor anywhere in the memory it was forked with."""
        monkeypatch.setenv("PERDURE_KEY", ground.word)
        source = (
            f"import ctypes, gc, os\nword = {ground.word[::-1]!r}[::-1]\n"
            "getenv = ctypes.CDLL(None).getenv\ngetenv.restype = ctypes.c_char_p\n"
            "gc.unfreeze()\ndicts = [held for held in gc.get_objects() if isinstance(held, dict)]\n"
            "texts = [text for held in dicts for text in [*held, *held.values()] if isinstance(text, str)]\n"
            "[dict(os.environ), getenv(b'PERDURE_KEY'), [text for text in texts if word in text and text is not word],"
            " len(texts) > 1000]"
        )

        result = cage.run(source)

        assert "PERDURE_KEY" not in result.value[0]
        assert result.value[1:] == [None, [], True]

    def test_no_users_of_this_machine(self, cage: Cage) -> None:
        """Where there is an /etc at all, it is one that was made for it."""
        result = cage.run("import pwd\n[user.pw_name for user in pwd.getpwall()]")

        assert result.value in ([], ["tool"], None)

    def test_no_descriptors_but_its_own(self, cage: Cage) -> None:
        """Standard streams and the pipe of its own answer; no socket, no folder."""
        source = (
            "import os, stat\nfound = {}\n"
            "for fd in range(1000):\n"
            "    try:\n        mode = os.fstat(fd).st_mode\n"
            "    except OSError:\n        continue\n"
            "    found[fd] = stat.filemode(mode)[0]\n"
            "found"
        )

        assert cage.run(source).value == {"0": "c", "1": "p", "2": "p", "4": "p"}

    def test_no_right_to_anything(self, cage: Cage) -> None:
        """No capability, no group of the server, not root."""
        source = (
            "import ctypes, os, struct\n"
            "data = ctypes.create_string_buffer(24)\n"
            "ctypes.CDLL(None).capget(struct.pack('=Ii', 0x20080522, 0), data)\n"
            "[struct.unpack('=6I', data.raw), os.getuid() > 0, os.getresuid()[0] == os.getresuid()[2]]"
        )

        assert cage.run(source).value == [[0] * 6, True, True]


@pytest.mark.parametrize("cage", WITH_NAMESPACES, indirect=True)
class TestWhatCodeUses:
    def test_a_fork_bomb(self, cage: Cage, ground: Ground) -> None:
        """Its processes are counted, also when the server is root, and end with it."""
        source = (
            "import os, time\n"
            "def f():\n"
            "    made = 0\n"
            "    while True:\n"
            "        try:\n"
            "            if os.fork() == 0:\n                time.sleep(60)\n                os._exit(0)\n"
            "            made += 1\n"
            "        except OSError:\n            return made\n"
        )

        result = cage.run(source, "f", limits=SandboxLimits(wall_s=10, processes=10))

        assert result.value == 9, result.error
        assert ground.changed() == []

    def test_a_fork_bomb_that_goes_on(self, cage: Cage) -> None:
        """Every process forks for as long as it can; the time limit ends them all."""
        source = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"

        result = cage.run(source, limits=SandboxLimits(wall_s=0.5, processes=10))

        assert result.status == "timeout"
        assert cage.run("1 + 1").value == 2

    def test_threads_without_end(self, cage: Cage) -> None:
        source = (
            "import threading, time\nmade = 0\n"
            "try:\n    while made < 1000:\n"
            "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n        made += 1\n"
            "except RuntimeError:\n    pass\nmade"
        )

        assert cage.run(source, limits=SandboxLimits(wall_s=10, processes=10)).value == 9

    def test_processor_time(self, cage: Cage) -> None:
        """A second is the least that the kernel counts."""
        result = cage.run("while True: pass", limits=SandboxLimits(wall_s=20, cpu_s=1))

        assert (result.status, "processor time" in result.error) == ("timeout", True)

    def test_memory_of_many_processes(self, cage: Cage) -> None:
        """Each within its limit, all together past it."""
        source = (
            "import os, time\nfor _ in range(8):\n"
            "    if os.fork() == 0:\n        held = bytearray(os.urandom(1 << 20) * 30)\n        time.sleep(60)\n"
            "time.sleep(60)"
        )

        result = cage.run(source, limits=SandboxLimits(wall_s=10, memory_mb=128))

        assert (result.status, "processes together need more memory than 128 MiB" in result.error) == ("memory", True)

    def test_processes_that_share_their_memory_are_counted_once(self, cage: Cage) -> None:
        source = (
            "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        time.sleep(60)\n"
            "time.sleep(0.6)\n'ready'"
        )

        assert cage.run(source, limits=SandboxLimits(wall_s=10, memory_mb=96)).value == "ready"

    def test_a_full_disk(self, cage: Cage) -> None:
        """By size: in one file, in many, and in one that is mostly holes."""
        source = (
            "import os\ndef f():\n    found = []\n"
            "    for names in (['one'], ['a', 'b', 'c', 'd']):\n"
            "        try:\n            for name in names:\n                open(name, 'wb').write(bytes(3 << 20))\n"
            "            found.append('done')\n"
            "        except OSError as error:\n            found.append(error.strerror)\n"
            "    try:\n        os.truncate('one', 1 << 30)\n"
            "    except OSError as error:\n        found.append(error.strerror)\n"
            "    return found + [sum(os.stat(name).st_size for name in os.listdir('.')) <= 4 << 20]\n"
        )

        result = cage.run(source, "f", limits=SandboxLimits(wall_s=10, disk_mb=4))

        assert result.value == ["done", "No space left on device", "File too large", True]

    def test_a_disk_full_of_files(self, cage: Cage) -> None:
        """By number: files, folders, links count the same."""
        source = (
            "import os\ndef f():\n    made = 0\n    try:\n        while True:\n"
            "            os.mkdir(str(made))\n            made += 1\n"
            "    except OSError as error:\n        return [made, error.strerror]\n"
        )

        result = cage.run(source, "f", limits=SandboxLimits(wall_s=10, files=50))

        assert result.value == [50, "No space left on device"]

    def test_an_orphan(self, cage: Cage) -> None:
        """A daemon in a session of its own is gone when the call is."""
        name = f"orphan{os.getpid()}"
        source = (
            "import ctypes, os, time\n"
            f"def f():\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
            f"            ctypes.CDLL(None).prctl(15, b'{name}')\n            time.sleep(60)\n        os._exit(0)\n"
            "    time.sleep(0.1)\n    return 'left'"
        )

        assert cage.run(source, "f").value == "left"
        assert is_gone(name)

    def test_a_set_uid_bit(self, cage: Cage) -> None:
        """It can be set, and gives nothing: programs in the work folder are not started at all."""
        source = (
            "import os, shutil, subprocess, sys\n"
            "def f():\n    shutil.copy(sys.executable, 'mine')\n    os.chmod('mine', 0o4755)\n"
            "    try:\n        return subprocess.run(['./mine', '-c', 'pass']).returncode\n"
            "    except OSError as error:\n        return error.strerror\n"
        )

        assert cage.run(source, "f").value == "Permission denied"

    def test_another_interpreter_is_in_the_same_cage(self, cage: Cage, ground: Ground) -> None:
        """A program that is started has what its starter has, and no more."""
        inner = f"print(open({str(ground.folder / 'secret.txt')!r}).read())"
        source = (
            "import subprocess, sys\n"
            f"done = subprocess.run([sys.executable, '-I', '-S', '-c', {inner!r}], capture_output=True)\n"
            "[done.returncode, done.stderr.decode()[-200:]]"
        )

        result = cage.run(source)

        assert result.value[0] == 1, result.error
        assert "FileNotFoundError" in result.value[1]

    def test_nothing_is_left_for_the_next_run(self, cage: Cage) -> None:
        """No file, no module, no variable, no changed function, no process."""
        first = (
            "import builtins, json, os, sys, tempfile\n"
            "open('left', 'w').write('x'); open(tempfile.gettempdir() + '/left2', 'w').write('x')\n"
            "os.environ['LEFT'] = '1'; builtins.left = 1; json.dumps = None; sys.modules['left'] = sys\n"
            "os.fork() or __import__('time').sleep(60)"
        )
        second = (
            "import builtins, json, os, sys, tempfile\n"
            "[os.listdir('.'), os.listdir(tempfile.gettempdir()), 'LEFT' in os.environ, hasattr(builtins, 'left'),"
            " json.dumps is None, 'left' in sys.modules, os.fork()]"
        )
        for _ in range(3):
            cage.run(first, limits=SandboxLimits(wall_s=1))

        result = cage.run(second)

        assert result.value[:6] == [[], [], False, False, False, False], result.error
        assert result.value[6] in {0, 2}  # the first child it ever had


@pytest.mark.parametrize("cage", SERVERS, indirect=True)
class TestWhatCodeUsesAnywhere:
    @pytest.mark.parametrize(
        "source",
        [
            "x = bytearray(1 << 30)",
            "x = []\nwhile True:\n    x.append('x' * 1_000_000)",
            "import mmap\nx = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE)",
        ],
    )
    def test_memory(self, cage: Cage, source: str) -> None:
        """At once, little by little, past Python's own allocator."""
        result = cage.run(source, limits=SandboxLimits(wall_s=10, memory_mb=128))

        assert result.status in {"memory", "error"}
        assert "memory" in result.error

    @pytest.mark.parametrize("source", ["import time\ntime.sleep(60)", "import signal\nsignal.pause()", "input()"])
    def test_sleep(self, cage: Cage, source: str) -> None:
        result = cage.run(source, limits=SandboxLimits(wall_s=0.3))

        assert result.status == "timeout" or "EOFError" in result.error

    def test_signals_that_are_ignored(self, cage: Cage) -> None:
        """What can't be ignored ends it."""
        source = (
            "import signal, time\nfor number in range(1, 32):\n"
            "    try:\n        signal.signal(number, signal.SIG_IGN)\n    except OSError:\n        pass\ntime.sleep(60)"
        )

        assert cage.run(source, limits=SandboxLimits(wall_s=0.3)).status == "timeout"

    def test_output_without_end(self, cage: Cage) -> None:
        """Prints are cut; what is written past them ends the call."""
        limits = SandboxLimits(wall_s=10, output_chars=1_000)

        printed = cage.run("for n in range(100_000):\n    print('x' * 100)\n'ready'", limits=limits)
        written = cage.run("import os\nwhile True:\n    os.write(1, b'x' * 65536)", limits=limits)

        assert (printed.value, len(printed.stdout) < 1_200) == ("ready", True)
        assert printed.stdout.endswith("[cut here: only the first 1,000 characters are kept]")
        assert (written.status, "printed more than" in written.error) == ("crash", True)
        assert len(written.stdout) < 1_200

    def test_a_result_without_end(self, cage: Cage) -> None:
        limits = SandboxLimits(wall_s=20, result_bytes=10_000)

        result = cage.run("def f():\n    return 'x' * 20_000", "f", limits=limits)

        assert (result.status, "larger than 10,000 bytes" in result.error) == ("error", True)
