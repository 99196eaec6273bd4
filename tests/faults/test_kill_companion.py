"""`kill -9` of a program whose agent has a companion: each message is read once, and no pass is lost or made twice.

Short in `make test-all`, a hundred kills with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.faults.companion_program import open_store
from tests.faults.killing import lines_until_killed
from tests.support.stores import new_address

KILLS = 100 if os.environ.get("PERDURE_FAULTS") == "full" else 3


@pytest.mark.faults
def test_each_message_is_read_once(tmp_path: Path) -> None:
    """Whatever the moment of the kill: before the pass or its run, in a model call, between an edit and the end."""
    store, chance, number = new_address(tmp_path), random.Random(0), 0
    with open_store(store) as perdure:
        perdure.create_agent("ann", blocks={"seen": ""}, sleeptime=True)
    for _ in range(KILLS):
        number += len(lines_until_killed("companion_program.py", store, number, chance=chance, delay_s=0.25))

    with open_store(store) as perdure:
        agent = perdure.agent("ann")
        agent.send(f"message {number}", idempotency_key=str(number))
        deadline = time.monotonic() + 30
        while (newest := agent.companion.passes(limit=1)) and newest[0].outcome is None and time.monotonic() < deadline:
            time.sleep(0.02)
        agent.companion.wake()
        seen = agent.blocks.get("seen").value.split("\n")
        passes = agent.companion.passes(limit=10_000)

    assert seen == [str(one) for one in range(number + 1)]
    assert {one.outcome for one in passes} == {"finished"}
    assert [one.number for one in passes] == list(range(len(passes), 0, -1))
