"""One process of llama.cpp: started if there is memory for it, asked, watched, ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx

from perdure.core.errors import ModelRequestRefused, ModelUnreachable
from perdure.core.tasks import undone_by
from perdure.features.local.catalogue import read_head
from perdure.toolbox.processes import end_group, start_group

COMMAND = (sys.executable, "-P", str(Path(__file__).with_name("child.py")))
"""What starts the process; `-P` keeps this folder's names out of its imports."""

PASSED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH")
"""The environment variables that it sees. Keys of providers are not among them."""

DEATH_S = 0.5
"""How long after its connection a process may take to end, so that an error can say why."""
REASON = "error loading model: "
"""The text before the reason in a line that llama.cpp prints."""
LOG_BYTES = 16_384
"""How much of its log, from the end, is read."""
WORK_BYTES = 400 << 20
"""The memory that llama.cpp needs besides the model and its cache of the prompt."""
ROOM_BYTES = 1 << 30
"""The most memory for prompts of other conversations, and the reserve above the estimate of what a model needs."""


@dataclass(eq=False)
class ModelProcess:
    """A running process and how many requests it serves.

    Args:
        log: what it prints; the last lines say why it ended.
        idle_s: how long it waits for a request before it is ended.
        key: requests without this key are refused.
        address: its URL on 127.0.0.1; empty: it does not answer.
        timer: ends it when it was idle for so long; None: it serves, or never did.
    """

    process: asyncio.subprocess.Process
    log: IO[bytes]
    idle_s: float
    key: str = field(repr=False)
    address: str = ""
    uses: int = 0
    timer: asyncio.TimerHandle | None = None

    @property
    def alive(self) -> bool:
        """Whether it answers requests."""
        return bool(self.address) and self.process.returncode is None

    def begin(self) -> None:
        """Count a request as begun; `end` has to follow."""
        self.uses += 1
        if self.timer is not None:
            self.timer.cancel()

    def end(self) -> None:
        """Count a request as finished. After `idle_s` without requests the process ends, until the next request."""
        self.uses -= 1
        if not self.uses and self.alive:
            self.timer = asyncio.get_running_loop().call_later(self.idle_s, self._expire)

    def _expire(self) -> None:
        """End the process, if it still runs."""
        if self.alive:
            self.address = ""
            self.process.kill()

    async def stop(self) -> None:
        """End the process at once: it has nothing to save."""
        if self.timer is not None:
            self.timer.cancel()
        if self.process.returncode is None:
            await end_group(self.process)
        self.log.close()

    def last_words(self) -> str:
        """The reason that llama.cpp gave for its end, else the last line that it printed."""
        if self.log.closed:
            return ""
        file = self.log.fileno()  # its offset is that of the process: it is left alone
        text = os.pread(file, LOG_BYTES, max(0, os.fstat(file).st_size - LOG_BYTES)).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return next((line.partition(REASON)[2] for line in lines if REASON in line), "".join(lines[-1:]))[:300]

    def why(self) -> str:
        """Return how the process ended, as the rest of a sentence."""
        code = self.process.returncode or 0
        how = f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with code {code}"
        return ": ".join(filter(None, (how, self.last_words())))

    async def explain(self, error: httpx.HTTPError) -> httpx.HTTPError:
        """Return the error of a connection, or one that says how the process ended if it did."""
        try:
            async with asyncio.timeout(DEATH_S):
                await self.process.wait()
        except TimeoutError:
            return error
        return httpx.RemoteProtocolError(f"its process is gone, {self.why()}; the next request starts it again")


async def start(name: str, file: Path, window_tokens: int, limit_mb: int, idle_s: float) -> ModelProcess:
    """Start a process, and return it when it has loaded the model and answers.

    Args:
        name: the model's, for errors; `file` is its file.
        window_tokens: the longest prompt with its answer.
        limit_mb: the most memory of its own; 0: what it is expected to need, and a reserve.
        idle_s: as `ModelProcess` has it.
    Raises: ModelRequestRefused: too little memory, or the model can't be loaded; ModelUnreachable: it ended before.
    """
    head = read_head(file)
    prompt_bytes = head.cache_bytes * window_tokens
    needed = head.size_bytes + prompt_bytes + WORK_BYTES
    limit = limit_mb << 20 or needed + 2 * ROOM_BYTES
    bound, whose = min((limit, "PERDURE_LOCAL_MEMORY_MB allows"), (_free_bytes(), "this machine has free"))
    if needed > bound:
        raise ModelRequestRefused(
            f"the model {name} needs about {needed / 1e9:.1f} GB of memory, and {whose} {bound / 1e9:.1f} GB: take a"
            f" smaller model (`perdure model list`), or less than {window_tokens:,} in PERDURE_LOCAL_WINDOW_TOKENS"
        )
    task = {
        "path": str(file),
        "name": name,
        "key": secrets.token_urlsafe(24),
        "window_tokens": window_tokens,
        "cache_bytes": min(2 * prompt_bytes, ROOM_BYTES, limit - needed),
        "memory_bytes": limit,
        "parent": os.getpid(),
    }
    log = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the process
    environment = {variable: os.environ[variable] for variable in PASSED_VARIABLES if variable in os.environ}
    pipe = asyncio.subprocess.PIPE
    process = await start_group(*COMMAND, stdin=pipe, stdout=pipe, stderr=log, env=environment)
    child = ModelProcess(process, log, idle_s, str(task["key"]))
    assert process.stdin is not None and process.stdout is not None
    async with undone_by(child.stop):
        process.stdin.write(f"{json.dumps(task)}\n".encode())
        child.address = (await process.stdout.readline()).decode().strip()
        if child.address:
            return child
        if await process.wait() > 0:
            raise ModelRequestRefused(f"the model {name} could not be loaded: {child.last_words()}")
        raise ModelUnreachable(f"the process of the model {name} did not start: {child.why()}")


def _free_bytes() -> int:
    """Return the memory that this machine or container has free; `sys.maxsize` if the system does not say."""
    free = sys.maxsize
    with contextlib.suppress(OSError, LookupError, ValueError):
        free = int(Path("/proc/meminfo").read_text("ascii").partition("MemAvailable:")[2].split()[0]) << 10
        group = Path("/sys/fs/cgroup")  # a container may have less than its machine; `max` is no number
        stats = dict(line.split() for line in (group / "memory.stat").read_text("ascii").splitlines())
        taken = int((group / "memory.current").read_text("ascii")) - int(stats["file"])
        free = min(free, int((group / "memory.max").read_text("ascii")) - taken)
    return free


class LocalTransport(httpx.AsyncHTTPTransport):
    """An HTTP transport to local models: sends a request to the process of its model, which `begin` starts or finds,
    and answers the list of models from `names`."""

    def __init__(self, names: Callable[[], Sequence[str]], begin: Callable[[str], Awaitable[ModelProcess]]) -> None:
        super().__init__(trust_env=False)
        self._names, self._begin = names, begin

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return the answer to a request. Raises: httpx.HTTPError, ModelError."""
        if request.method == "GET":
            shape = {"object": "list", "data": [{"id": name, "object": "model"} for name in self._names()]}
            # A stream, as a connection gives it: the caller reads it.
            return httpx.Response(200, stream=httpx.ByteStream(json.dumps(shape).encode()))
        process = await self._begin(json.loads(await request.aread())["model"])
        request.url = httpx.URL(process.address).join(request.url.raw_path.decode("ascii"))
        request.headers.update({"host": request.url.netloc.decode("ascii"), "authorization": f"Bearer {process.key}"})
        try:
            response = await super().handle_async_request(request)
        except BaseException as error:
            process.end()
            if isinstance(error, httpx.HTTPError):
                raise await process.explain(error) from error
            raise
        response.stream = _Answer(response.stream, process)
        return response


class _Answer(httpx.AsyncByteStream):
    """The answer of a process, piece by piece; when it is closed, the process serves one request less."""

    def __init__(self, stream: httpx.SyncByteStream | httpx.AsyncByteStream, process: ModelProcess) -> None:
        assert isinstance(stream, httpx.AsyncByteStream)
        self._stream, self._process = stream, process

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces. Raises: httpx.HTTPError, which says how the process ended if it did."""
        try:
            async for piece in self._stream:
                yield piece
        except httpx.HTTPError as error:
            raise await self._process.explain(error) from error

    async def aclose(self) -> None:
        """Close the stream, and count the request as finished."""
        try:
            await self._stream.aclose()
        finally:
            self._process.end()
