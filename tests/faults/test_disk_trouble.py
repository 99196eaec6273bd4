"""A real server on a disk that is full or read-only: at its start, and while it works behind the scenes.

A file layer says so to the server's process alone; the disk itself is well.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure import AsyncPerdure
from perdure.core.ids import AgentId
from perdure.testing.clock import START
from tests.faults.disasters import Served, serving
from tests.faults.file_layer import COMPILER, layer_variables
from tests.support.programs import environment

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="needs a C compiler, and Linux"),
]

FULL = os.environ.get("PERDURE_FAULTS") == "full"
MESSAGES = 300
WAIT_S = 30.0


async def fill(store: Path) -> AgentId:
    """A store with an agent that has a history."""
    async with await AsyncPerdure.open(store) as perdure:
        agent = await perdure.create_agent("ada", model="perdure/extractive")
        await agent.import_messages([("user", None, f"walrus {number}", START) for number in range(MESSAGES)])
        return agent.id


def refused_start(home: Path, disk: Path, record: Path) -> list[dict[str, Any]]:
    """The lines of the log of a server that does not start."""
    ours = environment(home, PERDURE_LOG="json", **layer_variables(home, record, disk=disk))
    command = [sys.executable, "-m", "perdure", "serve", "--port", "0"]
    done = subprocess.run(command, env=ours, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    return [json.loads(line) for line in done.stderr.splitlines()]


STARTS = [
    ("full", True, "no space left for"),
    ("full", False, "no space left for"),
    ("readonly", True, "its folder must exist and be writable"),
    ("readonly", False, "can't be"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("trouble", "there", "told"), STARTS if FULL else STARTS[:1])
def test_a_start_on_a_full_or_read_only_disk_is_refused(tmp_path: Path, trouble: str, there: bool, told: str) -> None:
    """With exit code 1, what to do, and nothing changed, whether there is a store or not."""
    home, disk = tmp_path / "home", tmp_path / "disk"
    if there:
        asyncio.run(fill(home / "perdure.db"))
    before = (home / "perdure.db").read_bytes() if there else b""
    disk.write_text(trouble)
    last = refused_start(home, disk, tmp_path / "record")[-1]

    assert last["level"] == "error"
    assert told in last["message"]
    assert str(home) in last["message"]
    if there:
        assert (home / "perdure.db").read_bytes() == before
        disk.unlink()
        with serving(home) as served:
            assert served.stop() == 0


@pytest.mark.slow
def test_a_read_only_store_that_was_left_open_is_refused(tmp_path: Path) -> None:
    """SQLite would open it for reading alone, and stay so when the disk is well again."""
    home, disk = tmp_path / "home", tmp_path / "disk"
    with serving(home) as served:
        served.make_agent()
        served.kill()
    disk.write_text("readonly")
    last = refused_start(home, disk, tmp_path / "record")[-1]

    assert last["level"] == "error"
    assert "can't be written: check its permissions" in last["message"]


@contextmanager
def slow_embedder() -> Iterator[tuple[str, threading.Event, threading.Event]]:
    """The address of an endpoint for embeddings; an event that a request sets, and one that its answer waits for."""
    asks, answers = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
            asks.set()
            answers.wait(WAIT_S)
            data = [{"index": index, "embedding": [1.0, 0.0]} for index in range(len(texts))]
            body = json.dumps({"data": data, "model": "small", "usage": {"total_tokens": 1}}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asks, answers
    finally:
        answers.set()
        server.shutdown()
        server.server_close()


def rows(home: Path, sql: str) -> int:
    with closing(sqlite3.connect(home / "perdure.db")) as connection:
        return int(connection.execute(sql).fetchone()[0])


def wait_until(served: Served, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, f"it did not happen: {served.lines()[-10:]}"
        time.sleep(0.05)


def logged(served: Served, text: str) -> bool:
    return any(text in str(line["message"]) and line["level"] == "warning" for line in served.lines())


@pytest.mark.slow
def test_work_behind_the_scenes_waits_for_room(tmp_path: Path) -> None:
    """The embedding worker and the one that removes what is deleted say so in the log, requests are answered with 507
    or 503, and all of it goes on when the disk is well, without a new start."""
    home, disk = tmp_path / "home", tmp_path / "disk"
    gone = asyncio.run(fill(home / "perdure.db"))
    with slow_embedder() as (url, asks, answers):
        more = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", "PERDURE_EMBEDDING": "openai/small"}
        layer = layer_variables(home, tmp_path / "record", disk=disk)
        with serving(home, RECOVERY_S="0.1", **more, **layer) as served:
            agent = served.make_agent()
            assert served.send(agent, "My name is Ada.").status_code == 200
            assert asks.wait(WAIT_S)
            disk.write_text("full")
            answers.set()
            wait_until(served, lambda: logged(served, "embedding waits for the store: no space left"))
            full = served.client.post("/v1/blocks/", json={"label": "more", "value": ""})
            with closing(sqlite3.connect(home / "perdure.db")) as another:  # a process whose disk is another
                another.execute("UPDATE agents SET org_id = org_id || '/deleted' WHERE id = ?", [gone])
                another.commit()
            wait_until(
                served, lambda: logged(served, "removing what was deleted or reset waits for the store: no space left")
            )
            disk.write_text("readonly")
            read_only = served.client.post("/v1/blocks/", json={"label": "more", "value": ""})
            reads = served.client.get(f"{agent}/messages")
            disk.unlink()
            wait_until(served, lambda: rows(home, "SELECT COUNT(*) FROM vectors WHERE vector IS NOT NULL") > 0)
            wait_until(served, lambda: rows(home, f"SELECT COUNT(*) FROM messages WHERE agent_id = '{gone}'") == 0)
            well = served.client.post("/v1/blocks/", json={"label": "more", "value": ""})
            assert served.stop() == 0

    assert (reads.status_code, well.status_code) == (200, 200)
    assert_told(served, full, 507, "free some")
    assert_told(served, read_only, 503, "look at the system's log")


WRITES_AND_HEARS = """
import os, signal
wakes, full = os.pipe(), os.pipe()
os.set_blocking(wakes[1], False)
signal.set_wakeup_fd(wakes[1])  # as event loops do: Python's handler in C writes there
signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
signal.setitimer(signal.ITIMER_REAL, 0.1)
while True:
    os.write(full[1], bytes(1_000))  # waits when the pipe is full
"""


def test_the_file_layer_lets_a_signal_interrupt_a_write(tmp_path: Path) -> None:
    """A server that gets SIGTERM just as it sends an answer stops."""
    ours = environment(tmp_path, **layer_variables(tmp_path / "home", tmp_path / "record"))
    done = subprocess.run([sys.executable, "-c", WRITES_AND_HEARS], env=ours, timeout=10, check=False)

    assert done.returncode == 0


HEARS_ON_A_SMALL_STACK = """
import ctypes, mmap, os, signal, struct
libc, memory = ctypes.CDLL(None), mmap.mmap(-1, 65_536)
stack = struct.pack("PiN", ctypes.addressof(ctypes.c_char.from_buffer(memory)), 0, len(memory))
assert libc.sigaltstack(stack, None) == 0  # handlers in C run there, as on the 8 KB that faulthandler has on the heap
wakes = os.pipe()
os.set_blocking(wakes[1], False)
signal.set_wakeup_fd(wakes[1])
signal.signal(signal.SIGALRM, lambda *_: None)
os.kill(os.getpid(), signal.SIGALRM)
of_kernel = libc.getauxval(51)  # AT_MINSIGSTKSZ: what it keeps there
assert any(memory), "the handler did not run there"
assert not any(memory[: -of_kernel - 2_048]), "the handler takes too much"
"""


def test_the_file_layer_leaves_the_heap_alone_when_a_signal_is_heard(tmp_path: Path) -> None:
    """A server that gets SIGTERM ends with its own exit code."""
    # The linker resolves a name at its first call, which takes up to 3 KB of stack, so it does that before.
    ours = environment(tmp_path, LD_BIND_NOW="1", **layer_variables(tmp_path / "home", tmp_path / "record"))
    done = subprocess.run([sys.executable, "-c", HEARS_ON_A_SMALL_STACK], env=ours, timeout=10, check=False)

    assert done.returncode == 0


def assert_told(served: Served, answer: httpx.Response, status: int, helps: str) -> None:
    """The answer says what helps, and the log has the same under the answer's id."""
    assert answer.status_code == status, answer.text
    assert helps in answer.json()["detail"]
    lines = [line for line in served.lines() if line.get("trace_id") == answer.json()["trace_id"]]
    assert any(helps in str(line["message"]) and line["level"] == "error" for line in lines)
