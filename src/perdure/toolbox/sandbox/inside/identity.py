"""Which user the code is: ranges of ids that belong to nobody, and the maps of user namespaces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .kernel import PR_SET_DUMPABLE, prctl, unshare

Extent = tuple[int, int, int]
"""First id inside, first id outside, how many."""

_HIGH = 0x7000_0000  # above what is given to users, services and containers (`man subuid`, systemd's table of ids)
_SPREAD = 65_536
_LAST = 0xFFFF_FFFE


def current_map(kind: str = "uid") -> list[Extent]:
    """The map of the user namespace that this process is in; `kind` is uid or gid."""
    lines = Path(f"/proc/self/{kind}_map").read_text(encoding="ascii").splitlines()
    return [(int(inside), int(outside), int(count)) for inside, outside, count in (line.split() for line in lines)]


def free_range(extents: Sequence[Extent], count: int, *, number: int) -> int:
    """The first of `count` ids that no user of this machine has, as far as can be told.

    Args:
        extents: what is mapped here; in a container this may be few.
        number: of this process, so that two servers take different ids.

    Raises: ValueError: too few ids are mapped here.
    """
    wanted = _HIGH + number % _SPREAD * count
    for inside, _, length in extents:
        if inside <= wanted and wanted + count <= inside + length:
            return wanted
    inside, length = max(((inside, length) for inside, _, length in extents), key=lambda extent: extent[1])
    if length < 2 * count:
        raise ValueError(f"only {length} user ids are mapped here, {2 * count} are needed")
    return min(inside + length, _LAST) - count


def identity_map(extents: Sequence[Extent]) -> list[Extent]:
    """Every id that is mapped here, as itself."""
    return [(inside, inside, count) for inside, _, count in extents]


def unshare_mapped(
    flags: int,
    *,
    uids: Sequence[Extent],
    gids: Sequence[Extent],
    proc: int,
    alone: bool = False,
    become: int | None = None,
) -> None:
    """Enter new namespaces, among them a user namespace whose maps a process that stays outside writes.

    Args:
        become: the user and group to be from before on; the process that writes stays what it is.
        proc: an open /proc.
        alone: the maps hold this user only, and an ordinary user may write them.

    Raises: OSError: not allowed, or not possible here.
    """
    pid = os.getpid()
    go, went = os.pipe()
    helper = os.fork()
    if helper == 0:
        status = 1
        try:
            os.close(went)
            if os.read(go, 1):
                _write_maps(str(pid), uids, gids, proc=proc, alone=alone)
                status = 0
        except OSError as error:
            status = error.errno or 1
        finally:
            os._exit(status)
    os.close(go)
    try:
        if become is not None:
            os.setresgid(become, become, become)
            os.setresuid(become, become, become)
            prctl(
                PR_SET_DUMPABLE, 1
            )  # else /proc would have this process belong to root, and its maps be closed to all
        unshare(flags)
        os.write(went, b"1")
    finally:
        os.close(went)
        _, status = os.waitpid(helper, 0)
    if status:
        number = os.waitstatus_to_exitcode(status)
        raise OSError(number, f"the user namespace's map could not be written: {os.strerror(abs(number))}")


def map_self(*, inside: int, outside: int, proc: int) -> None:
    """The map of the user namespace that this process has just made for itself: one user."""
    _write_maps("self", [(inside, outside, 1)], [(inside, outside, 1)], proc=proc, alone=True)


def _write_maps(who: str, uids: Sequence[Extent], gids: Sequence[Extent], *, proc: int, alone: bool) -> None:
    if alone:
        _write(f"{who}/setgroups", "deny", proc)
    for name, extents in (("uid_map", uids), ("gid_map", gids)):
        _write(f"{who}/{name}", "".join(f"{inside} {outside} {count}\n" for inside, outside, count in extents), proc)


def _write(name: str, text: str, proc: int) -> None:
    fd = os.open(name, os.O_WRONLY, dir_fd=proc)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
