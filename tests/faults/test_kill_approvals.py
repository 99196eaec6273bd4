"""`kill -9` around a person's decision: an approved call is run once, or its result says that nobody knows."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from perdure.core.messages import ToolDecision
from perdure.core.tools.rules import RequiresApproval
from tests.contracts.upkeep import faults_of
from tests.faults.children import Child, Line, Place, open_store
from tests.support.kill_target import MODEL

FULL = os.environ.get("PERDURE_FAULTS") == "full"
ROUNDS = 60 if FULL else 3
DELAY_S = 0.04
"""The decision is stored, the call started, run and stored within about this."""

pytestmark = pytest.mark.faults


async def _prepare_waiting_call(place: Place) -> tuple[Line, str]:
    """An agent whose call waits, in a process that was killed after it had asked."""
    async with await open_store(place) as perdure:
        agent = await perdure.create_agent(model=MODEL, tools=("guarded",))
        await agent.rules.set([RequiresApproval("guarded")])
        line = Line(agent.id, (await agent.conversations())[0].id)
    child = await Child.start(place)
    await child.ready()
    child.send(line.order("k1", "guarded"))
    ended = await child.hears("ended", "k1", timeout_s=20.0)
    assert ended["stop_reason"] == "requires_approval"
    await child.kill()
    async with await open_store(place) as perdure:
        (call,) = await (await perdure.agent(line.agent)).pending()
    return line, call.call_id


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_kill_around_a_decision_runs_the_call_once_or_says_so(tmp_path: Path, seed: int) -> None:
    """Killed between request and decision, and again at any moment after the decision; the same decision is sent again,
    as a client does that heard nothing."""
    chance, place = random.Random(seed), Place(tmp_path)

    async def torment() -> None:
        line, call_id = await _prepare_waiting_call(place)
        for _ in range(chance.randint(1, 3)):
            child = await Child.start(place)
            await child.ready()
            child.send({"agent": line.agent, "approve": call_id})
            await asyncio.sleep(chance.uniform(0, DELAY_S))
            await child.kill()
        async with await open_store(place) as perdure:
            agent = await perdure.agent(line.agent)
            reply = await asyncio.wait_for(agent.answer([ToolDecision(call_id, True)]), 30)
            assert reply is not None
            assert (reply.stop_reason, reply.text) == ("end_turn", "done k1")
            results = [result for message in await agent.messages() for result in message.results]
            assert await agent.pending() == ()
            assert await perdure.app.store.read(faults_of) == []

        (result,) = results
        ran = place.effects_left().count("guarded k1")
        assert ran <= 1
        assert result.text == "guarded k1" if result.status == "success" else "outcome unknown" in result.text
        assert ran == 1 or result.status == "error"

    asyncio.run(torment())
