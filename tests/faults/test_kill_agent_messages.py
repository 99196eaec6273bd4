"""`kill -9` of a program whose agent writes to others: each of them gets each message once.

Short in `make test`, a hundred kills with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
from pathlib import Path

import pytest

from tests.faults.writing_program import TASK, WORKERS, open_store
from tests.support.warm import warm

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("writing_program.py")
KILLS = 100 if os.environ.get("PERDURE_FAULTS") == "full" else 2


def killed(store: Path, first: int, chance: random.Random) -> int:
    """The number of the task that the process was killed at."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with subprocess.Popen(
        [warm(str(PROGRAM), environment), str(store), str(first)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        timer = threading.Timer(chance.uniform(0, 0.2), child.kill)
        timer.start()
        done = [int(line) for line in child.stdout if line.endswith("\n")]
        timer.join()
    assert child.returncode == -9
    return first + len(done)


@pytest.mark.faults
def test_each_agent_gets_each_message_once(tmp_path: Path) -> None:
    """Whatever the moment of the kill, and though the next process runs the call again."""
    store, chance, task = tmp_path / "perdure.db", random.Random(0), 0
    with open_store(store) as perdure:
        for name in ("lead", *WORKERS):
            agent = perdure.create_agent(name, model=f"test/{name[:4]}", tags=[name[:4]])
            agent.tools.attach("send_message_to_agents_matching_all_tags")
    for _ in range(KILLS):
        task = killed(store, task, chance)

    with open_store(store) as perdure:
        reply = perdure.agent("lead").send(TASK.format(task), idempotency_key=str(task))
        received = [
            [
                message.text.rpartition("\n")[2]
                for message in perdure.agent(name).messages(limit=1_000)
                if message.sender_id
            ]
            for name in WORKERS
        ]

    assert reply.text == "All done."
    assert received == [[TASK.format(number) for number in range(task + 1)]] * len(WORKERS)
