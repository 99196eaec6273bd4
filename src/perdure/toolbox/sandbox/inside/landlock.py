"""Landlock: limit files and connections of the code, whatever the permissions of the file system say."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Sequence

from .kernel import system_call
from .root_folder import DEVICES

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same on every processor
_VERSION_FLAG = 1
_RULE_PATH_BENEATH, _RULE_NET_PORT = 1, 2

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_NEVER = _MAKE_CHAR | _MAKE_SOCK | _MAKE_BLOCK | _IOCTL_DEV

_KNOWN_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # rights on files that an ABI knows; none were added after 5
_NETWORK_ABI, _SCOPE_ABI = 4, 6
_BIND_AND_CONNECT, _CONNECT, _ABSTRACT_SOCKETS, _SIGNALS = 0b11, 0b10, 0b01, 0b10


def supported_version() -> int:
    """The version of Landlock that this kernel has; 0: it is missing or turned off."""
    try:
        return system_call("landlock_create_ruleset", _CREATE, 0, 0, _VERSION_FLAG)
    except OSError:
        return 0


def restrict(
    version: int, *, read: Sequence[str], write: Sequence[str], network: bool, connect: Sequence[int] = ()
) -> None:
    """Allow this thread, and what it starts, only what is named here, and to write to `DEVICES`. Before it,
    `no_new_privileges` must have been called.

    Args:
        version: from `supported_version`.
        read: files and folders that may be read and executed. What does not exist is skipped.
        write: folders in which anything may be done but making devices and sockets.
        network: whether all connections over TCP are allowed.
        connect: if not, the ports that may be connected to.
    """
    handled = (1 << _KNOWN_BITS[min(version, 5)]) - 1
    connections = _BIND_AND_CONNECT if version >= _NETWORK_ABI and not network else 0
    scopes = _ABSTRACT_SOCKETS | _SIGNALS if version >= _SCOPE_ABI else 0
    words = 1 + (version >= _NETWORK_ABI) + (version >= _SCOPE_ABI)
    attributes = struct.pack("=QQQ", handled, connections, scopes)[: 8 * words]
    rules = system_call("landlock_create_ruleset", _CREATE, attributes, len(attributes), 0)
    try:
        for path in read:
            _add_rule(rules, path, _READ & handled)
        for path in write:
            _add_rule(rules, path, handled & ~_NEVER)
        for path in DEVICES:
            _add_rule(rules, path, (_READ_FILE | _WRITE_FILE | _TRUNCATE) & handled)
        for port in connect if connections else ():
            rule = struct.pack("=QQ", _CONNECT, port)
            system_call("landlock_add_rule", _ADD_RULE, rules, _RULE_NET_PORT, rule, 0)
        system_call("landlock_restrict_self", _RESTRICT, rules, 0)
    finally:
        os.close(rules)


def _add_rule(rules: int, path: str, rights: int) -> None:
    """Allow rights on a file, or on a folder and what is in it. A path that does not exist is skipped."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_FILES
        system_call("landlock_add_rule", _ADD_RULE, rules, _RULE_PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)
