"""`kill -9` of a program with one thread that sends.

Short in `make test`, a hundred kills with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perdure import Perdure
from perdure.testing import InlineStore, ScriptedModel
from tests.simulator.invariants import check_agent

SRC = Path(__file__).resolve().parents[2] / "src"
KILLS = 100 if os.environ.get("PERDURE_FAULTS") == "full" else 2
MODEL = "test/scripted"

# It sends one message after another, each with a key, and tells when it begins and when each is answered.
TARGET = """
import itertools, sys
from perdure import Perdure
from perdure.testing import ScriptedModel

with Perdure(sys.argv[1], models={"test/scripted": ScriptedModel()}) as perdure:
    agent = perdure.agent("ada")
    print("ready", flush=True)
    for number in itertools.count(int(sys.argv[2])):
        agent.send(f"message {number}", idempotency_key=f"key {number}")
        print(number, flush=True)
"""


def killed(store: Path, first: int, chance: random.Random) -> list[int]:
    """The messages from `first` on that were answered before the process was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", TARGET, str(store), str(first)],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        timer = threading.Timer(chance.uniform(0, 0.15), child.kill)
        timer.start()
        answered = [int(line) for line in child.stdout if line.endswith("\n")]
        timer.join()
    assert child.returncode == -9
    return answered


@pytest.mark.faults
def test_a_kill_of_a_program_with_one_thread_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Each message that was answered stands in the log once, so does the one that is sent again, and both the run and
    the file are as they should be."""
    store, chance = tmp_path / "perdure.db", random.Random(0)
    with Perdure(store, models={MODEL: ScriptedModel()}) as perdure:
        agent_id = perdure.create_agent("ada", model=MODEL).id
    first = 0
    for _ in range(KILLS):
        answered = killed(store, first, chance)
        assert answered == list(range(first, first + len(answered)))
        first += len(answered)
    with Perdure(store, models={MODEL: ScriptedModel()}) as perdure:
        agent = perdure.agent("ada")
        assert agent.send(f"message {first}", idempotency_key=f"key {first}").stop_reason == "end_turn"
        said = [message.text for message in agent.messages(limit=10_000) if message.role == "user"]
    assert said == [f"message {number}" for number in range(first + 1)]
    kept = InlineStore(store)
    asyncio.run(kept.read(check_agent, agent_id, sent=said))
    kept.crash()
    connection = sqlite3.connect(store)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
