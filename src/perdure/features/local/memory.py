"""What a model takes of the machine's memory, and whether there is enough."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from perdure.core.errors import ModelRequestRefused
from perdure.features.local.gguf import ModelHead

WORK_BYTES = 400 << 20
"""What llama.cpp takes besides the model and its memory of the prompt."""
CACHE_BYTES_MAX = 1 << 30
ROOM_BYTES = 1 << 30
"""What the limit leaves above the estimate, which is one."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a process is expected to take, and may take.

    Args:
        needs_bytes: the model, the memory of one prompt, and what the work takes.
        cache_bytes: for prompts of other conversations that are kept besides.
        limit_bytes: of memory of its own; beyond it the process ends.
    """

    needs_bytes: int
    cache_bytes: int
    limit_bytes: int


def plan_memory(head: ModelHead, window_tokens: int, limit_mb: int = 0) -> MemoryPlan:
    """The memory of a model with this window.

    Args:
        limit_mb: the limit that a person has set; 0: none.
    """
    prompt = head.cache_bytes * window_tokens
    needs, cache = head.size_bytes + prompt + WORK_BYTES, min(2 * prompt, CACHE_BYTES_MAX)
    if limit_mb:
        limit = limit_mb << 20
        return MemoryPlan(needs, max(0, min(cache, limit - needs)), limit)
    return MemoryPlan(needs, cache, needs + cache + ROOM_BYTES)


def check_memory(name: str, plan: MemoryPlan, window_tokens: int) -> None:
    """Raises: ModelRequestRefused: the model needs more than may be taken, or than is free."""
    free = available_bytes()
    helps = (
        f"take a smaller model (`perdure model list`), or less than {window_tokens:,} in PERDURE_LOCAL_WINDOW_TOKENS"
    )
    if plan.needs_bytes > plan.limit_bytes:
        raise ModelRequestRefused(
            f"the model {name} needs about {_gb(plan.needs_bytes)} of memory, and PERDURE_LOCAL_MEMORY_MB allows"
            f" {_gb(plan.limit_bytes)}: set it higher, {helps}"
        )
    if free is not None and plan.needs_bytes > free:
        raise ModelRequestRefused(
            f"the model {name} needs about {_gb(plan.needs_bytes)} of memory, and {_gb(free)} are free: end other"
            f" programs, {helps}"
        )


def available_bytes() -> int | None:
    """The memory that can be had without pushing others out; None: this system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        free = int(fields["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return None
    with contextlib.suppress(OSError, ValueError):  # a container may have less than its machine; `max` is no number
        group = Path("/sys/fs/cgroup")
        taken = int((group / "memory.current").read_text("ascii"))
        stats = dict(line.split() for line in (group / "memory.stat").read_text("ascii").splitlines())
        taken -= int(stats.get("inactive_file", 0)) + int(stats.get("active_file", 0))
        free = min(free, int((group / "memory.max").read_text("ascii")) - taken)
    return free


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
