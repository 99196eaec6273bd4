"""Run the child process that reads one file, and read its answer within limits: it is trusted as little as the file."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

from perdure.converters.answers import document_of
from perdure.converters.limits import Limits, Refusal
from perdure.core.documents import Document, FileKind
from perdure.core.incoming.json_limits import JsonLimits, parse_json

LINE_BYTES = 2_000_000  # a piece of 65,536 characters, each of them escaped, has at most 800,000
PIPE_BYTES = 65_536


class Child:
    """One conversion in a process of its own. `stop` may be called from any thread, at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def stop(self) -> None:
        """End the process; `read` then raises `Refusal`."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.kill()

    def read(
        self, name: str, kind: FileKind, file: IO[bytes], limits: Limits, progress: Callable[[int, int], None]
    ) -> Document:
        """The document of `file`, a real file open for reading.

        Raises: Refusal: it was refused, or the process crashed, hung, said too much or was stopped; ExtraMissing.
        """
        request = json.dumps({"name": name, "kind": kind, "limits": asdict(limits)})
        with self._lock:
            if self._stopped:
                raise Refusal("the conversion was stopped")
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-m", "perdure.converters.child", request],
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                cwd="/",
                start_new_session=True,
            )
        try:
            return self._read_answer(process, name, kind, limits, progress)
        finally:
            self.stop()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _read_answer(
        self,
        process: subprocess.Popen[bytes],
        name: str,
        kind: FileKind,
        limits: Limits,
        progress: Callable[[int, int], None],
    ) -> Document:
        text: list[str] = []
        chars = 0
        for line in _lines(process, limits):
            match line:
                case {"progress": [int(done), int(total)]}:
                    progress(done, total)
                case {"text": str(piece)}:
                    text.append(piece)
                    chars += len(piece)
                    limits.check_text(chars)
                case {"document": dict(rest)}:
                    return document_of({**rest, "text": "".join(text)}, name, kind, limits)
                case _:
                    return document_of(line, name, kind, limits)
        if self._stopped:
            raise Refusal("the conversion was stopped")
        raise Refusal(_ending(process.wait(), limits))


def _lines(process: subprocess.Popen[bytes], limits: Limits) -> Iterator[object]:
    """The lines of the answer as values, until it ends. Raises: Refusal: it takes too long, or is none."""
    pipe = process.stdout
    assert pipe is not None
    deadline = time.monotonic() + limits.wall_s
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not selector.select(remaining):
                raise Refusal(f"it took longer than {limits.wall_s:g} seconds, the limit")
            piece = os.read(pipe.fileno(), PIPE_BYTES)
            if not piece:
                return
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > LINE_BYTES:
                raise Refusal("the converter answered what it should not")
            for line in lines:
                try:
                    yield parse_json(line, JsonLimits(size_bytes=LINE_BYTES))
                except ValueError as error:
                    raise Refusal("the converter answered what it should not") from error


def _ending(code: int, limits: Limits) -> str:
    """Why a process that gave no answer ended."""
    if code in {-signal.SIGXCPU, -signal.SIGKILL}:
        return f"it took more than {limits.cpu_s:g} seconds of computing, the limit, or was killed for want of memory"
    if code < 0:
        name = str(-code)
        with suppress(ValueError):
            name = signal.Signals(-code).name
        return f"reading it crashed the converter ({name})"
    return f"reading it failed in the converter (exit code {code})"


def _environment() -> dict[str, str]:
    """No more than Python needs: where its modules are, how text is encoded. Nothing secret is there."""
    path = [str(Path(entry).absolute()) for entry in sys.path if entry]
    return {"PYTHONPATH": os.pathsep.join(path), "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}
