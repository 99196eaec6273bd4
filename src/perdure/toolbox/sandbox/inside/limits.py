"""Resource limits of one call, which the kernel enforces."""

from __future__ import annotations

import math
import resource
from collections.abc import Mapping
from typing import Any

MEBIBYTE = 1 << 20
_OPEN_FILES = 64  # each may be a socket with a full buffer, which no other limit counts
_PENDING_SIGNALS = 1_024
_UNUSED = (
    *(resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE),
    *(resource.RLIMIT_RTPRIO, resource.RLIMIT_NICE),
)
"""The limits that are 0 for every call."""


def set_limits(limits: Mapping[str, Any], *, count_processes: bool) -> None:
    """Set the limits of a call on this process and all its children. They can't be raised again.

    Args:
        limits: `memory_mb`, `disk_mb`, `processes`.
        count_processes: whether the call has its own user id, by which the kernel counts its processes.
    """
    set_hard(
        {
            **dict.fromkeys(_UNUSED, 0),
            resource.RLIMIT_NOFILE: _OPEN_FILES,
            resource.RLIMIT_SIGPENDING: _PENDING_SIGNALS,
            resource.RLIMIT_FSIZE: limits["disk_mb"] * MEBIBYTE,
            resource.RLIMIT_AS: limits["memory_mb"] * MEBIBYTE,
        }
    )
    if count_processes:
        set_hard({resource.RLIMIT_NPROC: limits["processes"]})


def lower_limits(limits: Mapping[str, Any], *, count_processes: bool) -> None:
    """Set the limits of one job, which can only be lower: `memory_mb`, `cpu_s`, `processes`."""
    cpu_s = max(1, math.ceil(limits["cpu_s"]))
    set_hard({resource.RLIMIT_AS: limits["memory_mb"] * MEBIBYTE, resource.RLIMIT_CPU: cpu_s})
    if count_processes:
        set_hard({resource.RLIMIT_NPROC: limits["processes"]})


def set_hard(values: Mapping[int, int]) -> None:
    """Set soft and hard limits by kind (`resource.RLIMIT_*`). None can be raised again."""
    for kind, value in values.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
