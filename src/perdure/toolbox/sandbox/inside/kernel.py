"""System calls that Python has no names for, by ctypes. Every failure is an OSError that names the call."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
PR_SET_KEEPCAPS, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 8, 28, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_SECURE_ALL_LOCKED = 0b1110_1111  # no root by uid, no set-uid fix-up, no ambient capabilities; each locked
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def _checked(name: str, result: int) -> int:
    """The result of a system call called `name`. Raises: OSError: it is negative, so the call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def system_call(name: str, number: int, *arguments: int | bytes) -> int:
    """A raw system call. Integers are passed as machine words, bytes as pointers."""
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(name, _libc.syscall(ctypes.c_long(number), *words))


def prctl(option: int, *arguments: int) -> int:
    """Set or get an attribute of this process: `man 2 prctl`."""
    return _checked(f"prctl({option})", _libc.prctl(option, *(*arguments, 0, 0, 0, 0)[:4]))


def unshare(flags: int) -> None:
    """Put this process, or its next child, into new namespaces: `CLONE_NEW*`."""
    _checked(f"unshare({flags:#x})", _libc.unshare(ctypes.c_int(flags)))


def set_namespace(fd: int, kind: int) -> None:
    """Enter an existing namespace, which `fd` is an open file of."""
    _checked(f"setns({kind:#x})", _libc.setns(ctypes.c_int(fd), ctypes.c_int(kind)))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system, or change a mount: `man 2 mount`."""
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode() or None
    )
    _checked(f"mount({source!r}, {target!r}, {kind!r}, {flags:#x})", result)


def unmount(target: str, flags: int) -> None:
    """Take a mount away: `man 2 umount2`."""
    _checked(f"umount2({target!r})", _libc.umount2(os.fsencode(target), ctypes.c_int(flags)))


def pivot_root(new: str, old: str) -> None:
    """Make the folder `new` the root of this mount namespace, and put the old root at the folder `old`."""
    number = {"x86_64": 155, "aarch64": 41}[os.uname().machine]
    system_call(f"pivot_root({new!r})", number, os.fsencode(new), os.fsencode(old))


def no_new_privileges() -> None:
    """From here on no program that is executed gains anything: set-uid bits and file capabilities are ignored."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Give up every capability, and every way to get one back."""
    with contextlib.suppress(PermissionError):  # without CAP_SETPCAP there is nothing that could come back
        prctl(PR_SET_SECUREBITS, _SECURE_ALL_LOCKED)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    _set_capabilities(0)


def keep_capabilities(capabilities: tuple[int, ...], uid: int) -> None:
    """Become `uid`, also as group, with no capability but these."""
    prctl(PR_SET_KEEPCAPS, 1)
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    _set_capabilities(sum(1 << capability for capability in capabilities))


def write_file(name: str, text: str, folder: int) -> None:
    """Write to an existing file, by its path below an open folder (a descriptor), such as /proc."""
    fd = os.open(name, os.O_WRONLY, dir_fd=folder)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _set_capabilities(mask: int) -> None:
    """Set the effective and permitted capabilities of this process, a bit for each."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = struct.pack("=IIIIII", low, low, 0, high, high, 0)
    _checked("capset", _libc.capset(header, data))
