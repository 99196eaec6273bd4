"""One process of llama.cpp: started, asked where it answers, watched, ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from perdure.core.errors import ModelRequestRefused, ModelUnreachable
from perdure.features.local.memory import MemoryPlan

COMMAND = (sys.executable, "-P", str(Path(__file__).with_name("child.py")))
"""What starts the process; `-P` keeps this folder's names out of its imports."""

PASSED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH")
"""The environment variables that it sees. Keys of providers are not among them."""

LOAD_S = 600.0
"""How long a model may take to be read from a slow disk."""
LAST_LINES = 20
REASON = "error loading model: "
"""What stands before the reason in llama.cpp's own line."""


@dataclass(eq=False)
class ModelProcess:
    """A running process and how many requests it serves.

    Args:
        address: where it answers, on 127.0.0.1.
        key: without which it answers nobody.
    """

    name: str
    process: asyncio.subprocess.Process
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    address: str = ""
    uses: int = 0
    stop_timer: asyncio.TimerHandle | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    reading: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None

    @property
    def end(self) -> str:
        """How it ended, as the rest of a sentence."""
        code = self.process.returncode or 0
        how = f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with code {code}"
        return f"{how}: {self.lines[-1]}" if self.lines else how

    async def stop(self) -> None:
        """End it; it has nothing to put in order."""
        if self.stop_timer is not None:
            self.stop_timer.cancel()
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()
        if self.reading is not None:
            await self.reading
        if self.process.stdin is not None:
            self.process.stdin.close()


async def start(name: str, file: Path, *, window_tokens: int, memory: MemoryPlan) -> ModelProcess:
    """A process that has loaded the model and answers.

    Raises: ModelUnreachable, ModelRequestRefused: it ended before that.
    """
    pipe = asyncio.subprocess.PIPE
    child = ModelProcess(
        name,
        await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={variable: os.environ[variable] for variable in PASSED_VARIABLES if variable in os.environ},
            start_new_session=True,  # Ctrl-C stops an answer, not the model
        ),
    )
    child.reading = asyncio.create_task(_read_lines(child))
    task = {
        "path": str(file),
        "name": name,
        "key": child.key,
        "window_tokens": window_tokens,
        "cache_bytes": memory.cache_bytes,
        "memory_bytes": memory.limit_bytes,
        "parent": os.getpid(),
    }
    try:
        async with asyncio.timeout(LOAD_S):
            child.address = await _ask(child, task)
    except BaseException as error:
        await child.stop()
        if isinstance(error, TimeoutError):
            raise ModelUnreachable(f"the model {name} was not loaded within {LOAD_S:g} s") from error
        raise
    return child


async def _ask(child: ModelProcess, task: dict[str, object]) -> str:
    """Say what to load; the address at which it answers then."""
    assert child.process.stdin is not None and child.process.stdout is not None
    with contextlib.suppress(ConnectionError):  # it has ended: its answer is missing too
        child.process.stdin.write(f"{json.dumps(task)}\n".encode())
        await child.process.stdin.drain()
    line = await child.process.stdout.readline()
    try:
        answer = json.loads(line)
    except ValueError:
        await child.process.wait()
        raise ModelUnreachable(f"the process of the model {child.name} did not start: {child.end}") from None
    if "address" not in answer:
        await child.process.wait()
        why = next((line.partition(REASON)[2] for line in child.lines if REASON in line), answer.get("error"))
        raise ModelRequestRefused(f"the model {child.name} could not be loaded: {why}")
    return str(answer["address"])


async def _read_lines(child: ModelProcess) -> None:
    """Keep the last lines that it prints on stderr: they say why it ended."""
    assert child.process.stderr is not None
    while piece := await child.process.stderr.read(4_096):
        child.lines.extend(line.strip()[:300] for line in piece.decode("utf-8", "replace").splitlines() if line.strip())
