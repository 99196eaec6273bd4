"""`kill -9` of a program with one thread that sends.

Short in `make test-all`, a hundred kills with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from perdure import Perdure
from perdure.testing import ScriptedModel
from tests.faults.killing import lines_until_killed
from tests.simulator.invariants import check_agent
from tests.support.stores import check_integrity, new_address, opened

KILLS = 100 if os.environ.get("PERDURE_FAULTS") == "full" else 2
MODEL = "test/scripted"


@pytest.mark.faults
def test_a_kill_of_a_program_with_one_thread_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Each message that was answered stands in the log once, so does the one that is sent again, and both the run and
    the file are as they should be."""
    store, chance = new_address(tmp_path), random.Random(0)
    with Perdure(store, models={MODEL: ScriptedModel()}) as perdure:
        agent_id = perdure.create_agent("ada", model=MODEL).id
    first = 0
    for _ in range(KILLS):
        told = lines_until_killed("sending_program.py", store, first, chance=chance, delay_s=0.15)
        answered = list(map(int, told))
        assert answered == list(range(first, first + len(answered)))
        first += len(answered)
    with Perdure(store, models={MODEL: ScriptedModel()}) as perdure:
        agent = perdure.agent("ada")
        assert agent.send(f"message {first}", idempotency_key=f"key {first}").stop_reason == "end_turn"
        said = [message.text for message in agent.messages(limit=10_000) if message.role == "user"]
    assert said == [f"message {number}" for number in range(first + 1)]

    async def check() -> None:
        async with opened(store) as kept:
            await kept.read(check_agent, agent_id, sent=said)

    asyncio.run(check())
    check_integrity(store)
