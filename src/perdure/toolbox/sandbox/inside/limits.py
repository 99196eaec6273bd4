"""What one call may use up, as the kernel counts it."""

from __future__ import annotations

import math
import resource
from collections.abc import Mapping
from typing import Any

__all__ = ["MEBIBYTE", "set_limits"]

MEBIBYTE = 1 << 20
_OPEN_FILES = 256
_PENDING_SIGNALS = 1_024


def set_limits(limits: Mapping[str, Any], *, count_processes: bool) -> None:
    """Set them for this process and all that it starts, for good.

    Args:
        count_processes: whether the user id is the call's own, so that its processes can be counted by it.
    """
    disk = limits["disk_mb"] * MEBIBYTE
    values = {
        resource.RLIMIT_AS: limits["memory_mb"] * MEBIBYTE,
        resource.RLIMIT_CPU: max(1, math.ceil(limits["cpu_s"])),
        resource.RLIMIT_FSIZE: disk,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: _PENDING_SIGNALS,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
    }
    if count_processes:
        values[resource.RLIMIT_NPROC] = limits["processes"]
    for kind, value in values.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
