"""Sandboxes for tests: one fork server for many tests, for root and for an ordinary user."""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from perdure.core.tools.sandbox import Isolation, SandboxJob, SandboxLimits, SandboxResult
from perdure.toolbox.sandbox.linux import LinuxSandbox

T = TypeVar("T")

ORDINARY_USER = 61_234
"""An id without an account: the ordinary user where the tests run as root."""

LIMITS = SandboxLimits(wall_s=10)


class Cage:
    """A sandbox with an event loop of its own, so that it outlives single tests."""

    def __init__(self, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self.sandbox = LinuxSandbox(**options)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    @property
    def isolation(self) -> Isolation:
        return self.wait(self.sandbox.isolation())

    def run(self, source: str, function: str | None = None, /, **options: Any) -> SandboxResult:
        """The result of a job with these fields."""
        job = SandboxJob(source=source, function=function, **{"limits": LIMITS, **options})
        return self.wait(self.sandbox.run(job))

    def close(self) -> None:
        self.wait(self.sandbox.close())
        self._runner.close()


def ordinary_python() -> str | None:
    """An interpreter that every user may start; None: there is none here, or the tests don't run as root."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        return None
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        code = "import sys, ctypes, asyncio; sys.exit(sys.version_info < (3, 11))"
        try:
            process = subprocess.run(
                [path, "-I", "-c", code], user=ORDINARY_USER, group=ORDINARY_USER, cwd="/", check=False
            )
        except OSError:
            continue
        if process.returncode == 0:
            return path
    return None


def is_gone(name: str) -> bool:
    """Whether no process of this name is left; it may take a moment to end."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        names = []
        for path in Path("/proc").glob("[0-9]*/comm"):
            try:
                names.append(path.read_text(encoding="utf-8").strip())
            except OSError:
                continue
        if name not in names:
            return True
        time.sleep(0.05)
    return False
