"""`kill -9` of a process that erases a text: the next one that opens the store finishes it."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import threading
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.testing import ScriptedModel, says
from tests.faults.killing import ENVIRONMENT
from tests.properties.test_erasing import bytes_left
from tests.support.warm import KILL, killed, warm

KILLS = 20 if os.environ.get("PERDURE_FAULTS") == "full" else 2
MODEL, TEXT = "test/scripted", "zxqjvk wbpfgy"
TARGET = """
import sys
from perdure import Perdure
from perdure.testing import ScriptedModel

with Perdure(sys.argv[1], models={"test/scripted": ScriptedModel()}) as perdure:
    agent = perdure.agent("ada")
    print("ready", flush=True)
    agent.forget(sys.argv[2], erase=True)
    print("erased", flush=True)
    sys.stdin.read()
"""


def kill_while_erasing(store: Path, chance: random.Random) -> bool:
    """Whether the process said that it was done before it was killed."""
    program = store.with_name("target.py")
    program.write_text(TARGET, "utf-8")
    with subprocess.Popen(
        [warm(str(program), ENVIRONMENT), store, TEXT],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        timer = threading.Timer(chance.uniform(0, 0.25), child.send_signal, [KILL])
        timer.start()
        told = child.stdout.read()
        timer.join()
    assert killed(child.returncode) == -9
    return "erased" in told


@pytest.mark.faults
def test_a_killed_erasure_is_finished_by_the_next_process(tmp_path: Path) -> None:
    """What it said was done is done; the rest goes on without a call."""
    store, chance = tmp_path / "store.db", random.Random(7)

    async def told() -> None:
        async with await AsyncPerdure.open(store, models={MODEL: ScriptedModel(says(f"Noted: {TEXT}"))}) as perdure:
            agent = await perdure.get_or_create_agent("ada", model=MODEL)
            await agent.blocks.append("human", TEXT)
            await agent.archive(TEXT)
            await agent.send(f"Remember {TEXT}.")

    async def recovered(before: int | None) -> int | None:
        async with await AsyncPerdure.open(store, models={MODEL: ScriptedModel()}) as perdure:
            agent = await perdure.agent("ada")
            async with asyncio.timeout(60):
                while (await agent.find_mentions(TEXT)).unended:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            begun = await perdure.app.store.read(lambda tx: tx.agents._db.rows("SELECT MAX(number) FROM erasures", {}))
            assert begun[0][0] == before or bytes_left(store, TEXT) == []
            assert (await agent.send("Hello?")).text == "OK."
            return begun[0][0]  # type: ignore[no-any-return]

    erasures: int | None = None
    for _ in range(KILLS):
        asyncio.run(told())
        done = kill_while_erasing(store, chance)
        assert not done or bytes_left(store, TEXT) == []
        erasures = asyncio.run(recovered(erasures))
