"""User ids for the code: ranges that belong to nobody, and the maps of user namespaces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .kernel import PR_SET_DUMPABLE, prctl, unshare, write_file

IdRange = tuple[int, int, int]
"""(first id inside a user namespace, first id outside, how many ids)."""

# Above the ids of users, services and containers (`man subuid`, systemd's table of ids).
_FIRST_FREE_ID = 0x7000_0000
_SPREAD = 65_536
_LAST_ID = 0xFFFF_FFFE


def current_map(kind: str = "uid") -> list[IdRange]:
    """The id ranges of the user namespace that this process is in; `kind` is uid or gid."""
    lines = Path(f"/proc/self/{kind}_map").read_text(encoding="ascii").splitlines()
    return [(int(inside), int(outside), int(count)) for inside, outside, count in (line.split() for line in lines)]


def free_range(mapped: Sequence[IdRange], count: int, *, number: int) -> int:
    """The first of `count` ids in a row that no user of this machine has, as far as is known.

    Args:
        mapped: the ranges that are mapped here; in a container these may be few.
        number: a process id, so that two servers take different ids.

    Raises: ValueError: too few ids are mapped here.
    """
    first = _FIRST_FREE_ID + number % _SPREAD * count
    for inside, _, length in mapped:
        if inside <= first and first + count <= inside + length:
            return first
    inside, length = max(((inside, length) for inside, _, length in mapped), key=lambda one: one[1])
    if length < 2 * count:
        raise ValueError(f"only {length} user ids are mapped here, {2 * count} are needed")
    return min(inside + length, _LAST_ID) - count


def identity_map(mapped: Sequence[IdRange]) -> list[IdRange]:
    """The map that gives every mapped id itself."""
    return [(inside, inside, count) for inside, _, count in mapped]


def unshare_mapped(
    flags: int,
    *,
    uids: Sequence[IdRange],
    gids: Sequence[IdRange],
    proc: int,
    only_self: bool = False,
    become: int | None = None,
) -> None:
    """Enter new namespaces, among them a user namespace whose maps a process that stays outside writes.

    Args:
        uids, gids: the maps.
        proc: an open /proc.
        only_self: the maps hold this user only, so an ordinary user may write them.
        become: the user and group to change to first; the process that writes the maps keeps its own.

    Raises: OSError: not allowed, or not possible here.
    """
    pid = os.getpid()
    read_end, write_end = os.pipe()
    helper = os.fork()
    if helper == 0:
        status = 1
        try:
            os.close(write_end)
            if os.read(read_end, 1):
                _write_maps(str(pid), uids, gids, proc=proc, only_self=only_self)
                status = 0
        except OSError as error:
            status = error.errno or 1
        finally:
            os._exit(status)
    os.close(read_end)
    try:
        if become is not None:
            os.setresgid(become, become, become)
            os.setresuid(become, become, become)
            prctl(PR_SET_DUMPABLE, 1)  # else /proc would have this process and its maps belong to root
        unshare(flags)
        os.write(write_end, b"1")
    finally:
        os.close(write_end)
        _, status = os.waitpid(helper, 0)
    if status:
        number = os.waitstatus_to_exitcode(status)
        raise OSError(number, f"the user namespace's map could not be written: {os.strerror(abs(number))}")


def map_self(*, inside: int, outside: int, proc: int) -> None:
    """Write the maps of the user namespace that this process has just made: the user and group `outside` are `inside`
    in it. `proc` is an open /proc."""
    _write_maps("self", [(inside, outside, 1)], [(inside, outside, 1)], proc=proc, only_self=True)


def _write_maps(pid: str, uids: Sequence[IdRange], gids: Sequence[IdRange], *, proc: int, only_self: bool) -> None:
    """Write the maps of a process's user namespace; see `unshare_mapped`. Raises: OSError."""
    if only_self:
        write_file(f"{pid}/setgroups", "deny", proc)
    for name, ranges in (("uid_map", uids), ("gid_map", gids)):
        text = "".join(f"{inside} {outside} {count}\n" for inside, outside, count in ranges)
        write_file(f"{pid}/{name}", text, proc)
