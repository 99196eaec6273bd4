"""Which sandbox this process has: that of Linux, or one that refuses everything and says why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from perdure.core.errors import SandboxUnavailable
from perdure.core.tools.sandbox import Isolation, Sandbox, SandboxJob, SandboxResult
from perdure.toolbox.sandbox.measures import no_isolation


def open_sandbox(mode: str, **options: Any) -> Sandbox:
    """The sandbox of these settings. It starts nothing before it is used.

    Args:
        mode: `auto`: run code only if this machine can isolate it; `unsafe`: also if it can't; `off`: run none.
        options: those of `LinuxSandbox`.
    """
    if mode == "off":
        return NoSandbox("PERDURE_SANDBOX is off")
    if sys.platform != "linux":
        return NoSandbox(f"it works on Linux only, this is {sys.platform}")
    from perdure.toolbox.sandbox.linux import LinuxSandbox

    return LinuxSandbox(unsafe=mode == "unsafe", **options)


class NoSandbox:
    """`Sandbox` that runs nothing, and gives its reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def run(
        self,
        job: SandboxJob,
        *,
        progress: Callable[[str], None] | None = None,
        lines: Callable[[str], None] | None = None,
    ) -> SandboxResult:
        """Run nothing. Raises: SandboxUnavailable, with the reason."""
        raise SandboxUnavailable(self._reason)

    async def isolation(self) -> Isolation:
        return no_isolation(self._reason)

    async def close(self) -> None:
        return
