"""`kill -9` of a program whose agent writes to others: each of them gets each message once.

Short in `make test-all`, a hundred kills with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.faults.killing import lines_until_killed
from tests.faults.writing_program import TASK, WORKERS, open_store
from tests.support.stores import new_address

KILLS = 100 if os.environ.get("PERDURE_FAULTS") == "full" else 2


@pytest.mark.faults
def test_each_agent_gets_each_message_once(tmp_path: Path) -> None:
    """Whatever the moment of the kill, and though the next process runs the call again."""
    store, chance, task = new_address(tmp_path), random.Random(0), 0
    with open_store(store) as perdure:
        for name in ("lead", *WORKERS):
            agent = perdure.create_agent(name, model=f"test/{name[:4]}", tags=[name[:4]])
            agent.tools.attach("send_message_to_agents_matching_all_tags")
    for _ in range(KILLS):
        task += len(lines_until_killed("writing_program.py", store, task, chance=chance, delay_s=0.2))

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
