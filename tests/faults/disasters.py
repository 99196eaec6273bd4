"""`perdure serve` as a process of its own, what it answers, and what its log says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.disaster_program import EXPLAIN, PID_FILE
from tests.support.programs import environment
from tests.support.warm import KILL, warm

PROGRAM = Path(__file__).with_name("disaster_program.py")
STOP_S, EXPLAIN_S, POLL_S = 30.0, 2.0, 0.02
SERVE = ("serve", "--port", "0")


@dataclass(frozen=True)
class Served:
    """A server that answers."""

    home: Path
    process: subprocess.Popen[str]
    client: httpx.Client
    log: Path

    @property
    def pid(self) -> int:
        """Of the server itself."""
        return int((self.home / PID_FILE).read_text())

    def lines(self) -> list[dict[str, Any]]:
        """What the log has; each line has to be JSON. One that is still being written is left out."""
        return [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def make_agent(self) -> str:
        """The path of a new agent."""
        body = {"name": "ada", "model": "perdure/extractive", "memory_blocks": [{"label": "human", "value": "Ada"}]}
        return f"/v1/agents/{self.client.post('/v1/agents/', json=body).raise_for_status().json()['id']}"

    def send(self, agent: str, text: str, key: str = "") -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        return self.client.post(f"{agent}/messages", json={"input": text}, headers=headers)

    def kill(self) -> None:
        """End it without a word."""
        self.process.send_signal(KILL)
        self.process.wait(STOP_S)

    def stop(self) -> int:
        """Ask it to stop; its exit code. Of a server that does not stop, the failure says what it is doing."""
        self.process.terminate()
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            before = len(self.log.read_text())
            os.kill(self.pid, EXPLAIN)
            time.sleep(EXPLAIN_S)
            pytest.fail(f"the server has not stopped in {STOP_S:g} s:\n{self.log.read_text()[before:]}")


@contextlib.contextmanager
def serving(home: Path, **more: str) -> Iterator[Served]:
    """Start it, with a log of JSON lines."""
    ours = environment(home, PERDURE_LOG="json", **more)
    log = home.with_name(f"{home.name}.log")
    home.mkdir(exist_ok=True)
    before = log.stat().st_size if log.exists() else 0
    with log.open("a") as errors:
        process = subprocess.Popen(
            # What is loaded before the program has to be there from its start.
            [*([sys.executable, str(PROGRAM)] if "LD_PRELOAD" in more else [warm(str(PROGRAM), ours)]), *SERVE],
            env=ours,
            stdout=errors,
            stderr=errors,
            text=True,
        )
    with process:
        try:
            while not (found := re.search(r"Perdure is serving on (\S+)", log.read_text()[before:])):
                assert process.poll() is None, log.read_text()
                time.sleep(POLL_S)
            with httpx.Client(base_url=found[1], trust_env=False, timeout=30) as client:
                yield Served(home, process, client, log)
        finally:
            process.send_signal(KILL)
