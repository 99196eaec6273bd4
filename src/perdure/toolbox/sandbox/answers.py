"""Build a call's result from what came through its pipes. All of that is the code's own claim, so all is checked."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, NoReturn, cast, get_args

from perdure.core.incoming.json_limits import JsonLimits, parse_json
from perdure.core.tools.sandbox import SandboxJob, SandboxLimits, SandboxResult, SandboxStatus, ToolFrame
from perdure.toolbox.sandbox.fork_server import CallExit
from perdure.toolbox.sandbox.inside.results import CONTAINERS_MAX, DEPTH_MAX, NotJson, clean, to_json

ERROR_CHARS = 5_000
FRAMES_MAX = 20
LINE_CHARS = 200
EXTRA_BYTES, EXTRA_CONTAINERS, EXTRA_DEPTH = 1 << 20, 1_000, 5
"""The most that an answer holds beside its value: an error, a traceback, and the text of each changed block."""

BYTES_PER_CHARACTER = 4
NOTICE_BYTES = 4_096
CPU_SLACK = 0.5
"""If a killed process used this part of its processor time, that is taken for the reason."""

_STATUSES = frozenset(get_args(SandboxStatus))


def answer_bytes_max(job: SandboxJob) -> int:
    """The most bytes that an honest answer has: the result, changed blocks, an error."""
    blocks = (job.agent or {}).get("blocks") or {}
    return 2 * job.limits.result_bytes + EXTRA_BYTES * (1 + len(blocks))


def _answer_limits(job: SandboxJob) -> JsonLimits:
    """The limits that an honest answer keeps: `to_json` has held its value to the same."""
    return JsonLimits(
        size_bytes=answer_bytes_max(job),
        depth=DEPTH_MAX + EXTRA_DEPTH,
        containers=CONTAINERS_MAX + EXTRA_CONTAINERS,
    )


def output_bytes_max(limits: SandboxLimits) -> int:
    """How many bytes the code can print before `print` throws away the rest."""
    return limits.output_chars * BYTES_PER_CHARACTER + NOTICE_BYTES


def decode_output(data: bytes | bytearray, limits: SandboxLimits) -> str:
    """Printed bytes as valid text within the limit; a text that is cut says so at its end."""
    text = clean(data.decode(errors="replace"))
    if len(text) <= limits.output_chars:
        return text
    return f"{text[: limits.output_chars]}\n[cut here: only the first {limits.output_chars:,} characters are kept]"


def parse_result(body: bytes, job: SandboxJob) -> SandboxResult:
    """The result that an answer claims; an `error` if it is no answer."""
    try:
        claimed = parse_json(body, _answer_limits(job), parse_constant=_refuse_constant)
        status, error, frames = claimed["status"], claimed.get("error", ""), claimed.get("frames", [])
        if status not in _STATUSES or not isinstance(error, str):
            raise ValueError(status)
        value = to_json(claimed.get("value"), bytes_max=job.limits.result_bytes) if status == "success" else None
        return SandboxResult(
            status=cast("SandboxStatus", status),
            value=value,
            error=clean(error)[:ERROR_CHARS] if status != "success" else "",
            traceback=tuple(_tool_frame(*frame) for frame in frames[:FRAMES_MAX]),
            agent=_changed_blocks(claimed.get("agent"), job) if status == "success" else None,
        )
    except NotJson as error:
        return SandboxResult(status="error", error=str(error))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return SandboxResult(status="error", error="the code sent an answer that can't be read, past its return value")


def result_of_exit(end: CallExit, limits: SandboxLimits, *, answered: bool) -> SandboxResult:
    """The result of a call whose process ended without an answer.

    Args:
        answered: something did come, but longer than an answer can be.
    """
    code = end.code
    if answered:
        return SandboxResult(status="crash", error="the code sent more than an answer can hold, and was stopped")
    if end.failure or code is None:
        why = end.failure or "the sandbox was restarted"
        return SandboxResult(status="crash", error=f"the code was interrupted: {why}; try once more")
    if end.over_memory:
        error = (
            f"its processes together need more memory than {limits.memory_mb:,} MiB, with their page tables, and"
            " sockets as if they were full"
        )
        return SandboxResult(status="memory", error=error)
    cpu_s = limits.wall_s if limits.cpu_s is None else limits.cpu_s
    if code == -signal.SIGKILL and end.cpu_s >= CPU_SLACK * cpu_s:
        error = f"it used all the processor time it may have, {cpu_s:g} s, and was stopped"
        return SandboxResult(status="timeout", error=error)
    if code == -signal.SIGKILL:
        return SandboxResult(
            status="memory", error="its process was killed, most likely because the machine's memory ran out"
        )
    if code == -signal.SIGBUS:  # pages of a mapped file that there is no room for
        error = (
            f"its process crashed with SIGBUS, most likely because its work folder was full: files and shared memory"
            f" together may take {limits.disk_mb:,} MiB"
        )
        return SandboxResult(status="crash", error=error)
    if code < 0:
        name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
        return SandboxResult(status="crash", error=f"its process crashed with {name}")
    return SandboxResult(status="crash", error=f"its process ended before it returned a result (exit code {code})")


def _refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and infinity. Raises: ValueError."""
    raise ValueError(name)


def _tool_frame(line: object, function: object, text: object) -> ToolFrame:
    """A line of the traceback, checked and shortened. Raises: TypeError."""
    if not (isinstance(line, int) and isinstance(function, str) and isinstance(text, str)):
        raise TypeError
    return ToolFrame(line, clean(function)[:LINE_CHARS], clean(text)[:LINE_CHARS])


def _changed_blocks(claimed: object, job: SandboxJob) -> Mapping[str, str] | None:
    """label -> new text, of the blocks that differ from those sent; None: none. Other blocks can't be changed."""
    before: Mapping[str, Any] = (job.agent or {}).get("blocks") or {}
    if claimed is None or not before:
        return None
    if not isinstance(claimed, dict):
        raise TypeError
    changed = {
        label: clean(value)
        for label, value in claimed.items()
        if label in before and isinstance(value, str) and value != before[label]
    }
    return changed or None
