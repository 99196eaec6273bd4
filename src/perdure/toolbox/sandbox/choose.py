"""Which sandbox this process has: that of Linux, or one that refuses everything and says why."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from perdure.core.errors import SandboxUnavailable
from perdure.core.tools.sandbox import Isolation, Sandbox, SandboxJob, SandboxResult
from perdure.toolbox.sandbox.measures import no_isolation

PACKAGES_MB = 4_096
TIMEOUT_S = 600.0


def open_sandbox(
    mode: str,
    *,
    cache: Path | None,
    network: bool,
    concurrency: int,
    spares: int = 1,
    memory_mb: int,
    processes: int,
    timeout_s: float = TIMEOUT_S,
    packages_mb: int = PACKAGES_MB,
    private_hosts: Sequence[str] = (),
) -> Sandbox:
    """The sandbox of these settings. It starts nothing before it is used.

    Args:
        mode: `auto`: code is run where it can be held back; `unsafe`: also where it can't; `off`: nowhere.
        cache: where requirements are installed.
        timeout_s: the longest that a call may take, whatever its tool says.
        network: whether tools may reach the hosts that they list.
        spares: processes that wait for a call.
        packages_mb: the room that requirements may take in `cache`.
        private_hosts: those on this machine or in a private network that tools may list.
    """
    if mode == "off":
        return NoSandbox("PERDURE_SANDBOX is off")
    if sys.platform != "linux":
        return NoSandbox(f"it works on Linux only, this is {sys.platform}")
    from perdure.toolbox.sandbox.linux import LinuxSandbox

    return LinuxSandbox(
        cache=cache,
        concurrency=concurrency,
        network=network,
        unsafe=mode == "unsafe",
        memory_mb=memory_mb,
        processes=processes,
        timeout_s=timeout_s,
        packages_mb=packages_mb,
        private_hosts=private_hosts,
    )


class NoSandbox:
    """Runs nothing."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def run(
        self,
        job: SandboxJob,
        *,
        progress: Callable[[str], None] | None = None,
        lines: Callable[[str], None] | None = None,
    ) -> SandboxResult:
        raise SandboxUnavailable(self._why)

    async def isolation(self) -> Isolation:
        return no_isolation(self._why)

    async def close(self) -> None:
        return
