"""The filter of system calls: an allow-list as a BPF program for the kernel.

A call that is not on the list gets ENOSYS, as from a kernel that does not have it, so that libraries fall back to
another one. A call that is known to be dangerous gets EPERM. Some calls are allowed with certain arguments only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from .kernel import system_call

_TABLES = tomllib.loads(Path(__file__).with_name("system_calls.toml").read_text(encoding="ascii"))
X86_64, AARCH64 = (
    {name: int(number) for name, number in (entry.split(":") for entry in _TABLES["numbers"][machine].split())}
    for machine in ("x86_64", "aarch64")
)
_KINDS = {kind: names.split() for kind, names in (_TABLES["allowed"] | _TABLES["others"]).items()}

ALLOWED = frozenset(name for kind in _TABLES["allowed"] for name in _KINDS[kind])
"""The system calls that code without a network may make; of some, certain arguments only."""

REFUSED = frozenset(_KINDS["refused"])
"""The system calls that get EPERM instead of ENOSYS: a clear answer, and no library tries another way."""

_MACHINES: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "x86_64": (0xC000003E, X86_64),
    "aarch64": (0xC00000B7, AARCH64),
}

_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in what the kernel shows the program
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_SET_MODE_FILTER = 1

_NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEW*: cgroup, uts, ipc, user, pid, net, mount
_CLONE_THREAD = 0x00010000
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_TYPE_MASK = 1, 2, 0xF
_PROTOCOLS = (0, 6, 17)  # the usual one, TCP, UDP; asked for another, the kernel may load a module
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_PRCTLS = (3, 15, 16, 23, 0x53564D41)  # PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_CAPBSET_READ, PR_SET_VMA
_FCNTLS = (
    *(0, 1, 2, 3, 4, 9, 11),  # F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETOWN F_GETSIG
    *(5, 1030, 1032, 1034),  # F_GETLK F_DUPFD_CLOEXEC F_GETPIPE_SZ F_GET_SEALS
)
_LOCKS = (6, 7)  # F_SETLK F_SETLKW
_SOCKET_OPTIONS: Mapping[int, tuple[int, ...]] = {
    # level: options. No sizes of buffers, no programs, no marks for urgent data.
    0: (1, 2, 10, 11, 24),  # IP: TOS TTL MTU_DISCOVER RECVERR BIND_ADDRESS_NO_PORT
    1: (2, 6, 9, 13, 15, 16, 20, 21, 66, 67),  # REUSEADDR BROADCAST KEEPALIVE LINGER REUSEPORT PASSCRED, time limits
    6: (1, 2, 3, 4, 5, 6, 12, 18, 25),  # TCP: NODELAY MAXSEG CORK KEEPIDLE, -INTVL, -CNT QUICKACK USER_TIMEOUT, LOWAT
    41: (16, 23, 25, 26),  # IPv6: UNICAST_HOPS MTU_DISCOVER RECVERR V6ONLY
}
_MESSAGE_FLAGS = 0x04000001  # MSG_OOB, MSG_ZEROCOPY
_SHARED_WITHOUT_FILE, _HUGE_OR_GROWING = 0x21, 0x40100  # MAP_SHARED and MAP_ANONYMOUS; MAP_HUGETLB, MAP_GROWSDOWN
_ADVICE = (12, 20, 21)  # MADV_MERGEABLE, MADV_COLD, MADV_PAGEOUT
_MS_SYNC = 4
_CLOCKS_OF_TIMERS = (0, 1, 7)  # CLOCK_REALTIME, _MONOTONIC, _BOOTTIME; the others are of processor time, or wake
_ITIMER_REAL, _CLOCK_TAI = 0, 11
_FLAGS_OF_MESSAGES = {"sendto": 3, "recvfrom": 3, "sendmsg": 2, "recvmsg": 2, "sendmmsg": 3, "recvmmsg": 3}

_Code = list[tuple[int, int, int, int]]
"""Instructions: (operation, how many to skip if a comparison holds, and if not, operand) of each."""


def supported() -> bool:
    """Whether this processor's system call numbers are known."""
    return os.uname().machine in _MACHINES


def program(
    *, network: bool, namespaces: bool, file_metadata: bool = False, pid: int = 0, machine: str | None = None
) -> bytes:
    """The BPF program of the filter, as the kernel takes it.

    Args:
        network: whether the code may make sockets of the internet.
        namespaces: whether the code has processes, files and users of its own. If not, it may start no process, signal
            only itself, which is `pid`, and not change modes, times and owners of files, which Landlock does not check.
        file_metadata: whether it may change those all the same.
        machine: the processor; by default this machine's.
    """
    audit, numbers = _MACHINES[machine or os.uname().machine]
    allow, refuse = _allow(), _fail(errno.EPERM)
    actions = dict.fromkeys(REFUSED, refuse) | dict.fromkeys(ALLOWED, allow)
    if network:
        actions |= dict.fromkeys(_KINDS["network"], allow)
    if not namespaces:
        metadata = [] if file_metadata else _KINDS["file_metadata"]
        actions |= dict.fromkeys([*_KINDS["processes"], *metadata, "tkill"], refuse)
    actions |= _rules_on_arguments(network=network, namespaces=namespaces, pid=pid)
    code: _Code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),  # 32-bit calls have other numbers
        (_LOAD, 0, 0, _NUMBER),
    ]
    for name in sorted(actions.keys() & numbers.keys()):
        code += [(_JUMP_EQUAL, 0, len(actions[name]), numbers[name]), *actions[name]]
    code += _fail(errno.ENOSYS)  # also for the numbers of x32
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def install(bpf: bytes) -> None:
    """Apply a compiled filter to this thread and to all that it starts; nothing can take it off."""
    address = ctypes.cast(ctypes.c_char_p(bpf), ctypes.c_void_p).value or 0
    _, numbers = _MACHINES[os.uname().machine]
    system_call("seccomp", numbers["seccomp"], _SET_MODE_FILTER, 0, struct.pack("@HP", len(bpf) // 8, address))


def _allow() -> _Code:
    """Code that lets the call through."""
    return [(_RETURN, 0, 0, _ALLOW)]


def _fail(number: int) -> _Code:
    """Code that fails the call with an errno; 0: it succeeds without being done."""
    return [(_RETURN, 0, 0, _ERRNO | number)]


def _argument(index: int) -> tuple[int, int, int, int]:
    """The instruction that loads the low half of an argument of the call, from 0."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)  # the low half; both processors are little-endian


def _if_one_of(index: int, values: Iterable[int], *, then: _Code, other: _Code) -> _Code:
    """Return code that goes to `then` if the system call's argument `index` is one of the values, else to `other`."""
    return _switch(index, dict.fromkeys(values, then), other=other)


def _switch(index: int, cases: Mapping[int, _Code], *, other: _Code) -> _Code:
    """Return code that goes to the case for the system call's argument `index`, else to `other`."""
    code = [_argument(index)]
    for value, then in cases.items():
        code += [(_JUMP_EQUAL, 0, len(then), value), *then]
    return code + other


def _rules_on_arguments(*, network: bool, namespaces: bool, pid: int) -> Mapping[str, _Code]:
    """Name of a system call -> code, of those that are allowed with certain arguments only; see `program`."""
    allow, refuse = _allow(), _fail(errno.EPERM)
    stream_pair = [
        _argument(0),
        (_JUMP_EQUAL, 1, 0, _AF_UNIX),
        *refuse,
        _argument(1),
        (_AND, 0, 0, _SOCK_TYPE_MASK),
        (_JUMP_EQUAL, 0, 1, _SOCK_STREAM),  # a datagram socket could still be given an address
        *allow,
        *refuse,
    ]
    protocol = _if_one_of(2, _PROTOCOLS, then=allow, other=_fail(errno.EPROTONOSUPPORT))
    internet = [
        _argument(0),
        (_JUMP_EQUAL, 2, 0, _AF_INET),
        (_JUMP_EQUAL, 1, 0, _AF_INET6),
        *_fail(errno.EAFNOSUPPORT),
        _argument(1),
        (_AND, 0, 0, _SOCK_TYPE_MASK),
        (_JUMP_EQUAL, 1, 0, _SOCK_STREAM),
        # Landlock can't hold datagrams back, so there are none where the network is the machine's.
        (_JUMP_EQUAL, 0, len(protocol), _SOCK_DGRAM if namespaces else _SOCK_STREAM),
        *protocol,
        *refuse,
    ]
    thread_only = [] if namespaces else [(_JUMP_ANY_BIT, 1, 0, _CLONE_THREAD), *refuse]
    clone = [_argument(0), (_JUMP_ANY_BIT, 0, 1, _NAMESPACE_FLAGS), *refuse, *thread_only, *allow]
    memory = [
        _argument(3),
        (_JUMP_ANY_BIT, 0, 1, _HUGE_OR_GROWING),
        *refuse,
        (_AND, 0, 0, _SHARED_WITHOUT_FILE),
        (_JUMP_EQUAL, 0, 1, _SHARED_WITHOUT_FILE),  # its pages stay when no process counts them any more
        *refuse,
        *allow,
    ]
    rules = {
        "clone": clone,
        "mmap": memory,
        # Pages merged with equal ones of other calls, or put out of a cache that others use: both can be measured.
        "madvise": _if_one_of(2, _ADVICE, then=refuse, other=allow),
        # The work folder is in memory, where this does nothing; on a library's file it would flush the machine's disk.
        **dict.fromkeys(("fsync", "fdatasync", "sync_file_range"), _fail(0)),
        "msync": [_argument(2), (_JUMP_ANY_BIT, 0, 1, _MS_SYNC), *_fail(0), *allow],
        "ioctl": _if_one_of(1, _IOCTLS, then=allow, other=_fail(errno.ENOTTY)),
        "prctl": _if_one_of(0, _PRCTLS, then=allow, other=refuse),
        # A lock on a library file would be seen by other calls, and byte ranges can be locked without end. SQLite needs
        # an answer of success, and within one process POSIX locks never keep anybody off, so they are granted unset.
        "fcntl": _switch(1, {**dict.fromkeys(_FCNTLS, allow), **dict.fromkeys(_LOCKS, _fail(0))}, other=refuse),
        "prlimit64": _if_one_of(0, (0,), then=allow, other=refuse),
        "sched_setaffinity": _if_one_of(0, (0,), then=allow, other=refuse),
        "socketpair": stream_pair,
        "setsockopt": _switch(
            1,
            {level: _if_one_of(2, names, then=allow, other=refuse) for level, names in _SOCKET_OPTIONS.items()},
            other=refuse,
        ),
        # Timers of processor time are refused: code that only they reach has had defects again and again.
        "setitimer": _if_one_of(0, (_ITIMER_REAL,), then=allow, other=refuse),
        "timer_create": _if_one_of(0, _CLOCKS_OF_TIMERS, then=allow, other=refuse),
        "clock_nanosleep": _if_one_of(0, (*_CLOCKS_OF_TIMERS, _CLOCK_TAI), then=allow, other=refuse),
    }
    for name, index in _FLAGS_OF_MESSAGES.items():
        rules[name] = [_argument(index), (_JUMP_ANY_BIT, 0, 1, _MESSAGE_FLAGS), *_fail(errno.EPERM), *_allow()]
    if network:
        rules["socket"] = internet
    if not namespaces:
        rules["kill"] = rules["tgkill"] = _if_one_of(0, (pid,), then=allow, other=refuse)
    return rules
