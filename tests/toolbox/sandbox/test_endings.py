"""How a job ends when it returns nothing: too long, crashed, cancelled, or its server is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from perdure.core.tools.sandbox import SandboxJob, SandboxLimits
from tests.toolbox.sandbox.cages import LIMITS, Cage


def test_too_long_is_a_timeout(cage: Cage) -> None:
    """What was printed before is kept."""
    result = cage.run("import time\nprint('begun')\ntime.sleep(60)", limits=SandboxLimits(wall_s=0.5))

    assert (result.status, result.stdout) == ("timeout", "begun\n")
    assert result.error == "it did not end within 0.5 s, and was stopped"


def test_a_process_that_ends_is_a_crash(cage: Cage) -> None:
    """Whichever way: by itself, or by a signal."""
    result = cage.run("import os\nos._exit(3)")
    faulted = cage.run("import ctypes\nctypes.string_at(0)")
    closed = cage.run("import os, time\nos.close(4)\ntime.sleep(60)")

    assert (result.status, result.error) == ("crash", "its process ended before it returned a result (exit code 3)")
    assert (faulted.status, faulted.error) == ("crash", "its process crashed with SIGSEGV")
    assert closed.status in {"crash", "memory"}  # killed, because nothing can come any more


def test_cancelling_ends_the_code_and_frees_its_place(cage: Cage) -> None:
    """Twice as often as there are places."""

    async def cancelled() -> None:
        job = SandboxJob(source="import time\ntime.sleep(60)", limits=LIMITS)
        tasks = [asyncio.create_task(cage.sandbox.run(job)) for _ in range(16)]
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    cage.wait(cancelled())

    assert cage.run("1").value == 1


def test_a_fork_server_that_died_is_started_again(cage: Cage) -> None:
    """What ran in it is told as interrupted; the next job finds a new one."""

    async def killed() -> object:
        job = SandboxJob(source="import time\ntime.sleep(60)", limits=LIMITS)
        task = asyncio.create_task(cage.sandbox.run(job))
        await asyncio.sleep(0.3)
        assert cage.sandbox._server is not None
        os.kill(cage.sandbox._server.pid, 9)
        return await task

    interrupted = cage.wait(killed())

    assert (interrupted.status, interrupted.error) == (  # type: ignore[attr-defined]
        "crash",
        "the code was interrupted: the sandbox was restarted; try once more",
    )
    assert cage.run("1 + 1").value == 2


def test_a_server_that_is_killed_leaves_nothing_behind(cage: Cage) -> None:
    """The fork server and what runs in it end with the server, however that ends."""
    name = f"left{os.getpid()}"
    source = f"import ctypes, time; ctypes.CDLL(None).prctl(15, b'{name}'); time.sleep(60)"
    program = (
        "import asyncio, os, signal\n"
        "from perdure.core.tools.sandbox import SandboxJob\n"
        "from perdure.toolbox.sandbox.linux import LinuxSandbox\n"
        "async def main():\n"
        "    sandbox = LinuxSandbox()\n"
        "    await sandbox.isolation()\n"
        f"    asyncio.create_task(sandbox.run(SandboxJob(source={source!r})))\n"
        f"    while {name!r} not in names():\n"
        "        await asyncio.sleep(0.05)\n"
        "    print(sandbox.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "def names():\n"
        "    for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "        try:\n            yield open(f'/proc/{pid}/comm').read().strip()\n"
        "        except OSError:\n            pass\n"
        "asyncio.run(main())\n"
    )

    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)

    assert process.returncode == -signal.SIGKILL, process.stderr
    until = time.monotonic() + 5
    while find_processes(name, process.stdout.strip()) and time.monotonic() < until:
        time.sleep(0.05)
    assert find_processes(name, process.stdout.strip()) == []


def find_processes(name: str, pid: str) -> list[str]:
    """What is left of a process of this name, and of this number."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text(encoding="utf-8").strip() == name or path.parent.name == pid:
                pids.append(path.parent.name)
        except OSError:
            continue
    return pids
