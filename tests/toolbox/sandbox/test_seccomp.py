"""The filter of system calls, run here instruction by instruction: what each call would get, on either processor."""

from __future__ import annotations

import errno
import struct

import pytest

from perdure.toolbox.sandbox.inside.seccomp import AARCH64, ALLOWED, REFUSED, X86_64, program

MACHINES = {"x86_64": (0xC000003E, X86_64), "aarch64": (0xC00000B7, AARCH64)}
ALLOW, KILL = "allow", "kill"
CLONE_NEWUSER, CLONE_THREAD, AF_UNIX, AF_INET, AF_NETLINK = 0x10000000, 0x10000, 1, 2, 16
STREAM, DGRAM, RAW, CLOEXEC = 1, 2, 3, 0o2000000


def verdict(bpf: bytes, machine: str, number: int, *arguments: int, audit: int | None = None) -> object:
    """What the kernel would do: "allow", "kill", or the errno."""
    data = struct.pack("<iIQ6Q", number, audit or MACHINES[machine][0], 0, *(*arguments, *[0] * 6)[:6])
    code = list(struct.iter_unpack("=HBBI", bpf))
    position, value = 0, 0
    for _ in range(4_096):
        kind, yes, no, k = code[position]
        position += 1
        match kind:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, k)
            case 0x05:
                position += k
            case 0x15:
                position += yes if value == k else no
            case 0x35:
                position += yes if value >= k else no
            case 0x45:
                position += yes if value & k else no
            case 0x54:
                value &= k
            case 0x06:
                return {0x7FFF: ALLOW, 0x8000: KILL}.get(k >> 16) or k & 0xFFFF
    raise AssertionError("the program does not end")


@pytest.fixture(params=sorted(MACHINES))
def machine(request: pytest.FixtureRequest) -> str:
    names: str = request.param
    return names


def call(machine: str, name: str, *arguments: int, network: bool = False, namespaces: bool = True) -> object:
    bpf = program(network=network, namespaces=namespaces, pid=77, machine=machine)
    return verdict(bpf, machine, MACHINES[machine][1][name], *arguments)


def test_every_call_gets_what_its_list_says(machine: str) -> None:
    """Allowed, refused with EPERM, or unknown: numbers between, above, negative, and those of x32 are unknown."""
    numbers = MACHINES[machine][1]
    bpf = program(network=False, namespaces=True, machine=machine)
    checked = {"clone", "ioctl", "prctl", "fcntl", "prlimit64", "sched_setaffinity", "socketpair", "setsockopt"}
    checked |= {"mmap", "madvise", "msync", "fsync", "fdatasync", "sync_file_range"}
    checked |= {"setitimer", "timer_create", "clock_nanosleep"}

    for number in (*range(-2, 1_200), 0x40000000 + 1, 0x7FFFFFFF):
        names = {name for name, value in numbers.items() if value == number}
        if names & checked:
            continue
        expected = ALLOW if names & ALLOWED else errno.EPERM if names & REFUSED else errno.ENOSYS
        assert verdict(bpf, machine, number) == expected, (number, names)


def test_calls_of_another_processor_end_the_process(machine: str) -> None:
    """32-bit programs have other numbers for the same calls."""
    bpf = program(network=True, namespaces=True, machine=machine)

    assert verdict(bpf, machine, 1, audit=0x40000003) == KILL


def test_no_list_allows_what_another_refuses() -> None:
    assert not ALLOWED & REFUSED


def test_both_processors_know_the_dangerous_calls() -> None:
    """A number that is missing in a table would be ENOSYS, which is safe, but then the list does not say so."""
    only_intel = {"iopl", "ioperm", "mknod"}

    assert REFUSED - X86_64.keys() == set()
    assert REFUSED - AARCH64.keys() == only_intel


def test_the_program_fits_the_kernel(machine: str) -> None:
    """At most 4,096 instructions."""
    for network in (False, True):
        for namespaces in (False, True):
            assert len(program(network=network, namespaces=namespaces, machine=machine)) // 8 < 4_096


def test_processes_are_made_without_namespaces_of_their_own(machine: str) -> None:
    assert call(machine, "clone", 17) == ALLOW
    assert call(machine, "clone", CLONE_NEWUSER | 17) == errno.EPERM
    assert call(machine, "clone", CLONE_THREAD) == ALLOW


def test_where_processes_cannot_be_counted_there_are_only_threads(machine: str) -> None:
    """And signals go to nobody else, and facts about files, which Landlock does not guard, stay what they are."""
    assert call(machine, "clone", 17, namespaces=False) == errno.EPERM
    assert call(machine, "clone", CLONE_THREAD | CLONE_NEWUSER, namespaces=False) == errno.EPERM
    assert call(machine, "clone", CLONE_THREAD, namespaces=False) == ALLOW
    assert call(machine, "kill", 77, 9, namespaces=False) == ALLOW
    assert call(machine, "kill", 78, 9, namespaces=False) == errno.EPERM
    assert call(machine, "kill", (1 << 64) - 1, 9, namespaces=False) == errno.EPERM
    for name in ("execve", "fchmod", "fchmodat", "fchownat", "utimensat", "truncate", "tkill"):
        assert call(machine, name, namespaces=False) == errno.EPERM


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("ioctl", (0, 0x5421), ALLOW),
        ("ioctl", (0, 0x5412), errno.ENOTTY),  # TIOCSTI types into the terminal
        ("prctl", (15,), ALLOW),
        ("prctl", (1, 0), errno.EPERM),  # PR_SET_PDEATHSIG
        ("prctl", (4, 1), errno.EPERM),  # PR_SET_DUMPABLE
        ("prctl", (22, 2), errno.EPERM),  # PR_SET_SECCOMP
        ("fcntl", (3, 1), ALLOW),
        ("fcntl", (3, 8, 1), errno.EPERM),  # F_SETOWN
        ("prlimit64", (0, 7), ALLOW),
        ("prlimit64", (1, 7), errno.EPERM),
        ("socketpair", (AF_UNIX, STREAM | CLOEXEC), ALLOW),
        ("socketpair", (AF_UNIX, DGRAM), errno.EPERM),
        ("socketpair", (AF_INET, STREAM), errno.EPERM),
        ("setsockopt", (3, 1, 2), ALLOW),
        ("setsockopt", (3, 1, 50), errno.EPERM),  # SO_ATTACH_BPF
        ("setsockopt", (3, 1, 7), errno.EPERM),  # SO_SNDBUF
        ("setsockopt", (3, 1, 8), errno.EPERM),  # SO_RCVBUF
        ("setsockopt", (3, 1, 32), errno.EPERM),  # SO_SNDBUFFORCE
        ("setsockopt", (3, 1, 33), errno.EPERM),  # SO_RCVBUFFORCE
        ("setsockopt", (3, (1 << 32) | 1, 7), errno.EPERM),  # the kernel sees the low half, and so does the filter
        ("setsockopt", (3, 6, 1), ALLOW),  # TCP_NODELAY
        ("setsockopt", (3, 6, 7), errno.EPERM),  # TCP_SYNCNT
        ("setsockopt", (3, 17, 1), errno.EPERM),  # UDP_CORK: a level that nobody needs
        ("fcntl", (3, 6), 0),  # F_SETLK: granted, not set
        ("fcntl", (3, 7), 0),  # F_SETLKW
        ("fcntl", (3, 5), ALLOW),  # F_GETLK
        ("fcntl", (3, 37), errno.EPERM),  # F_OFD_SETLK
        ("fcntl", (3, 1024), errno.EPERM),  # F_SETLEASE
        ("fcntl", (3, 1026), errno.EPERM),  # F_NOTIFY
        ("fcntl", (3, 1031), errno.EPERM),  # F_SETPIPE_SZ
        ("flock", (3, 2), errno.ENOSYS),
        ("sendto", (3, 0, 0, 0x4000), ALLOW),  # MSG_NOSIGNAL
        ("sendto", (3, 0, 0, 0x4001), errno.EPERM),  # MSG_OOB
        ("recvmsg", (3, 0, 0x40), ALLOW),  # MSG_DONTWAIT
        ("recvmsg", (3, 0, 0x1), errno.EPERM),
        ("sendmsg", (3, 0, 0x4000000), errno.EPERM),  # MSG_ZEROCOPY
        ("setitimer", (0,), ALLOW),
        ("setitimer", (2,), errno.EPERM),  # ITIMER_PROF
        ("timer_create", (1,), ALLOW),
        ("timer_create", (2,), errno.EPERM),  # CLOCK_PROCESS_CPUTIME_ID
        ("timer_create", (0xFFFFFFF6,), errno.EPERM),  # another process's processor time
        ("mmap", (0, 1, 3, 0x22), ALLOW),  # MAP_PRIVATE, MAP_ANONYMOUS
        ("mmap", (0, 1, 3, 0x01), ALLOW),  # MAP_SHARED, of a file
        ("mmap", (0, 1, 3, 0x21), errno.EPERM),
        ("mmap", (0, 1, 3, 0x4021), errno.EPERM),  # and MAP_NORESERVE
        ("mmap", (0, 1, 3, 0x40022), errno.EPERM),  # MAP_HUGETLB
        ("mmap", (0, 1, 3, 0x122), errno.EPERM),  # MAP_GROWSDOWN
        ("madvise", (0, 1, 4), ALLOW),  # MADV_DONTNEED
        ("madvise", (0, 1, 12), errno.EPERM),  # MADV_MERGEABLE
        ("madvise", (0, 1, 21), errno.EPERM),  # MADV_PAGEOUT
        ("mincore", (0, 1, 0), errno.ENOSYS),
        ("fsync", (3,), 0),  # done, without being done
        ("fdatasync", (3,), 0),
        ("sync_file_range", (3,), 0),
        ("msync", (0, 1, 4), 0),  # MS_SYNC
        ("msync", (0, 1, 1), ALLOW),  # MS_ASYNC
        ("clock_nanosleep", (1,), ALLOW),
        ("clock_nanosleep", (3,), errno.EPERM),
        ("socket", (AF_INET, STREAM), errno.EPERM),
    ],
)
def test_some_calls_are_allowed_with_some_arguments(
    machine: str, name: str, arguments: tuple[int, ...], expected: object
) -> None:
    assert call(machine, name, *arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((AF_INET, STREAM | CLOEXEC), ALLOW),
        ((AF_INET, DGRAM), ALLOW),
        ((10, STREAM), ALLOW),
        ((10, STREAM, 6), ALLOW),
        ((AF_INET, DGRAM, 17), ALLOW),
        ((AF_INET, STREAM, 262), errno.EPROTONOSUPPORT),
        ((AF_INET, DGRAM, 1), errno.EPROTONOSUPPORT),
        ((AF_INET, RAW), errno.EPERM),
        ((AF_UNIX, STREAM), errno.EAFNOSUPPORT),
        ((AF_NETLINK, RAW), errno.EAFNOSUPPORT),
    ],
)
def test_with_a_network_there_are_internet_sockets_only(
    machine: str, arguments: tuple[int, ...], expected: object
) -> None:
    assert call(machine, "socket", *arguments, network=True) == expected
    assert call(machine, "connect", network=True) == ALLOW
